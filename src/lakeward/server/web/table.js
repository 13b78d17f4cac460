// One table: lag in words and as a curve, rounds, offsets, snapshots, properties.
import { api } from "./api.js";
import { curve } from "./chart.js";
import { bytes, clock, count, duration, short, text } from "./format.js";
import { roundsTable } from "./rounds.js";

const EVERY_MS = 4000;
const FILES_EVERY_MS = 60000;
const ACTIONS = [["#pause", "pause"], ["#now", "tier-now"], ["#compact", "maintain"], ["#freshness", "alter"]];

const facts = (pairs) => `<dl class="facts">${pairs.map(([k, v]) => `<dt>${text(k)}</dt><dd>${v}</dd>`).join("")}</dl>`;

function offsets(explanation) {
  const rows = Object.entries(explanation.committed?.offsets ?? {}).flatMap(([partition, pairs]) => pairs.map(([n, o]) => [partition ? `${partition}/${n}` : n, o]));
  if (!rows.length) return '<p class="empty">Nothing is in the lake yet.</p>';
  return `<div class="scroll" style="max-height:22rem;overflow-y:auto"><table><thead><tr><th>Bucket</th><th class="num">Committed offset</th></tr></thead><tbody>${rows.map(([b, o]) => `<tr><td>${text(b)}</td><td class="num">${count(o)}</td></tr>`).join("")}</tbody></table></div>`;
}

function snapshots(entries) {
  const grouped = new Map();
  for (const e of entries) {
    const held = grouped.get(e.round_id) ?? { ...e, ranges: [], total: 0 };
    held.ranges.push(`${e.bucket}: [${count(e.range[0])}, ${count(e.range[1])})`);
    held.total += e.rows ?? 0;
    grouped.set(e.round_id, held);
  }
  const list = [...grouped.values()].slice(-50).reverse();
  if (!list.length) return '<p class="empty">No snapshot yet.</p>';
  return `<div class="scroll" style="max-height:26rem;overflow-y:auto"><table><thead><tr><th>Committed</th><th>Snapshot</th><th>Kind</th><th class="num">Rows</th><th>Ranges</th></tr></thead><tbody>${list.map((e) => `<tr><td>${clock(e.committed_at_ms)}</td><td class="mono">${text(e.snapshot_id ?? "–")}</td><td>${text(e.kind)}</td><td class="num">${count(e.total)}</td><td class="mono soft" title="${text(e.ranges.join("\n"))}">${text(e.ranges.slice(0, 3).join("  "))}${e.ranges.length > 3 ? ` and ${e.ranges.length - 3} more` : ""}</td></tr>`).join("")}</tbody></table></div>`;
}

function lakeFiles(shape) {
  const rows = (list) => list.map((r) => `<tr><td>${text(r.files)}</td><td class="num">${count(r.before)}</td><td class="num">${count(r.after)}</td></tr>`).join("");
  const table = (title, list) => `<table><thead><tr><th>${title}</th><th class="num">Now</th><th class="num">After a compaction</th></tr></thead><tbody>${rows(list)}</tbody></table>`;
  return `<div class="grid">${table("By size", shape.sizes)}${table("By age", shape.ages)}</div>`;
}

