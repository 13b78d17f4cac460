// Rows that the server sent as texts: a sample, or the answer to a query.
import { text } from "./format.js";

export function rowTable(answer, empty) {
  if (!answer.rows.length) return `<p class="empty">${text(empty)}</p>`;
  const head = answer.columns.map((c) => `<th class="${c.number ? "num" : ""}" title="${text(c.type)}">${text(c.name)}</th>`).join("");
  const cell = (value, c) => `<td class="${c.number ? "num" : ""}">${value === null ? '<span class="soft">NULL</span>' : text(value)}</td>`;
  const rows = answer.rows.map((row) => `<tr>${row.map((value, n) => cell(value, answer.columns[n])).join("")}</tr>`).join("");
  return `<div class="scroll rows" tabindex="0" role="region" aria-label="rows"><table><thead><tr>${head}</tr></thead><tbody>${rows}</tbody></table></div>`;
}
