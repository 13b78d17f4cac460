// One table: lag in words and as a curve, rounds, offsets, snapshots, properties.
import { api } from "./api.js";
import { curve } from "./chart.js";
import { adopting, bytes, clock, commands, count, counted, duration, moment, short, stateWord, text } from "./format.js";
import { liveCard } from "./live.js";
import { roundsTable } from "./rounds.js";
import { rowTable } from "./rowtable.js";

const EVERY_MS = 4000;
const FILES_EVERY_MS = 60000;
const ACTIONS = [["#pause", "pause"], ["#now", "tier-now"], ["#compact", "maintain"], ["#freshness", "alter"]];

const facts = (pairs) => `<dl class="facts">${pairs.map(([k, v]) => `<dt>${text(k)}</dt><dd>${v}</dd>`).join("")}</dl>`;

function offsets(explanation) {
  const rows = Object.entries(explanation.committed?.offsets ?? {}).flatMap(([partition, pairs]) => pairs.map(([n, o]) => [partition ? `${partition}/${n}` : n, o]));
  if (!rows.length) return '<p class="empty">Nothing is in the lake yet.</p>';
  return `<div class="scroll" style="max-height:22rem;overflow-y:auto"><table><thead><tr><th>Bucket</th><th class="num">Committed offset</th></tr></thead><tbody>${rows.map(([b, o]) => `<tr><td>${text(b)}</td><td class="num">${count(o)}</td></tr>`).join("")}</tbody></table></div>`;
}

function snapshots(entries, name) {
  const grouped = new Map();
  for (const e of entries) {
    const held = grouped.get(e.round_id) ?? { ...e, ranges: [], total: 0 };
    held.ranges.push(`${e.bucket}: [${count(e.range[0])}, ${count(e.range[1])})`);
    held.total += e.rows ?? 0;
    grouped.set(e.round_id, held);
  }
  const list = [...grouped.values()].slice(-50).reverse();
  if (!list.length) return '<p class="empty">No snapshot yet.</p>';
  return `<div class="scroll" style="max-height:26rem;overflow-y:auto"><table><thead><tr><th>Committed</th><th>Snapshot</th><th>Kind</th><th class="num">Rows</th><th>Ranges</th></tr></thead><tbody>${list.map((e) => `<tr><td>${clock(e.committed_at_ms)}</td><td class="mono">${e.snapshot_id ? `<a href="#/table/${encodeURIComponent(name)}?as-of=${encodeURIComponent(e.snapshot_id)}">${text(e.snapshot_id)}</a>` : "–"}</td><td>${text(e.kind)}</td><td class="num">${count(e.total)}</td><td class="mono soft" title="${text(e.ranges.join("\n"))}">${text(e.ranges.slice(0, 3).join("  "))}${e.ranges.length > 3 ? ` and ${e.ranges.length - 3} more` : ""}</td></tr>`).join("")}</tbody></table></div>`;
}

function lakeFiles(shape) {
  const rows = (list) => list.map((r) => `<tr><td>${text(r.files)}</td><td class="num">${count(r.before)}</td><td class="num">${count(r.after)}</td></tr>`).join("");
  const table = (title, list) => `<table><thead><tr><th>${title}</th><th class="num">Now</th><th class="num">After a compaction</th></tr></thead><tbody>${rows(list)}</tbody></table>`;
  const deletes = shape.deleted_rows ? `<p>A compaction would purge ${count(shape.deleted_rows)} deleted rows.</p>` : '<p class="soft">No deleted rows to purge.</p>';
  return `<div class="grid">${table("By size", shape.sizes)}${table("By age", shape.ages)}</div>${deletes}`;
}

