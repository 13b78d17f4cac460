// What tables cost: processor time, bytes written and bytes rewritten, per day.
import { api } from "./api.js";
import { bytes, count, text } from "./format.js";

const EVERY_MS = 30000;
const FIGURES = ["rounds", "cpu_s", "written", "rewritten", "rows"];
const nothing = () => Object.fromEntries(FIGURES.map((name) => [name, 0]));

// Rounds write, compactions rewrite; one line for a table and day, however many sides it has.
function sums(entries) {
  const days = new Map();
  for (const e of entries) {
    const day = days.get(e.day) ?? { all: nothing(), tables: new Map() };
    const table = day.tables.get(e.path) ?? nothing();
    for (const to of [day.all, table]) {
      to.rounds += e.rounds;
      to.cpu_s += e.cpu_s;
      to[e.kind === "compact" ? "rewritten" : "written"] += e.bytes_written;
      to.rows += e.kind === "compact" ? 0 : e.rows;
    }
    day.tables.set(e.path, table);
    days.set(e.day, day);
  }
  return days;
}

const figures = (s) => `<td class="num" data-label="CPU">${s.cpu_s < 10 ? s.cpu_s.toFixed(2) : count(Math.round(s.cpu_s))} s</td><td class="num" data-label="Written">${bytes(s.written)}</td><td class="num" data-label="Rewritten">${bytes(s.rewritten)}</td><td class="num" data-label="Rows">${count(s.rows)}</td><td class="num" data-label="Rounds">${count(s.rounds)}</td>`;

export function costPage() {
  let root = null;
  let loadedAt = 0;
  const load = async () => {
    loadedAt = Date.now();
    const { days } = await api.cost(root.querySelector("#days").value);
    if (!root.isConnected) return;
    const rows = [...sums(days)].map(([day, { all, tables }]) => `<tr class="sum"><td><b>${text(day)}</b></td><td>all tables</td>${figures(all)}</tr>${[...tables].sort((a, b) => b[1].cpu_s - a[1].cpu_s).map(([path, s]) => `<tr><td class="soft">${text(day)}</td><td><a href="#/table/${encodeURIComponent(path)}">${text(path)}</a></td>${figures(s)}</tr>`).join("")}`).join("");
    root.querySelector("#cost").innerHTML = rows ? `<div class="scroll"><table class="cards"><thead><tr><th>Day (UTC)</th><th>Table</th><th class="num">CPU</th><th class="num">Written</th><th class="num">Rewritten</th><th class="num">Rows</th><th class="num">Rounds</th></tr></thead><tbody>${rows}</tbody></table></div>`
      : '<p class="empty">No round has ended yet.</p>';
  };
  const show = () => load().catch((error) => { root.querySelector("#cost").innerHTML = `<p class="empty">${text(error.message)}</p>`; });
  return {
    mount(page) {
      root = document.createElement("div");
      page.append(root);
      root.innerHTML = `<section class="card"><div class="bar"><h1>Cost</h1><select id="days" aria-label="Days"><option value="7">7 days</option><option value="30">30 days</option><option value="90">90 days</option></select></div>
        <p class="soft">Processor time is that of the threads that planned, wrote and committed; rounds that failed are left out.</p><div id="cost"><p class="empty">Loading</p></div></section>`;
      root.querySelector("#days").addEventListener("change", show);
    },
    update() { if (Date.now() - loadedAt > EVERY_MS) show(); },
  };
}
