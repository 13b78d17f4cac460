// Figures as people read them, and safe text for HTML.
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

export const text = (value) => String(value ?? "").replace(/[&<>"']/g, (c) => ESCAPES[c]);

// Words with commands in backticks.
export const commands = (words) => text(words).replace(/`([^`]+)`/g, '<span class="mono">$1</span>');

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return `−${duration(-ms)}`;
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${(s / 86400).toFixed(1)} d`;
}

export function count(n) {
  if (n === null || n === undefined) return "–";
  return n.toLocaleString("en-US");
}

export const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

// How far a table is that is adopted with a key.
export function adopting(a) {
  const share = a.of_rows && a.rows <= a.of_rows ? ` (${Math.floor(100 * a.rows / a.of_rows)} %)` : "";
  return `${count(a.rows)} of about ${count(a.of_rows)} rows loaded${share}, ${a.files} of ${counted(a.of_files, "file")}${a.words ? `; ${text(a.words)}` : ""}`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i += 1; }
  return `${i && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function clock(ms) {
  return ms ? new Date(ms).toISOString().slice(11, 19) : "–";
}

// With the date, for lists that reach further back than today. All times are UTC, as in commands and logs.
export const moment = (ms) => (ms ? new Date(ms).toISOString().slice(0, 19).replace("T", " ") : "–");

// A table whose rows are within their freshness is fresh, whatever the scheduler has planned for it.
export function stateWord(t) {
  if (!["scheduled", "tiered"].includes(t.state)) return t.state;
  if (t.lag_ms > t.freshness_ms) return "late";
  return t.served || !t.lag_ms ? "fresh" : "waits for a job";
}

const UNIT_MS = { ms: 1, s: 1000, min: 60000, h: 3600000, d: 86400000 };

// Milliseconds of "30 s"; null where that is no time.
export function readDuration(words) {
  const [, number, unit] = words.trim().match(/^(\d+)\s*(ms|s|min|h|d)$/) ?? [];
  return number ? Number(number) * UNIT_MS[unit] : null;
}

export const short = (id) => (id ? String(id).slice(0, 8) : "–");
