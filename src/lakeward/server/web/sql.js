// A SELECT over tables: it reads only, within the server's limits, what the token may read.
import { api } from "./api.js";
import { text } from "./format.js";
import { rowTable } from "./rowtable.js";

export function sqlPage(asked) {
  let root = null;
  const show = (html) => { root.querySelector("#answer").innerHTML = html; };

  const run = async () => {
    const query = root.querySelector("#query").value.trim();
    if (!query) return;
    const button = root.querySelector("#run");
    button.disabled = true;
    show('<p class="empty">Running</p>');
    const asOf = root.querySelector("#as-of").value.trim();
    try {
      const answer = await api.sql({ query, mode: root.querySelector("#mode").value, as_of: asOf || null, rows: Number(root.querySelector("#limit").value) });
      const cut = answer.cut ? `<p class="warning">Only the first ${answer.rows.length} rows are shown.</p>` : "";
      show(`${cut}${rowTable(answer, "No rows.")}<p class="soft">${answer.notes.map(text).join("<br>")}</p>`);
    } catch (error) {
      show(`<pre class="over" role="alert">${text(error.message)}</pre>`);
    } finally { button.disabled = false; }
  };

  return {
    mount(page) {
      root = document.createElement("div");
      page.append(root);
      root.innerHTML = `<section class="card"><h1>SQL</h1>
        <p class="soft">One SELECT over tables as database.table. It reads, and changes nothing; large ones are for <span class="mono">lakeward sql</span> or an engine over the catalog.</p>
        <textarea id="query" rows="6" spellcheck="false" aria-label="Query" placeholder="SELECT * FROM shop.orders LIMIT 20"></textarea>
        <div class="bar"><button id="run" class="primary" type="button">Run</button>
          <select id="mode" aria-label="Which rows"><option value="union">lake and hot store</option><option value="lake">lake alone</option><option value="hot">hot store alone</option></select>
          <input id="as-of" placeholder="as of: a snapshot or a time" aria-label="As of">
          <select id="limit" aria-label="Rows at most"><option>50</option><option selected>200</option><option>1000</option></select></div>
        <div id="answer" aria-live="polite"></div></section>`;
      root.querySelector("#query").value = asked.get("q") ?? "";
      root.querySelector("#as-of").value = asked.get("as-of") ?? "";
      root.querySelector("#run").addEventListener("click", run);
      root.querySelector("#query").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(); });
    },
    update() {},
  };
}
