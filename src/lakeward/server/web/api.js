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

const table = (name) => `/api/v1/tables/${encodeURIComponent(name)}`;

export const api = {
  overview: (since) => call(`/api/v1/dashboard?since=${encodeURIComponent(since)}`),
  lags: (names) => call(`/api/v1/lags?${names.map((n) => `table=${encodeURIComponent(n)}`).join("&")}`),
  lag: (name) => call(`${table(name)}/lag`),
  info: (name) => call(table(name)),
  explain: (name) => call(`${table(name)}/explain`),
  lakeFiles: (name) => call(`${table(name)}/maintain`),
  ledger: async (name) => (await call(`${table(name)}/ledger`)).entries,
  rounds: (name, limit = 50) => call(`/api/v1/rounds?limit=${limit}${name ? `&table=${encodeURIComponent(name)}` : ""}`),
  resume: (name) => call(`${table(name)}/resume`, { method: "POST" }),
  tierNow: (name) => call(`${table(name)}/tier-now?limit_s=120`, { method: "POST", limitMs: 130000 }),
  compact: (name) => call(`${table(name)}/maintain`, { method: "POST" }),
  resync: (name) => call(`${table(name)}/resync`, { method: "POST", body: { choice: "resync" } }),
  admission: (freshness) => call("/api/v1/admission", { method: "POST", body: { freshness_ms: freshness } }),
  alter: (name, properties) => call(table(name), { method: "PATCH", body: { properties } }),
  pause: (name) => call(`${table(name)}/pause`, { method: "POST" }),
};
