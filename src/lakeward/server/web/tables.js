// All tables: sortable, filterable. Rows outside the window are not drawn, so a thousand tables scroll as ten do.
import { api } from "./api.js";
import { spark } from "./chart.js";
import { bytes, count, duration, text } from "./format.js";
import { tiles } from "./tiles.js";

const CHUNK = 60;
const LAG_EVERY_MS = 10000;
const COLUMNS = [
  ["path", "Table", (t) => t.path, false],
  ["state", "State", (t) => ORDER[t.state] ?? 9, false],
  ["lag", "Lag", (t) => t.lag_ms, true],
  ["freshness", "Freshness", (t) => t.freshness_ms, true],
  ["curve", "Last hour", null, false],
  ["round", "Last round", (t) => t.last_duration_ms ?? -1, true],
  ["rows", "Lake rows", (t) => t.lake_rows ?? -1, true],
  ["files", "Files", (t) => t.lake_files ?? -1, true],
  ["bytes", "Size", (t) => t.lake_bytes ?? -1, true],
  ["failures", "Failures", (t) => t.failures, true],
];
const ORDER = { quarantined: 0, failed: 1, paused: 2, tiering: 3, pending: 4, scheduled: 5, tiered: 6, disabled: 8 };
const SICK = new Set(["quarantined", "failed"]);

export function tablesPage() {
  const view = { sort: "state", down: false, shown: CHUNK, lags: new Map(), drawn: "" };
  let overview = null;
  let root = null;
  let tools = null;

  const chosen = () => {
    const wanted = root.querySelector("#find").value.trim().toLowerCase();
    const state = root.querySelector("#state").value;
    const rows = overview.tables.filter((t) => t.path.toLowerCase().includes(wanted) && (!state || t.state === state));
    const value = COLUMNS.find((c) => c[0] === view.sort)[2];
    rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : a.path.localeCompare(b.path)) * (view.down ? -1 : 1));
    return rows;
  };

  const curveOf = (t) => {
    const held = view.lags.get(t.path);
    return held?.samples ? spark(held.samples, t.freshness_ms, `lag of ${text(t.path)} in the last hour`) : '<span class="soft">…</span>';
  };

  const row = (t) => `
    <tr class="${SICK.has(t.state) ? "sick" : ""}" data-table="${text(t.path)}">
      <td><a href="#/table/${encodeURIComponent(t.path)}">${text(t.path)}</a>${t.served ? "" : ' <span class="over" title="no live job serves this pool">unserved</span>'}</td>
      <td><span class="state ${text(t.state)}">${text(t.state)}</span></td>
      <td class="num ${t.lag_ms > t.freshness_ms ? "over" : ""}">${duration(t.lag_ms)}</td>
      <td class="num">${duration(t.freshness_ms)}${t.feasible ? "" : ' <span class="over" title="two rounds take longer than the freshness">!</span>'}</td>
      <td class="curve">${curveOf(t)}</td>
      <td class="num">${duration(t.last_duration_ms)}</td>
      <td class="num">${count(t.lake_rows)}</td>
      <td class="num">${count(t.lake_files)}</td>
      <td class="num">${bytes(t.lake_bytes)}</td>
      <td class="num ${t.failures_in_a_row ? "over" : ""}">${count(t.failures)}</td>
    </tr>${t.reason && SICK.has(t.state) ? `<tr class="reason sick"><td colspan="${COLUMNS.length}">${text(t.reason)}
      ${t.state === "quarantined" ? `<button data-resume="${text(t.path)}">Resume</button>` : ""}</td></tr>` : ""}`;

  const draw = () => {
    if (!overview) return;
    root.querySelector("#tiles").innerHTML = tiles(overview.tiles);
    const rows = chosen();
    const html = rows.slice(0, view.shown).map(row).join("") || `<tr><td colspan="${COLUMNS.length}" class="empty">${overview.tables.length ? "No table matches." : "No tables yet. Make one with <span class=\"mono\">lakeward table create</span>."}</td></tr>`;
    if (html !== view.drawn) {
      root.querySelector("tbody").innerHTML = html;
      view.drawn = html;
    }
    root.querySelector("#count").textContent = `${rows.length} of ${overview.tables.length} tables`;
    root.querySelectorAll("th button").forEach((b) => { b.textContent = b.dataset.label + (b.dataset.sort === view.sort ? (view.down ? " ↓" : " ↑") : ""); });
    loadLags(rows.slice(0, view.shown));
  };

  const loadLags = async (rows) => {
    const bottom = window.innerHeight + 200;
    for (const t of rows) {
      const element = root.querySelector(`tr[data-table="${CSS.escape(t.path)}"]`);
      const box = element?.getBoundingClientRect();
      if (!box || box.top > bottom || box.bottom < -200) continue;
      const held = view.lags.get(t.path);
      if (held && Date.now() - held.at < LAG_EVERY_MS) continue;
      view.lags.set(t.path, { ...held, at: Date.now() });
      try {
        view.lags.set(t.path, { at: Date.now(), samples: (await api.lag(t.path)).samples });
        const cell = root.querySelector(`tr[data-table="${CSS.escape(t.path)}"] .curve`);
        if (cell) cell.innerHTML = curveOf(t);
      } catch { return; }
    }
  };

  const onScroll = () => {
    if (!root.isConnected) { window.removeEventListener("scroll", onScroll); return; }
    if (!overview) return;
    const near = window.innerHeight + window.scrollY > document.body.scrollHeight - 600;
    if (near && view.shown < overview.tables.length) { view.shown += CHUNK; draw(); } else loadLags(chosen().slice(0, view.shown));
  };

  return {
    mount(page, given) {
      root = page;
      tools = given;
      const states = Object.keys(ORDER).map((s) => `<option>${s}</option>`).join("");
      page.innerHTML = `<div class="tiles" id="tiles"></div><section class="card">
        <div class="bar"><h2 style="margin:0">Tables</h2><input id="find" type="search" placeholder="Find a table" aria-label="Find a table">
          <select id="state" aria-label="State"><option value="">all states</option>${states}</select><span class="count" id="count"></span></div>
        <div class="scroll"><table><thead><tr>${COLUMNS.map(([key, label, value, num]) => `<th class="${num ? "num" : ""}">${value ? `<button data-sort="${key}" data-label="${label}">${label}</button>` : label}</th>`).join("")}</tr></thead>
        <tbody></tbody></table></div></section>`;
      page.querySelector("#find").addEventListener("input", () => { view.shown = CHUNK; draw(); });
      page.querySelector("#state").addEventListener("change", draw);
      page.querySelectorAll("th button").forEach((b) => b.addEventListener("click", () => {
        view.down = view.sort === b.dataset.sort ? !view.down : false;
        view.sort = b.dataset.sort;
        draw();
      }));
      page.querySelector("tbody").addEventListener("click", async (event) => {
        const name = event.target.dataset?.resume;
        if (name && await tools.ask(`Resume ${name}? Its next round starts at once; if the cause is still there it will be quarantined again.`, { yes: "Resume" })) await api.resume(name);
      });
      window.addEventListener("scroll", onScroll, { passive: true });
    },
    update(next) { overview = next; draw(); },
  };
}
