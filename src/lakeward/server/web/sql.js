// A SELECT over tables, within the server's limits, of what the token may read; or an ALTER TABLE, which shows its plan.
import { api } from "./api.js";
import { text } from "./format.js";
import { rowTable } from "./rowtable.js";

const SHOWN = 200;
const quoted = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

export function sqlPage(asked) {
  let root = null;
  let listed = "";
  const show = (html) => { root.querySelector("#answer").innerHTML = html; };

  const run = async () => {
    const query = root.querySelector("#query").value.trim();
    if (!query) return;
    const button = root.querySelector("#run");
    button.disabled = true;
    show('<p class="empty">Running</p>');
    const asOf = root.querySelector("#as-of").value.trim();
    try {
      const answer = await api.sql({ query, mode: root.querySelector("#mode").value, as_of: asOf || null, as_of_schema: Boolean(asOf) && root.querySelector("#past").checked, rows: Number(root.querySelector("#limit").value) });
      const cut = answer.cut ? `<p class="warning">Only the first ${answer.rows.length} rows are shown.</p>` : "";
      show(`${cut}${rowTable(answer, "No rows.")}<p class="soft">${answer.notes.map(text).join("<br>")}</p>`);
    } catch (error) {
      show(`<pre class="over" role="alert">${text(error.message)}</pre>`);
    } finally { button.disabled = false; }
  };

  // Columns are asked for when somebody wants to see them.
  const open = async (details) => {
    const list = details.querySelector("ul");
    if (!details.open || list.childElementCount) return;
    try {
      const { table } = await api.info(details.dataset.path);
      list.innerHTML = table.descriptor.schema.columns.map((c) => `<li>${text(c.name)} <span class="soft">${text(c.type)}</span></li>`).join("");
    } catch (error) { list.innerHTML = `<li class="over">${text(error.message)}</li>`; }
  };

  return {
    mount(page) {
      root = document.createElement("div");
      page.append(root);
      root.innerHTML = `<section class="card"><h1>SQL</h1>
        <p class="soft">One SELECT over tables as database.table, or an ALTER TABLE, which shows its plan (with EXPLAIN in front nothing changes). Large queries are for <span class="mono">lakeward sql</span> or an engine over the catalog.</p>
        <div class="sql"><textarea id="query" rows="6" spellcheck="false" aria-label="Query"></textarea><aside id="names" aria-label="Tables and their columns"></aside></div>
        <div class="bar"><button id="run" class="primary" type="button">Run</button>
          <select id="mode" aria-label="Which rows"><option value="union">lake and hot store</option><option value="lake">lake alone</option><option value="hot">hot store alone</option></select>
          <input id="as-of" placeholder="as of: a snapshot or a time" aria-label="As of">
          <label class="soft"><input id="past" type="checkbox"> with the columns of then</label>
          <select id="limit" aria-label="Rows at most"><option>50</option><option selected>200</option><option>1000</option></select></div>
        <div id="answer" aria-live="polite"></div></section>`;
      root.querySelector("#query").value = asked.get("q") ?? "";
      root.querySelector("#as-of").value = asked.get("as-of") ?? "";
      root.querySelector("#run").addEventListener("click", run);
      root.querySelector("#names").addEventListener("toggle", (event) => open(event.target), true);
      root.querySelector("#query").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(); });
    },
    update(overview) {
      const paths = [...new Set(overview.tables.map((t) => t.path))].slice(0, SHOWN);
      if (paths.join() === listed) return;
      listed = paths.join();
      root.querySelector("#names").innerHTML = paths.map((p) => `<details data-path="${text(p)}"><summary>${text(p)}</summary><ul></ul></details>`).join("") || '<p class="soft">No tables yet.</p>';
      const query = root.querySelector("#query");
      if (!query.value && paths.length) query.value = `SELECT * FROM ${paths[0].split(".").map(quoted).join(".")} LIMIT 20`;
    },
  };
}
