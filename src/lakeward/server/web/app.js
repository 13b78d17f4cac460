// The page's frame: routes, polling, contact, theme, questions. Each page draws itself from the newest overview.
import { api, token } from "./api.js";
import { costPage } from "./cost.js";
import { createPage } from "./create.js";
import { clock, duration, readDuration, text } from "./format.js";
import { jobsPage } from "./jobs.js";
import { logPage } from "./log.js";
import { maintenancePage } from "./maintenance.js";
import { roundsPage } from "./rounds.js";
import { sqlPage } from "./sql.js";
import { tablePage } from "./table.js";
import { tablesPage } from "./tables.js";

const POLL_MS = 2000;
const STALE_MS = 10000;
const page = document.getElementById("page");
const state = { overview: null, heardAt: 0, view: null, failing: null, asked: false, needsToken: false, timer: null, version: "", tables: new Map() };

const ROUTES = [
  [/^#\/table\/([^?]+)(?:\?(.*))?$/, (m) => tablePage(decodeURIComponent(m[1]), new URLSearchParams(m[2])), "tables"],
  [/^#\/new$/, () => createPage(), "tables"],
  [/^#\/sql(?:\?(.*))?$/, (m) => sqlPage(new URLSearchParams(m[1])), "sql"],
  [/^#\/maintenance$/, () => maintenancePage(), "maintenance"],
  [/^#\/cost$/, () => costPage(), "cost"],
  [/^#\/log$/, () => logPage(), "log"],
  [/^#\/jobs$/, () => jobsPage(), "jobs"],
  [/^#\/rounds$/, () => roundsPage(), "rounds"],
  [/^/, () => tablesPage(), "tables"],
];

// Resolves to null when the answer is no, else to true or to the secret that was typed.
function ask(words, { secret = false, typed = null, yes = "OK" } = {}) {
  const dialog = document.getElementById("ask");
  const input = document.getElementById("ask-input");
  document.getElementById("ask-text").textContent = words;
  document.getElementById("ask-yes").textContent = yes;
  input.hidden = !secret && typed === null;
  input.type = secret ? "password" : "text";
  input.setAttribute("aria-label", secret ? "Token" : "Value");
  input.value = typed ?? "";
  dialog.returnValue = "";
  dialog.showModal();
  if (!input.hidden) input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" ? (input.hidden ? true : input.value) : null), { once: true });
  });
}

async function act(words, yes, call) {
  if (!(await ask(words, { yes }))) return;
  try { await call(); } catch (error) { await ask(`That did not work: ${error.message}`, { yes: "Close" }); }
  poll();
}

// What would break is asked before anything is changed.
async function foresee(name, freshness) {
  const after = await api.admission({ [name]: freshness });
  const late = after.rows.filter((r) => r.misses || !r.feasible).map((r) => r.table);
  return late.length ? `Then ${late.slice(0, 5).join(", ")}${late.length > 5 ? ` and ${late.length - 5} more` : ""} would be late. ${after.words}` : `Every table would keep its freshness. ${after.words}`;
}

async function alterFreshness(name, now) {
  const given = await ask(`How long may a row of ${name} wait? As 30 s, 5 min or 1 h.`, { typed: now, yes: "What if?" });
  if (!given) return;
  const wait = readDuration(given);
  if (wait === null) { await ask(`${given} is no time; write it as 30 s, 5 min or 1 h.`, { yes: "Close" }); return; }
  try {
    await act(`${await foresee(name, wait)} Set ${given.trim()} for ${name}?`, "Set it", () => api.alter(name, { "table.datalake.freshness": given.trim() }));
  } catch (error) { await ask(`That did not work: ${error.message}`, { yes: "Close" }); }
}

// A page of one side acts on it alone; that of a table on all of its sides.
const called = (name, side) => (side ? `${name} in lake ${side}` : name);

const tools = {
  ask,
  act,
  foresee,
  freshness: alterFreshness,
  resume: (name, side) => act(`Resume ${called(name, side)}? Its next round starts as soon as it is due; if the cause is still there it will stop again.`, "Resume", () => api.resume(name, side)),
  tierNow: (name, side) => act(`Bring every row of ${called(name, side)} into the lake now? The next free slot takes it, before others that are due.`, "Tier now", () => api.tierNow(name, side)),
  compact: (name, side) => act(`Compact the lake files of ${called(name, side)} now? It takes the next free slot.`, "Compact now", () => api.compact(name, side)),
  resync: (name, side) => act(`Resync ${called(name, side)}? Its next round makes the lake equal to the hot store: rows that only the lake has, and that a primary key does not keep, are deleted there.`, "Resync", () => api.resync(name, side)),
  pause: (name, side) => act(`Pause ${called(name, side)}? Rows stay in the hot store and the lake stands still until you resume it.`, "Pause", () => api.pause(name, side)),
};

function route() {
  const hash = location.hash || "#/";
  const [pattern, make, name] = ROUTES.find(([p]) => p.test(hash));
  document.querySelectorAll("nav a").forEach((a) => a.classList.toggle("here", a.dataset.page === name));
  page.replaceChildren();
  state.view = make(hash.match(pattern));
  state.view.mount(page, tools);
  if (state.overview) state.view.update(state.overview);
  window.scrollTo(0, 0);
}

function showContact() {
  const silent = Date.now() - state.heardAt;
  const lost = state.heardAt === 0 ? state.failing !== null : silent > STALE_MS || (state.failing !== null && silent > POLL_MS * 2);
  const box = document.getElementById("contact");
  box.classList.toggle("live", !lost && state.heardAt > 0);
  box.classList.toggle("dead", lost);
  document.body.classList.toggle("stale", lost);
  document.getElementById("contact-text").textContent = lost ? "no contact" : state.heardAt ? `live, ${clock(state.heardAt)} UTC` : "connecting";
  const bar = document.getElementById("lost");
  bar.hidden = !lost;
  document.getElementById("give-token").hidden = !(lost && state.needsToken);
  if (!lost) return;
  const since = state.heardAt ? `What you see is ${duration(silent)} old.` : "Nothing has been heard yet.";
  const why = state.needsToken ? "The server wants a token." : `The server does not answer (${text(state.failing ?? "no reply")}).`;
  document.getElementById("lost-text").innerHTML = `${why} ${since} Trying again every ${POLL_MS / 1000} s.`;
}

async function askToken() {
  state.asked = true;
  const words = token.get() ? "The server did not accept that token. Another one?" : "This server wants a token. It is kept in this tab only.";
  const given = await ask(words, { secret: true, yes: "Use it" });
  if (!given) return;
  token.set(given);
  state.version = "";
  state.asked = false;
  poll();
}

// The server sends tables that changed since the last answer, with moments in place of what grows by itself.
function merge(answer) {
  if (answer.whole) state.tables.clear();
  for (const name of answer.gone) state.tables.delete(name);
  for (const t of answer.tables) state.tables.set(`${t.path}/${t.side}`, t);
  state.version = answer.version;
  const tables = [...state.tables.values()].map((t) => ({
    ...t,
    lag_ms: t.waits_since_ms === null ? 0 : Math.max(0, answer.now_ms - t.waits_since_ms),
    slack_ms: t.start_by_ms === null ? null : t.start_by_ms - answer.now_ms,
  }));
  return { ...answer, tables };
}

async function poll() {
  clearTimeout(state.timer);
  try {
    const overview = merge(await api.overview(state.version));
    Object.assign(state, { overview, heardAt: Date.now(), failing: null, needsToken: false, asked: false });
    document.querySelectorAll("nav [data-needs]").forEach((a) => { a.hidden = !overview.actions.includes(a.dataset.needs); });
    state.view?.update(overview);
  } catch (error) {
    state.failing = error.message;
    state.needsToken = error.status === 401;
    // Once: who says no is not asked every two seconds, the bar has a button.
    if (state.needsToken && !state.asked && !document.getElementById("ask").open) askToken();
  }
  showContact();
  clearTimeout(state.timer);
  state.timer = setTimeout(poll, document.hidden ? POLL_MS * 5 : POLL_MS);
}

function theme(next) {
  document.documentElement.dataset.theme = next;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
theme(localStorage.getItem("lakeward-theme") ?? (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => { if (!localStorage.getItem("lakeward-theme")) theme(dark.matches ? "dark" : "light"); });
document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("lakeward-theme", next);
  theme(next);
});
document.getElementById("give-token").addEventListener("click", askToken);
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
window.addEventListener("hashchange", route);
setInterval(showContact, 1000);
route();
poll();
