// The server's newest log lines.
import { api } from "./api.js";
import { clock, text } from "./format.js";

const EVERY_MS = 4000;

export function logPage() {
  let root = null;
  let loadedAt = 0;
  let drawn = "";
  const load = async () => {
    loadedAt = Date.now();
    const { lines } = await api.log(root.querySelector("#level").value);
    const rows = lines.map((l) => `<tr class="${l.level === "error" || l.level === "critical" ? "sick" : l.level === "warning" ? "still" : ""}"><td>${clock(l.at_ms)}</td><td>${text(l.level)}</td><td class="soft" data-label="From">${text(l.from)}</td><td class="wide said">${text(l.words)}</td></tr>`).join("");
    const html = rows ? `<div class="scroll"><table class="cards"><thead><tr><th>At</th><th>Level</th><th>From</th><th>Said</th></tr></thead><tbody>${rows}</tbody></table></div>` : '<p class="empty">Nothing of that kind since the server started.</p>';
    if (html !== drawn && root.isConnected) { root.querySelector("#lines").innerHTML = html; drawn = html; }
  };
  const show = () => load().catch((error) => { drawn = ""; root.querySelector("#lines").innerHTML = `<p class="empty">${text(error.message)}</p>`; });
  return {
    mount(page) {
      root = document.createElement("div");
      page.append(root);
      root.innerHTML = `<section class="card"><div class="bar"><h1>Log of the server</h1><select id="level" aria-label="Level"><option value="all">everything</option><option value="warning">warnings and errors</option><option value="error">errors</option></select></div><div id="lines"><p class="empty">Loading</p></div></section>`;
      root.querySelector("#level").addEventListener("change", show);
    },
    update() { if (Date.now() - loadedAt > EVERY_MS) show(); },
  };
}
