// What compaction has to do, table by table: files that need not be there, deletes, and the last compaction.
import { api } from "./api.js";
import { bytes, clock, count, counted, text } from "./format.js";

const EVERY_MS = 10000;

const last = (r) => (r ? `${clock(r.ended_at_ms)}: ${r.outcome === "failed" ? `<span class="over">${text(r.error?.message ?? "failed")}</span>` : `${count(r.files_replaced)} files → ${count(r.files)}, ${bytes(r.bytes_written)} rewritten`}` : '<span class="soft">none yet</span>');

export function maintenancePage() {
  let root = null;
  let loadedAt = 0;
  let drawn = "";

  const load = async () => {
    const { tables } = await api.maintenance();
    const sum = (key) => tables.reduce((all, t) => all + (t[key] ?? 0), 0);
    const rows = tables.map((t) => `<tr data-table="${text(t.path)}">
      <td><a href="#/table/${encodeURIComponent(t.path)}">${text(t.path)}</a>${t.side === "default" ? "" : ` <span class="soft">${text(t.side)}</span>`}</td>
      <td class="num" data-label="Files">${count(t.files)}</td><td class="num" data-label="Delete files">${count(t.delete_files)}</td>
      <td class="num" data-label="To merge">${count(t.debt_files)}</td><td class="num" data-label="Size">${bytes(t.bytes)}</td><td class="num" data-label="Snapshots">${count(t.snapshots)}</td>
      <td class="wide" data-label="Last compaction">${t.job ? `${text(t.job)} compacts it now` : last(t.last)}</td><td class="num" data-label="Failures">${count(t.failures)}</td>
      <td><button data-compact="${text(t.path)}"${t.state === "disabled" || t.state === "paused" ? " disabled" : ""}>Compact now</button></td></tr>`).join("");
    const html = rows ? `<p class="words">${counted(sum("debt_files"), "file")} to merge, as the last compactions saw it; in all ${counted(sum("files"), "data file")} and ${counted(sum("delete_files"), "delete file")}, ${bytes(sum("bytes"))}.</p>
      <div class="scroll"><table class="cards"><thead><tr><th>Table</th><th class="num">Files</th><th class="num">Delete files</th><th class="num">To merge</th><th class="num">Size</th><th class="num">Snapshots</th><th>Last compaction</th><th class="num">Failures</th><th>Do</th></tr></thead><tbody>${rows}</tbody></table></div>`
      : '<p class="empty">No table is there yet.</p>';
    if (html !== drawn && root.isConnected) { root.querySelector("#debt").innerHTML = html; drawn = html; }
  };

  return {
    mount(page, tools) {
      root = document.createElement("div");
      page.append(root);
      root.innerHTML = '<section class="card"><h1>Maintenance debt</h1><div id="debt"><p class="empty">Loading</p></div></section>';
      root.querySelector("#debt").addEventListener("click", async (event) => {
        const name = event.target.dataset?.compact;
        if (name) { await tools.compact(name); loadedAt = 0; }
      });
    },
    update() {
      if (Date.now() - loadedAt < EVERY_MS) return;
      loadedAt = Date.now();
      load().catch((error) => { root.querySelector("#debt").innerHTML = `<p class="empty">${text(error.message)}</p>`; });
    },
  };
}