function hotSide(hot) {
  const s = hot.sizes;
  const buckets = hot.buckets.map((b) => `<tr><td>${text(b.bucket)}</td><td class="num">${count(b.start)}</td><td class="num">${count(b.end)}</td><td>${moment(b.end_at_ms)}</td></tr>`).join("");
  const consumers = hot.consumers.map((c) => `<tr><td>${text(c.who)}</td><td class="soft">${text(c.peer)}</td><td class="num ${c.lag_rows ? "over" : ""}">${count(c.lag_rows)}</td><td>${duration(c.seen_ms)} ago</td></tr>`).join("");
  return `${s ? facts([["Local log", `${bytes(s.local_bytes)} in ${count(s.local_segments)} segments`], ["Remote log", `${bytes(s.remote_bytes)} in ${count(s.remote_segments)} segments`], ["Kept for", s.ttl_ms ? duration(s.ttl_ms) : "ever"], ["Newest row", clock(s.written_at_ms)]]) : ""}
    <div class="scroll bucketlist" tabindex="0" role="region" aria-label="buckets"><table><thead><tr><th>Bucket</th><th class="num">Log start</th><th class="num">Log end</th><th>Newest row</th></tr></thead><tbody>${buckets}</tbody></table></div>
    <h3>Consumers</h3>${consumers ? `<div class="scroll"><table id="consumers"><thead><tr><th>Token</th><th>From</th><th class="num">Rows behind</th><th>Asked</th></tr></thead><tbody>${consumers}</tbody></table></div>` : '<p class="empty">Nobody has followed this log in the last minutes.</p>'}`;
}

const properties = (list) => `<div class="scroll bucketlist" tabindex="0" role="region" aria-label="properties"><table><thead><tr><th>Property</th><th>Value</th><th>Set by</th></tr></thead><tbody>${[...list].sort((a, b) => SOURCES.indexOf(a.source) - SOURCES.indexOf(b.source)).map((p) => `<tr class="${p.source === "default" ? "soft" : ""}" title="${text(p.help)}"><td class="mono">${text(p.key)}</td><td class="mono">${text(p.value)}</td><td>${text(p.source)}</td></tr>`).join("")}</tbody></table></div>`;
const SOURCES = ["table", "server", "default"];

