// Calls to the server. A token, when one is needed, lives in this tab only.
const KEY = "lakeward-token";

export class ApiError extends Error {
  constructor(status, body) {
    super(body?.message ?? `HTTP ${status}`);
    this.status = status;
    this.body = body;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
};

export async function call(path, { method = "GET", limitMs = 8000, body: sent } = {}) {
  const headers = { "Content-Type": "application/json", ...(token.get() && { Authorization: `Bearer ${token.get()}` }) };
  const answer = await fetch(path, { method, headers, body: sent && JSON.stringify(sent), signal: AbortSignal.timeout(limitMs), cache: "no-store" });
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new ApiError(answer.status, body);
  return body;
}

const of = (side) => (side ? `?side=${encodeURIComponent(side)}` : "");
const table = (name) => `/api/v1/tables/${encodeURIComponent(name)}`;

export const api = {
  overview: (since) => call(`/api/v1/dashboard?since=${encodeURIComponent(since)}`),
  lags: (names) => call(`/api/v1/lags?${names.map((n) => `table=${encodeURIComponent(n)}`).join("&")}`),
  lag: (name, side) => call(`${table(name)}/lag${of(side)}`),
  info: (name) => call(table(name)),
  explain: (name, side) => call(`${table(name)}/explain${of(side)}`),
  lakeFiles: (name, side) => call(`${table(name)}/maintain${of(side)}`),
  ledger: async (name, side) => (await call(`${table(name)}/ledger${of(side)}`)).entries,
  rounds: (name, limit = 50, side = null) => call(`/api/v1/rounds?limit=${limit}${name ? `&table=${encodeURIComponent(name)}` : ""}${side ? `&side=${encodeURIComponent(side)}` : ""}`),
  resume: (name, side) => call(`${table(name)}/resume${of(side)}`, { method: "POST" }),
  tierNow: (name, side) => call(`${table(name)}/tier-now?limit_s=120${side ? `&side=${encodeURIComponent(side)}` : ""}`, { method: "POST", limitMs: 130000 }),
  compact: (name, side) => call(`${table(name)}/maintain${of(side)}`, { method: "POST" }),
  resync: (name, side) => call(`${table(name)}/resync${of(side)}`, { method: "POST", body: { choice: "resync" } }),
  admission: (freshness) => call("/api/v1/admission", { method: "POST", body: { freshness_ms: freshness } }),
  alter: (name, properties) => call(table(name), { method: "PATCH", body: { properties } }),
  sample: (name, mode, asOf) => call(`${table(name)}/sample?mode=${encodeURIComponent(mode)}${asOf ? `&as_of=${encodeURIComponent(asOf)}` : ""}`, { limitMs: 30000 }),
  live: (name) => call(`${table(name)}/live`),
  hot: (name) => call(`${table(name)}/hot`),
  properties: async (name) => (await call(`${table(name)}/properties`)).properties,
  define: (name, asked) => call(`${table(name)}/define`, { method: "POST", body: asked, limitMs: 30000 }),
  sql: (asked) => call("/api/v1/sql", { method: "POST", body: asked, limitMs: 60000 }),
  maintenance: () => call("/api/v1/maintenance"),
  cost: (days) => call(`/api/v1/cost?days=${encodeURIComponent(days)}`),
  log: (level) => call(`/api/v1/log?level=${encodeURIComponent(level)}`),
  pause: (name, side) => call(`${table(name)}/pause${of(side)}`, { method: "POST" }),
};
