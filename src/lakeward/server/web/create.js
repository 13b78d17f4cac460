// A new table: what it is, whether its freshness can be kept, and a question before it is made.
import { api } from "./api.js";
import { readDuration } from "./format.js";

export function createPage() {
  let root = null;
  let tools = null;
  const value = (id) => root.querySelector(id).value.trim();

  const make = async () => {
    const name = value("#name");
    const asked = { columns: value("#columns"), primary_key: value("#key"), partition_by: value("#partition"), buckets: Number(value("#buckets") || 1), freshness: value("#freshness") || null };
    const wait = asked.freshness === null ? null : readDuration(asked.freshness);
    if (asked.freshness !== null && wait === null) { await tools.ask(`${asked.freshness} is no time; write it as 30 s, 5 min or 1 h.`, { yes: "Close" }); return; }
    const foreseen = wait === null ? "" : `${await tools.foresee(name, wait)} `;
    await tools.act(`${foreseen}Create ${name}?`, "Create", async () => {
      await api.define(name, asked);
      location.hash = `#/table/${encodeURIComponent(name)}`;
    });
  };

  return {
    mount(page, given) {
      [root, tools] = [document.createElement("div"), given];
      page.append(root);
      root.innerHTML = `<section class="card"><h1>New table</h1><form id="create" class="form">
        <label>Name <input id="name" required pattern="[^.\\s]+\\.[^.\\s]+" placeholder="shop.orders" title="database.table"></label>
        <label>Columns <textarea id="columns" required rows="5" spellcheck="false" placeholder="id bigint not null, total decimal(10, 2), at timestamp_ltz(3)"></textarea></label>
        <label>Primary key <input id="key" placeholder="id; empty: rows are only added"></label>
        <label>Partitioned by <input id="partition" placeholder="empty: it is not; a column, day(ts)"></label>
        <label>Buckets <input id="buckets" type="number" min="1" max="10000" value="1"></label>
        <label>Freshness <input id="freshness" placeholder="30 s, 5 min; empty: the server's"></label>
        <button class="primary" type="submit">Create</button></form></section>`;
      root.querySelector("#create").addEventListener("submit", (event) => {
        event.preventDefault();
        make().catch((error) => tools.ask(`That did not work: ${error.message}`, { yes: "Close" }));
      });
    },
    update() {},
  };
}