// Of a table in several lakes: how each side stands. A side has a page of its own.
function sides(name, list, chosen) {
  const link = (t) => (t.side === chosen ? `<b>${text(t.side)}</b>` : `<a href="#/table/${encodeURIComponent(name)}?side=${encodeURIComponent(t.side)}">${text(t.side)}</a>`);
  const rows = list.map((t) => `<tr><td>${link(t)}</td><td><span class="state ${text(t.state)}">${text(stateWord(t))}</span>${t.reason ? ` <span class="over">${text(t.reason)}</span>` : ""}</td><td class="num ${t.lag_ms > t.freshness_ms ? "over" : ""}">${duration(t.lag_ms)} of ${duration(t.freshness_ms)}</td><td class="num">${count(t.waiting_rows)}</td><td class="num">${count(t.lake_rows)}</td><td class="num">${count(t.lake_files)}</td><td>${clock(t.last_tiered_at_ms)}</td></tr>`);
  return `<div class="scroll"><table id="sidelist"><thead><tr><th>Lake</th><th>State</th><th class="num">Lag</th><th class="num">Waiting rows</th><th class="num">Rows in it</th><th class="num">Files</th><th>Last tiered</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
}

// Of a table that is adopted with a key: how many of its rows are loaded. Nothing else can be asked of it before.
const adoption = (a) => `<p class="words">${adopting(a)}. It can be read and written once all are there; dropping the table ends it.</p><progress max="${Math.max(1, a.of_rows, a.rows)}" value="${a.rows}" aria-label="rows loaded"></progress>`;

export function tablePage(name, asked = new URLSearchParams()) {
  const asOf = asked.get("as-of");
  const side = asked.get("side");
  let first = null;
  let root = null;
  let loadedAt = 0;
  let filesAt = 0;
  let shown = null;
  let rowsToo = false;
  let liveToo = false;
  let showLive = null;
  let sampled = false;
  const put = (id, html) => {
    const box = root.querySelector(id);
    if (box && box.dataset.html !== html) { box.innerHTML = html; box.dataset.html = html; }
  };

  const status = (t) => facts([
    ["State", `<span class="state ${text(t.state)}">${text(stateWord(t))}</span>${t.reason ? ` <span class="over">${commands(t.reason)}</span>` : ""}`],
    ["Lag", `<span class="${t.lag_ms > t.freshness_ms ? "over" : ""}">${duration(t.lag_ms)}</span> of ${duration(t.freshness_ms)} allowed`],
    ["Waiting rows", count(t.waiting_rows)],
    ["Deadline", t.deadline_at_ms ? `${moment(t.deadline_at_ms)} UTC (slack ${duration(t.slack_ms)})` : "nothing waits"],
    ["Job", t.job ? text(t.job) : "–"],
    ["Pool, priority", `${text(t.pool)}, ${t.priority}`],
    ["Last tiered (UTC)", moment(t.last_tiered_at_ms)],
    ["In the lake", `${counted(t.lake_rows, "row")}, ${bytes(t.lake_bytes)}, ${counted(t.lake_files, "file")}, ${counted(t.lake_delete_files, "delete file")}, ${counted(t.lake_snapshots, "snapshot")}`],
    ["Missed deadlines, failures", `${count(t.misses)}, ${count(t.failures)}`],
    ["Epoch, generation", `${t.epoch}, ${t.generation}`],
  ]);

  const fill = async (t) => {
    const [lag, rounds, ledger, explanation, info] = await Promise.all([api.lag(name, t?.side), api.rounds(name, 40, side), api.ledger(name, side), api.explain(name, side), api.info(name)]);
    if (!root.isConnected) return;
    put("#lag", curve(lag.samples, t?.freshness_ms ?? lag.freshness_ms, root.querySelector("#lag").clientWidth, duration, clock));
    put("#rounds", roundsTable(rounds.rounds, false));
    put("#snapshots", snapshots(ledger, name));
    put("#offsets", offsets(explanation));
    put("#words", text(explanation.words));
    const d = info.table.descriptor;
    first = (d.properties?.["table.datalake.lakes"] ?? "").split(",")[0].trim() || "default";
    put("#schema", facts([
      ["Columns, by id", d.schema.columns.map((c) => `<span class="mono">${c.id} ${text(c.name)} ${text(c.type)}</span>${c.comment ? ` ${text(c.comment)}` : ""}`).join("<br>")],
      ["Primary key", text(d.primary_key.join(", ") || "none: a log table")],
      ["Partitioned by", text(d.partition_keys.join(", ") || "–")],
      ["Buckets", `${d.bucket_count} by ${text(d.bucket_keys.join(", ") || "turn")} (${text(d.bucket_function)})`],
      ["Table id", `<span class="mono">${text(info.table.table_id)}</span>`],
    ]));
    if (liveToo) showLive(await api.live(name));
    if (!rowsToo) return;
    const [hot, given] = await Promise.all([api.hot(name), api.properties(name)]);
    if (!root.isConnected) return;
    put("#hot", hotSide(hot));
    put("#properties", properties(given));
  };

  // Reads the lake's file list, so rarely; a table without a lake has none.
  const loadFiles = async () => {
    filesAt = Date.now();
    try { put("#files", lakeFiles(await api.lakeFiles(name, side))); } catch (error) { put("#files", `<p class="empty">${text(error.message)}</p>`); }
  };

  const sample = async () => {
    try {
      const answer = await api.sample(name, asOf ? "lake" : root.querySelector("#mode").value, asOf);
      put("#sample", `${rowTable(answer, "No rows there.")}<p class="soft">${text(answer.words)}</p>`);
    } catch (error) { put("#sample", `<p class="empty">${text(error.message)}</p>`); }
  };

  return {
    mount(page, tools) {
      root = document.createElement("div");
      page.append(root);
      const query = `#/sql?${new URLSearchParams({ q: `SELECT * FROM ${name} LIMIT 20`, ...(asOf && { "as-of": asOf }) })}`;
      root.innerHTML = `<div class="bar"><a href="#/">← Tables</a><h1>${text(name)}</h1><span class="count"><button id="now" hidden>Tier now</button><button id="compact" hidden>Compact now</button><button id="resync" hidden>Resync</button><button id="freshness" hidden>Freshness</button><button id="pause" hidden>Pause</button><button id="resume" class="primary" hidden>Resume</button></span></div>
        <section class="card" id="adopting" hidden><h2>Being adopted</h2><div id="loaded"></div></section>
        <section class="card" id="sides" hidden><h2>Its sides</h2><div id="allsides"></div></section>
        <section class="card"><h2>Why it lags</h2><p class="words" id="words">Loading</p><div id="lag"></div></section>
        <section class="card"><h2>Rounds, newest first</h2><div id="rounds"></div></section>
        <div class="grid"><section class="card"><h2>Now</h2><div id="status"></div></section><section class="card"><h2>Committed offsets</h2><div id="offsets"></div></section></div>
        <section class="card" style="margin-top:1.1rem"><h2>Snapshots and the ranges they added</h2><div id="snapshots"></div></section>
        <section class="card" data-needs="rows" hidden><div class="bar"><h2>Rows</h2>${asOf ? `<span>as of snapshot <span class="mono">${text(asOf)}</span>, <a href="#/table/${encodeURIComponent(name)}">now</a></span>` : '<select id="mode" aria-label="Which rows"><option value="union">lake and hot store</option><option value="lake">lake alone</option><option value="hot">hot store alone</option></select>'}<button id="again">Read again</button><a href="${text(query)}" data-needs="sql" hidden>Query it</a></div><div id="sample"><p class="empty">Loading</p></div></section>
        <section class="card" id="live" hidden></section>
        <section class="card"><h2>Files in the lake</h2><div id="files"></div></section>
        <div class="grid"><section class="card" data-needs="rows" hidden><h2>Hot store</h2><div id="hot"></div></section><section class="card"><h2>Table</h2><div id="schema"></div></section></div>
        <section class="card below" data-needs="rows" hidden><h2>Properties</h2><div id="properties"></div></section>`;
      showLive = liveCard(root.querySelector("#live"), name);
      root.querySelector("#again").addEventListener("click", sample);
      root.querySelector("#mode")?.addEventListener("change", sample);
      root.querySelector("#now").addEventListener("click", () => tools.tierNow(name, side));
      root.querySelector("#compact").addEventListener("click", () => tools.compact(name, side));
      root.querySelector("#resync").addEventListener("click", () => tools.resync(name, side));
      root.querySelector("#freshness").addEventListener("click", () => tools.freshness(name, shown ? duration(shown.freshness_ms) : ""));
      root.querySelector("#pause").addEventListener("click", () => tools.pause(name, side));
      root.querySelector("#resume").addEventListener("click", () => tools.resume(name, side));
    },
    update(overview) {
      const list = overview.tables.filter((x) => x.path === name);
      const t = list.find((x) => x.side === (side ?? first)) ?? list[0];
      const load = overview.adoptions?.find((a) => a.path === name);
      shown = t;
      root.querySelector("#adopting").hidden = !load;
      root.querySelectorAll(":scope > section:not(#adopting, #sides, #live), :scope > .grid").forEach((part) => { part.hidden = Boolean(load); });
      root.querySelector("#sides").hidden = list.length < 2;
      put("#allsides", sides(name, list, t?.side));
      const stopped = t && ["paused", "quarantined"].includes(t.state);
      const may = (action) => overview.actions.includes(action);
      root.querySelector("#resume").hidden = !stopped || !may("resume");
      for (const [id, action] of ACTIONS) root.querySelector(id).hidden = !t || stopped || t.state === "disabled" || !may(action);
      root.querySelector("#resync").hidden = !t || t.state === "disabled" || !may("resync");
      rowsToo = may("rows");
      liveToo = may("live");
      root.querySelectorAll("[data-needs]").forEach((part) => { part.hidden = Boolean(load) || !may(part.dataset.needs); });
      if (load) { put("#loaded", adoption(load)); return; }
      if (rowsToo && !sampled) { sampled = true; sample(); }
      put("#status", t ? status(t) : '<p class="empty">The coordinator does not know this table.</p>');
      if (Date.now() - filesAt > FILES_EVERY_MS) loadFiles();
      if (Date.now() - loadedAt > EVERY_MS) {
        loadedAt = Date.now();
        fill(t).catch((error) => put("#words", text(error.message)));
      }
    },
  };
}
