// All tables: sortable, filterable. Rows are drawn as one scrolls to them, and only rows that changed are drawn again.
import { api } from "./api.js";
import { spark } from "./chart.js";
import { adopting, bytes, commands, count, duration, stateWord, text } from "./format.js";
import { tiles } from "./tiles.js";

const CHUNK = 60;
const LAG_EVERY_MS = 10000;
const LAGS_AT_ONCE = 40;
const ORDER = { quarantined: 0, failed: 1, paused: 2, tiering: 3, pending: 4, scheduled: 5, tiered: 6, new: 7, initialized: 7, disabled: 8 };
const SICK = new Set(["quarantined", "failed"]);
const STOPPED = new Set(["quarantined", "failed", "paused"]);
const COLUMNS = [
  ["path", "Table", (t) => t.path, false],
  ["state", "State", (t) => ORDER[t.state] ?? 9, false],
  ["lag", "Lag", (t) => t.lag_ms, true],
  ["freshness", "Freshness", (t) => t.freshness_ms, true],
  ["curve", "Last hour", null, false],
  ["round", "Last round", (t) => t.last_duration_ms, true],
  ["rows", "Lake rows", (t) => t.lake_rows, true],
  ["files", "Files", (t) => t.lake_files, true],
  ["bytes", "Size", (t) => t.lake_bytes, true],
  ["failures", "Failures", (t) => t.failures, true],
];

// As the server names a side's curve.
const lagName = (t) => (t.side === "default" ? t.path : `${t.path}/${t.side}`);

// What fails first, then what is latest against its freshness; what is switched off last.
const trouble = (t) => (["disabled", "paused"].includes(t.state) ? 0 : -(1 + (SICK.has(t.state) || t.failures_in_a_row ? 1e6 : 0) + t.lag_ms / Math.max(1, t.freshness_ms)));
const SORTS = new Map([["worst", trouble], ...COLUMNS.filter((c) => c[2]).map(([key, , value]) => [key, value])]);

const ON_TILES = /^(no live job|job )/;

const sickness = (t, actions) => `<tr class="reason ${SICK.has(t.state) ? "sick" : "still"}"><td colspan="${COLUMNS.length}">${commands(t.reason ?? "no reason is known")}
  ${["failed", "disabled"].includes(t.state) || !actions.includes("resume") ? "" : `<button data-resume="${text(t.path)}">Resume</button>`}</td></tr>`;

const row = (t, curve, actions) => `
  <tr class="${SICK.has(t.state) ? "sick" : ""}">
    <td><a href="#/table/${encodeURIComponent(t.path)}${t.side === "default" ? "" : `?side=${encodeURIComponent(t.side)}`}">${text(t.path)}</a>${t.side === "default" ? "" : ` <span class="soft">${text(t.side)}</span>`}${t.served ? "" : ' <span class="over" title="no live job serves this pool">unserved</span>'}</td>
    <td><span class="state ${text(t.state)} ${stateWord(t) === "late" ? "late" : ""}">${text(stateWord(t))}</span></td>
    <td class="num ${t.lag_ms > t.freshness_ms ? "over" : ""}" data-label="Lag">${duration(t.lag_ms)}</td>
    <td class="num" data-label="Freshness">${duration(t.freshness_ms)}${t.feasible ? "" : ' <span class="over" title="two rounds take longer than the freshness">!</span>'}</td>
    <td class="curve wide">${curve}</td>
    <td class="num" data-label="Last round">${duration(t.last_duration_ms)}</td>
    <td class="num" data-label="Lake rows">${count(t.lake_rows)}</td>
    <td class="num" data-label="Files">${count(t.lake_files)}</td>
    <td class="num" data-label="Size">${bytes(t.lake_bytes)}</td>
    <td class="num ${t.failures_in_a_row ? "over" : ""}" data-label="Failures">${count(t.failures)}</td>
  </tr>${t.blocked || (STOPPED.has(t.state) && (t.reason || t.state !== "failed")) ? sickness(t, actions) : ""}`;

