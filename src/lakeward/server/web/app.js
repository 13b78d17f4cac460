// The page's frame: routes, polling, contact, theme. Each page draws itself from the newest overview.
import { api, token } from "./api.js";
import { clock, duration, text } from "./format.js";
import { jobsPage } from "./jobs.js";
import { roundsPage } from "./rounds.js";
import { tablePage } from "./table.js";
import { tablesPage } from "./tables.js";

const POLL_MS = 2000;
const STALE_MS = 10000;
const page = document.getElementById("page");
const state = { overview: null, heardAt: 0, view: null, failing: null };

const ROUTES = [
  [/^#\/table\/(.+)$/, (m) => tablePage(decodeURIComponent(m[1])), "tables"],
  [/^#\/jobs$/, () => jobsPage(), "jobs"],
  [/^#\/rounds$/, () => roundsPage(), "rounds"],
  [/^/, () => tablesPage(), "tables"],
];

export function ask(words, { secret = false, yes = "OK" } = {}) {
  const dialog = document.getElementById("ask");
  const input = document.getElementById("ask-input");
  document.getElementById("ask-text").textContent = words;
  document.getElementById("ask-yes").textContent = yes;
  input.hidden = !secret;
  input.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" ? (secret ? input.value : true) : null), { once: true });
  });
}

function route() {
  const hash = location.hash || "#/";
  const [pattern, make, name] = ROUTES.find(([p]) => p.test(hash));
  document.querySelectorAll("nav a").forEach((a) => a.classList.toggle("here", a.dataset.page === name));
  page.replaceChildren();
  state.view = make(hash.match(pattern));
  state.view.mount(page, { ask });
  if (state.overview) state.view.update(state.overview);
  window.scrollTo(0, 0);
}

function showContact() {
  const silent = Date.now() - state.heardAt;
  const lost = state.heardAt === 0 ? state.failing !== null : silent > STALE_MS;
  const box = document.getElementById("contact");
  box.classList.toggle("live", !lost && state.heardAt > 0);
  box.classList.toggle("dead", lost);
  document.body.classList.toggle("stale", lost);
  document.getElementById("contact-text").textContent = lost ? "no contact" : state.heardAt ? `live, ${clock(state.heardAt)}` : "connecting";
  const bar = document.getElementById("lost");
  bar.hidden = !lost;
  if (lost) {
    const since = state.heardAt ? `What you see is ${duration(silent)} old.` : "Nothing has been heard yet.";
    bar.innerHTML = `The server does not answer (${text(state.failing ?? "no reply")}). ${since} Trying again every ${POLL_MS / 1000} s.`;
  }
}

async function poll() {
  try {
    const overview = await api.overview();
    state.overview = overview;
    state.heardAt = Date.now();
    state.failing = null;
    state.view?.update(overview);
  } catch (error) {
    state.failing = error.message;
    if (error.status === 401) {
      const given = await ask("This server wants a token.", { secret: true, yes: "Use it" });
      if (given) token.set(given);
    }
  }
  showContact();
  setTimeout(poll, document.hidden ? POLL_MS * 5 : POLL_MS);
}

function theme(next) {
  document.documentElement.dataset.theme = next;
  localStorage.setItem("lakeward-theme", next);
}

const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
theme(localStorage.getItem("lakeward-theme") ?? dark);
document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
window.addEventListener("hashchange", route);
setInterval(showContact, 1000);
route();
poll();
