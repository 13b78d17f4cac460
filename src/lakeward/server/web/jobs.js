// Jobs: who is there, who should be, and what each is doing now.
import { api } from "./api.js";
import { bytes, clock, count, duration, moment, text } from "./format.js";

const ERRORS_EVERY_MS = 10000;

const progress = (job) => job.working_on.map((path) => {
  const p = job.progress?.[path] ?? {};
  const share = p.splits_total ? p.splits_done / p.splits_total * 100 : 0;
  return `<div><a href="#/table/${encodeURIComponent(path)}">${text(path)}</a> <span class="soft">${text(p.phase ?? "")} ${p.splits_total ? `${p.splits_done}/${p.splits_total} splits, ${count(p.rows)} rows` : ""}</span>
    <div class="meter"><span style="width:${share}%"></span></div></div>`;
}).join("") || `<span class="soft">${job.live ? "waiting for work" : "no heartbeat"}</span>`;

const behind = (lag) => [
  lag.messages == null ? "" : `${count(lag.messages)} messages`, lag.bytes == null ? "" : bytes(lag.bytes),
  lag.seconds == null ? "" : `${lag.seconds.toFixed(1)} s`, lag.slot_bytes == null ? "" : `slot keeps ${bytes(lag.slot_bytes)}`,
].filter(Boolean).join(", ");

const sourceRows = (sources) => sources.map((s) => `<tr class="${s.phase === "stopped" || s.phase === "waiting" ? "sick" : ""}">
  <td><b>${text(s.source.name)}</b></td><td data-label="Kind">${text(s.source.kind)}</td><td><span class="state ${s.phase === "stopped" ? "failed" : ""}">${text(s.phase)}</span></td>
  <td data-label="Position">${text(s.position)}</td><td class="num" data-label="Rows">${count(s.source.rows)}</td><td data-label="Behind">${behind(s.lag)}</td></tr>${s.error ? `<tr class="reason"><td colspan="6">${text(s.error)}</td></tr>` : ""}`).join("");

const sourcesCard = (sources) => sources.length ? `<h2>Sources</h2><div class="scroll"><table class="cards"><thead><tr><th>Name</th><th>Kind</th><th>State</th><th>Position</th><th class="num">Rows</th><th>Behind</th></tr></thead><tbody>${sourceRows(sources)}</tbody></table></div>` : "";

export function jobsPage() {
  let root = null;
  let drawn = "";
  let errors = new Map();
  let askedAt = 0;

  // The last round of each job that failed, of the newest rounds.
  const loadErrors = async () => {
    const { rounds } = await api.rounds(null, 200);
    errors = new Map(rounds.filter((r) => r.outcome === "failed" && r.error).reverse().map((r) => [r.job, r]));
  };
  // An error of a table that was dropped concerns no one any more.
  const lastError = (job, overview) => {
    const r = errors.get(job.name);
    return r && overview.tables.some((t) => t.path === r.path) ? `<tr class="reason"><td colspan="9">${moment(r.ended_at_ms)} <a href="#/table/${encodeURIComponent(r.path)}">${text(r.path)}</a>: ${text(r.error.message)}</td></tr>` : "";
  };
  return {
    mount(page) { root = page; page.innerHTML = '<section class="card"><h1>Tiering jobs</h1><div id="jobs"></div></section>'; },
    update(overview) {
      if (Date.now() - askedAt > ERRORS_EVERY_MS) { askedAt = Date.now(); loadErrors().catch(() => {}); }
      const rows = overview.jobs.map((j) => `<tr class="${j.live ? "" : "sick"}">
        <td><b>${text(j.name)}</b>${j.expected ? ' <span class="soft">expected</span>' : ""}</td>
        <td><span class="state ${j.state === "silent" || j.state === "never seen" ? "failed" : ""}">${text(j.state)}</span></td>
        <td data-label="Pool">${text(j.pool)}</td><td class="num" data-label="Slots">${j.slots ?? "-"}</td><td class="num" data-label="Memory">${bytes(j.memory_bytes)}</td><td class="wide now">${progress(j)}</td>
        <td data-label="Last heartbeat">${j.last_beat_at_ms ? `${clock(j.last_beat_at_ms)} <span class="soft">(${duration(Math.max(0, overview.now_ms - j.last_beat_at_ms))} ago)</span>` : "never"}</td><td class="soft" data-label="Host">${text(j.host)}</td><td class="soft" data-label="Version">${text(j.version)}</td></tr>${lastError(j, overview)}`).join("");
      const html = rows ? `<div class="scroll"><table class="cards"><thead><tr><th>Name</th><th>State</th><th>Pool</th><th class="num">Slots</th><th class="num">Memory</th><th>Now</th><th>Last heartbeat (UTC)</th><th>Host</th><th>Version</th></tr></thead><tbody>${rows}</tbody></table></div>`
        : '<p class="empty">No job has registered. Start one with <span class="mono">lakeward tier</span>.</p>';
      const whole = html + sourcesCard(overview.sources ?? []);
      if (whole !== drawn) { root.querySelector("#jobs").innerHTML = whole; drawn = whole; }
    },
  };
}