export function tablePage(name) {
  let root = null;
  let loadedAt = 0;
  let filesAt = 0;
  let shown = null;
  const put = (id, html) => {
    const box = root.querySelector(id);
    if (box && box.dataset.html !== html) { box.innerHTML = html; box.dataset.html = html; }
  };

  const status = (t) => facts([
    ["State", `<span class="state ${text(t.state)}">${text(t.state)}</span>${t.reason ? ` <span class="over">${text(t.reason)}</span>` : ""}`],
    ["Lag", `<span class="${t.lag_ms > t.freshness_ms ? "over" : ""}">${duration(t.lag_ms)}</span> of ${duration(t.freshness_ms)} allowed`],
    ["Waiting rows", count(t.waiting_rows)],
    ["Deadline", t.deadline_at_ms ? `${clock(t.deadline_at_ms)} (slack ${duration(t.slack_ms)})` : "nothing waits"],
    ["Job", t.job ? text(t.job) : "–"],
    ["Pool, priority", `${text(t.pool)}, ${t.priority}`],
    ["Last tiered", clock(t.last_tiered_at_ms)],
    ["In the lake", `${count(t.lake_rows)} rows, ${bytes(t.lake_bytes)}, ${count(t.lake_files)} files, ${count(t.lake_delete_files)} delete files, ${count(t.lake_snapshots)} snapshots`],
    ["Missed deadlines, failures", `${count(t.misses)}, ${count(t.failures)}`],
    ["Epoch, generation", `${t.epoch}, ${t.generation}`],
  ]);

  const load = async (t) => {
    const [lag, rounds, ledger, explanation, info] = await Promise.all([api.lag(name), api.rounds(name, 40), api.ledger(name), api.explain(name), api.info(name)]);
    if (!root.isConnected) return;
    put("#lag", curve(lag.samples, t?.freshness_ms ?? lag.freshness_ms, root.querySelector("#lag").clientWidth, duration, clock));
    put("#rounds", roundsTable(rounds.rounds, false));
    put("#snapshots", snapshots(ledger));
    put("#offsets", offsets(explanation));
    put("#words", text(explanation.words));
    const d = info.table.descriptor;
    put("#schema", facts([
      ["Columns, by id", d.schema.columns.map((c) => `<span class="mono">${c.id} ${text(c.name)} ${text(c.type)}</span>${c.comment ? ` ${text(c.comment)}` : ""}`).join("<br>")],
      ["Primary key", text(d.primary_key.join(", ") || "none: a log table")],
      ["Partitioned by", text(d.partition_keys.join(", ") || "–")],
      ["Buckets", `${d.bucket_count} by ${text(d.bucket_keys.join(", ") || "turn")} (${text(d.bucket_function)})`],
      ["Table id", `<span class="mono">${text(info.table.table_id)}</span>`],
      ...Object.entries(d.properties).map(([k, v]) => [k, `<span class="mono">${text(v)}</span>`]),
    ]));
  };

  // Reads the lake's file list, so rarely; a table without a lake has none.
  const loadFiles = async () => {
    filesAt = Date.now();
    try { put("#files", lakeFiles(await api.lakeFiles(name))); } catch (error) { put("#files", `<p class="empty">${text(error.message)}</p>`); }
  };

  return {
    mount(page, tools) {
      root = page;
      page.innerHTML = `<div class="bar"><a href="#/">← Tables</a><h1>${text(name)}</h1><span class="count"><button id="now" hidden>Tier now</button><button id="compact" hidden>Compact now</button><button id="resync" hidden>Resync</button><button id="freshness" hidden>Freshness</button><button id="pause" hidden>Pause</button><button id="resume" class="primary" hidden>Resume</button></span></div>
        <section class="card"><h2>Why it lags as it does</h2><p class="words" id="words">Loading</p><div id="lag"></div></section>
        <section class="card"><h2>Rounds, newest first</h2><div id="rounds"></div></section>
        <div class="grid"><section class="card"><h2>Now</h2><div id="status"></div></section><section class="card"><h2>Committed offsets</h2><div id="offsets"></div></section></div>
        <section class="card" style="margin-top:1.1rem"><h2>Snapshots and the ranges they added</h2><div id="snapshots"></div></section>
        <section class="card"><h2>Files in the lake</h2><div id="files"></div></section>
        <section class="card"><h2>Table</h2><div id="schema"></div></section>`;
      page.querySelector("#now").addEventListener("click", () => tools.tierNow(name));
      page.querySelector("#compact").addEventListener("click", () => tools.compact(name));
      page.querySelector("#resync").addEventListener("click", () => tools.resync(name));
      page.querySelector("#freshness").addEventListener("click", () => tools.freshness(name, shown ? duration(shown.freshness_ms) : ""));
      page.querySelector("#pause").addEventListener("click", () => tools.pause(name));
      page.querySelector("#resume").addEventListener("click", () => tools.resume(name));
    },
    update(overview) {
      const t = overview.tables.find((x) => x.path === name);
      shown = t;
      const stopped = t && ["paused", "quarantined"].includes(t.state);
      const may = (action) => overview.actions.includes(action);
      root.querySelector("#resume").hidden = !stopped || !may("resume");
      for (const [id, action] of ACTIONS) root.querySelector(id).hidden = !t || stopped || t.state === "disabled" || !may(action);
      root.querySelector("#resync").hidden = t?.state !== "quarantined" || !may("resync");
      put("#status", t ? status(t) : '<p class="empty">The coordinator does not know this table.</p>');
      if (Date.now() - filesAt > FILES_EVERY_MS) loadFiles();
      if (Date.now() - loadedAt > EVERY_MS) {
        loadedAt = Date.now();
        load(t).catch((error) => put("#words", text(error.message)));
      }
    },
  };
}