export function tablesPage() {
  const asked = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const view = { sort: SORTS.has(asked.get("sort")) ? asked.get("sort") : "worst", down: asked.get("down") === "1", shown: CHUNK, lags: new Map(), drawn: new Map(), loading: false };
  let overview = null;
  let root = null;
  let tools = null;

  const chosen = () => {
    const wanted = root.querySelector("#find").value.trim().toLowerCase();
    const state = root.querySelector("#state").value;
    const rows = overview.tables.filter((t) => t.path.toLowerCase().includes(wanted) && (!state || t.state === state));
    const value = SORTS.get(view.sort);
    // What has no value comes last, whichever way one sorts.
    const empty = (t) => (value(t) === null || value(t) === undefined ? 1 : 0);
    const by = (a, b) => empty(a) - empty(b) || (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (view.down ? -1 : 1);
    return rows.sort((a, b) => by(a, b) || (a.path < b.path ? -1 : 1));
  };

  const curveOf = (t) => {
    const held = view.lags.get(lagName(t));
    return held?.samples ? spark(held.samples, t.freshness_ms, overview.now_ms, `lag of ${text(t.path)} in the last hour`) : '<span class="soft">…</span>';
  };

  // One tbody for each side of a table; it is touched only when what it shows or where it stands changed.
  const place = (rows) => {
    const table = root.querySelector("#tables");
    const key = (t) => `${t.path}/${t.side}`;
    const wanted = new Set(rows.map(key));
    for (const [side, held] of view.drawn) if (!wanted.has(side)) { held.body.remove(); view.drawn.delete(side); }
    let before = table.querySelector("thead");
    for (const t of rows) {
      const html = row(t, curveOf(t), overview.actions);
      let held = view.drawn.get(key(t));
      if (!held) {
        held = { body: document.createElement("tbody"), html: "" };
        held.body.dataset.table = t.path;
        held.body.dataset.lag = lagName(t);
        view.drawn.set(key(t), held);
      }
      if (held.html !== html) { held.body.innerHTML = html; held.html = html; }
      if (before.nextElementSibling !== held.body) before.after(held.body);
      before = held.body;
    }
  };

  const draw = () => {
    if (!overview) return;
    root.querySelector("#tiles").innerHTML = tiles(overview.tiles);
    root.querySelector("#warnings").innerHTML = (overview.warnings ?? []).filter((w) => !ON_TILES.test(w)).slice(0, 5).map((w) => `<p class="warning">${text(w)}</p>`).join("");
    root.querySelector("#adoptions").innerHTML = (overview.adoptions ?? []).map((a) => `<p class="warning"><a href="#/table/${encodeURIComponent(a.path)}">${text(a.path)}</a> is being adopted: ${adopting(a)}</p>`).join("");
    root.querySelector("#new").hidden = !overview.actions.includes("create");
    const rows = chosen();
    place(rows.slice(0, view.shown));
    const none = root.querySelector("#none");
    none.hidden = rows.length > 0;
    none.innerHTML = overview.tables.length ? "No table matches." : 'No tables yet. Make one with <span class="mono">lakeward table create</span>.';
    const tables = (list) => new Set(list.map((t) => t.path)).size;
    root.querySelector("#count").textContent = `${count(tables(rows))} of ${count(tables(overview.tables))} tables`;
    root.querySelectorAll("th button").forEach((b) => b.closest("th").setAttribute("aria-sort", b.dataset.sort === view.sort ? (view.down ? "descending" : "ascending") : "none"));
    root.querySelectorAll("th button").forEach((b) => { b.textContent = b.dataset.label + (b.dataset.sort === view.sort ? (view.down ? " ↓" : " ↑") : ""); });
    loadLags();
  };

  // Search, state and order stand in the address: a page can be sent to somebody, and reloading keeps it.
  const remember = () => {
    const said = { find: root.querySelector("#find").value.trim(), state: root.querySelector("#state").value, sort: view.sort === "worst" ? "" : view.sort, down: view.down ? "1" : "" };
    const words = new URLSearchParams(Object.entries(said).filter(([, value]) => value)).toString();
    history.replaceState(null, "", words ? `#/?${words}` : "#/");
  };

  const inSight = () => {
    const [top, bottom] = [-200, window.innerHeight + 200];
    return [...view.drawn.values()].filter(({ body }) => { const box = body.getBoundingClientRect(); return box.top < bottom && box.bottom > top; }).map(({ body }) => body.dataset.lag);
  };

  const loadLags = async () => {
    if (view.loading) return;
    const old = inSight().filter((name) => Date.now() - (view.lags.get(name)?.at ?? 0) > LAG_EVERY_MS).slice(0, LAGS_AT_ONCE);
    if (!old.length) return;
    view.loading = true;
    try {
      const { lags } = await api.lags(old);
      for (const name of old) view.lags.set(name, { at: Date.now(), samples: lags[name] ?? [] });
      if (root.isConnected) place(chosen().slice(0, view.shown));
    } catch { /* the frame says when contact is lost */ } finally { view.loading = false; }
  };

  const onScroll = () => {
    if (!root.isConnected) { window.removeEventListener("scroll", onScroll); return; }
    if (!overview) return;
    const near = window.innerHeight + window.scrollY > document.body.scrollHeight - 800;
    if (near && view.shown < overview.tables.length) { view.shown += CHUNK; place(chosen().slice(0, view.shown)); }
    loadLags();
  };

  return {
    mount(page, given) {
      tools = given;
      root = document.createElement("div");
      page.append(root);
      const states = Object.keys(ORDER).map((s) => `<option value="${s}">${s === "scheduled" ? "fresh, or due later" : s}</option>`).join("");
      root.innerHTML = `<div class="tiles" id="tiles"></div><div id="warnings"></div><div id="adoptions"></div><section class="card">
        <div class="bar"><h1>Tables</h1><input id="find" type="search" placeholder="Find a table" aria-label="Find a table">
          <select id="state" aria-label="State"><option value="">all states</option>${states}</select><select id="sort" class="narrow" aria-label="Sort by"><option value="worst">worst first</option>${COLUMNS.filter((c) => c[2]).map(([key, label]) => `<option value="${key}"${key === view.sort ? " selected" : ""}>by ${label.toLowerCase()}</option>`).join("")}</select><span class="count" id="count"></span><a href="#/new" id="new" hidden>New table</a></div>
        <div class="scroll"><table class="cards" id="tables"><thead><tr>${COLUMNS.map(([key, label, value, num]) => `<th class="${num ? "num" : ""}">${value ? `<button data-sort="${key}" data-label="${label}">${label}</button>` : label}</th>`).join("")}</tr></thead></table></div>
        <p class="empty" id="none" hidden></p></section>`;
      root.querySelector("#find").value = asked.get("find") ?? "";
      root.querySelector("#state").value = asked.get("state") ?? "";
      root.querySelector("#find").addEventListener("input", () => { view.shown = CHUNK; remember(); draw(); });
      root.querySelector("#find").addEventListener("keydown", (event) => {
        const rows = event.key === "Enter" && overview ? chosen() : [];
        if (rows.length === 1) location.hash = `#/table/${encodeURIComponent(rows[0].path)}`;
      });
      root.querySelector("#state").addEventListener("change", () => { remember(); draw(); });
      root.querySelector("#sort").addEventListener("change", (event) => { view.sort = event.target.value; view.down = !["path", "state", "worst"].includes(view.sort); remember(); draw(); });
      root.querySelectorAll("th button").forEach((b) => b.addEventListener("click", () => {
        view.down = view.sort === b.dataset.sort ? !view.down : false;
        view.sort = b.dataset.sort;
        remember();
        draw();
      }));
      root.querySelector("#tables").addEventListener("click", (event) => {
        const name = event.target.dataset?.resume;
        if (name) tools.resume(name);
      });
      window.addEventListener("scroll", onScroll, { passive: true });
    },
    update(next) { overview = next; draw(); },
  };
}
