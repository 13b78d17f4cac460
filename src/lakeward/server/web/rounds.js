// Rounds as a timeline: each bar split into wait, plan, write, resolve, commit.
import { api } from "./api.js";
import { bytes, count, duration, moment, short, text } from "./format.js";

export const PHASES = [["wait", "wait_s"], ["plan", "plan_s"], ["write", "write_s"], ["resolve", "resolve_s"], ["commit", "commit_s"]];

const total = (r) => PHASES.reduce((sum, [, key]) => sum + (r.phases?.[key] ?? 0), 0);

// A round that was far slower than the rest fills its bar and does not make the others vanish.
const scale = (totals) => Math.min(Math.max(...totals), 4 * [...totals].sort((a, b) => a - b)[Math.floor(totals.length / 2)]);

export function phaseBar(round, longest) {
  const width = Math.min(100, Math.max(2, total(round) / (longest || 1) * 100));
  // Milliseconds: shares that add up to less than 1 would leave a part of the bar empty.
  const parts = PHASES.map(([name, key]) => {
    const s = round.phases?.[key] ?? 0;
    return s > 0 ? `<span class="${name}" style="flex:${s * 1000}" title="${name} ${duration(s * 1000)}"></span>` : "";
  }).join("");
  const isCut = total(round) > (longest || 1);
  return `<div class="phases${isCut ? " cut" : ""}" style="width:${width}%"${isCut ? ` title="longer than shown: ${duration(total(round) * 1000)}"` : ""}>${parts}${isCut ? '<b aria-label="longer than shown">»</b>' : ""}</div>`;
}

const phaseWords = (r) => PHASES.map(([name, key]) => `${name} ${duration((r.phases?.[key] ?? 0) * 1000)}`).join(", ");

export const legend = `<div class="legend">${PHASES.map(([name]) => `<span><i class="${name}"></i>${name}</span>`).join("")}</div>`;

// Rounds of the one side that most tables have need no words; other work says what it was, and where.
const special = (r) => [r.kind === "tier" ? "" : r.kind, r.side === "default" ? "" : r.side, r.read_with?.length ? `read with ${r.read_with.join(", ")}` : ""].filter(Boolean).map((word) => ` <span class="soft">${text(word)}</span>`).join("");

export function roundsTable(rounds, withTable) {
  if (!rounds.length) return '<p class="empty">No round has ended yet.</p>';
  const longest = scale(rounds.map(total));
  const rows = rounds.map((r) => `<tr class="${r.outcome === "failed" ? "sick" : ""}">
      <td>${moment(r.ended_at_ms)}</td>
      ${withTable ? `<td><a href="#/table/${encodeURIComponent(r.path)}">${text(r.path)}</a></td>` : ""}
      <td><span class="state ${r.outcome === "failed" ? "failed" : ""}">${text(r.outcome)}</span>${special(r)}</td>
      <td class="wide bar-cell" title="${phaseWords(r)}">${phaseBar(r, longest)}</td>
      <td class="num" data-label="Took">${duration(total(r) * 1000)}</td>
      <td class="num" data-label="Rows">${count(r.rows)}</td><td class="num" data-label="Deletes">${count(r.deletes)}</td><td class="num" data-label="Written">${bytes(r.bytes_written)}</td><td class="num" data-label="Files">${r.files_replaced ? `${count(r.files_replaced)} → ` : ""}${count(r.files)}</td>
      <td class="soft" data-label="Job">${text(r.job)}</td><td class="mono soft" data-label="Round" title="${text(r.round_id)}">${short(r.round_id)}</td></tr>
      ${r.error ? `<tr class="reason sick"><td colspan="11">${text(r.error.message)}</td></tr>` : ""}`).join("");
  return `<div class="scroll"><table class="cards"><thead><tr><th>Ended (UTC)</th>${withTable ? "<th>Table</th>" : ""}<th>Outcome</th><th>Phases</th><th class="num">Took</th><th class="num">Rows</th><th class="num">Deletes</th><th class="num">Written</th><th class="num">Files</th><th>Job</th><th>Round</th></tr></thead><tbody>${rows}</tbody></table></div>${legend}`;
}

export function roundsPage() {
  let root = null;
  let drawn = "";
  const load = async () => {
    const html = roundsTable((await api.rounds(null, 100)).rounds, true);
    if (html !== drawn && root.isConnected) { root.querySelector("#rounds").innerHTML = html; drawn = html; }
  };
  return {
    mount(page) { root = page; page.innerHTML = '<section class="card"><h1>Rounds, newest first</h1><div id="rounds"><p class="empty">Loading</p></div></section>'; },
    update() { load().catch(() => {}); },
  };
}
