// A table in warehouse `live`: lines to paste into an engine, and what the newest answer names.
import { token } from "./api.js";
import { bytes, count, counted, duration, text } from "./format.js";

const ENGINES = {
  DuckDB: (url, name, secret) => `INSTALL iceberg; LOAD iceberg;
${secret ? "CREATE SECRET lakeward (TYPE iceberg, TOKEN 'YOUR_TOKEN');\n" : ""}ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '${url}', ${secret ? "SECRET lakeward" : "AUTHORIZATION_TYPE 'none'"});
SELECT count(*) FROM fresh.${name};`,
  PyIceberg: (url, name, secret) => `from pyiceberg.catalog import load_catalog

live = load_catalog("live", type="rest", uri="${url}", warehouse="live"${secret ? ', token="YOUR_TOKEN"' : ""})
print(live.load_table("${name}").scan().to_arrow())`,
  Spark: (url, name, secret) => `spark.sql.catalog.fresh = org.apache.iceberg.spark.SparkCatalog
spark.sql.catalog.fresh.type = rest
spark.sql.catalog.fresh.uri = ${url}
spark.sql.catalog.fresh.warehouse = live
spark.sql.catalog.fresh.cache-enabled = false
${secret ? "spark.sql.catalog.fresh.token = YOUR_TOKEN\n" : ""}# then: SELECT count(*) FROM fresh.${name}`,
  Trino: (url, name, secret) => `connector.name=iceberg
iceberg.catalog.type=rest
iceberg.rest-catalog.uri=${url}
iceberg.rest-catalog.warehouse=live
${secret ? "iceberg.rest-catalog.security=OAUTH2\niceberg.rest-catalog.oauth2.token=YOUR_TOKEN\n" : ""}fs.hadoop.enabled=true
# then: SELECT count(*) FROM fresh.${name}`,
  Flink: (url, name, secret) => `CREATE CATALOG fresh WITH ('type'='iceberg', 'catalog-type'='rest', 'uri'='${url}', 'warehouse'='live',
  'cache-enabled'='false'${secret ? ", 'token'='YOUR_TOKEN'" : ""});
SELECT count(*) FROM fresh.${name};`,
};

const FRAME = `<div class="bar"><h2>Fresh rows in your engine</h2><select id="engine" aria-label="Engine">${Object.keys(ENGINES).map((e) => `<option>${e}</option>`).join("")}</select><button id="copy">Copy</button></div><pre id="lines"></pre><dl class="facts" id="livefigures"></dl>`;

function figuresOf(answer, before) {
  const f = answer.figures;
  if (!f) return [["Loads", "none since the server started"]];
  const rate = before?.figures && answer.now_ms > before.now_ms ? (1000 * (f.liveLoads - before.figures.liveLoads)) / (answer.now_ms - before.now_ms) : null;
  return [
    ["Loads", `${count(f.liveLoads)}${rate === null ? "" : `, ${rate.toFixed(1)} a second`}`],
    ["Age of the newest answer", duration(f.liveMomentAge)],
    ["Its tail", `${counted(f.liveTailRows, "row")}, ${bytes(f.liveTailBytes)} in ${counted(f.liveTailFiles, "file")}`],
    ...(f.liveComplete ? [] : [["Shown", '<span class="over">an earlier moment: the tail is longer than live.max-tail-rows or live.max-tail-bytes</span>']]),
  ];
}

// Fills a box; a table that is not in the warehouse has none.
export function liveCard(box, name) {
  let before = null;
  const draw = () => { box.querySelector("#lines").textContent = ENGINES[box.querySelector("#engine").value](`${location.origin}/iceberg`, name, Boolean(token.get())); };
  return (answer) => {
    box.hidden = !answer.is_live;
    if (!answer.is_live) return;
    if (!box.firstChild) {
      box.innerHTML = FRAME;
      box.querySelector("#engine").addEventListener("change", draw);
      box.querySelector("#copy").addEventListener("click", async () => {
        try { await navigator.clipboard.writeText(box.querySelector("#lines").textContent); } catch { getSelection().selectAllChildren(box.querySelector("#lines")); }
      });
      draw();
    }
    box.querySelector("#livefigures").innerHTML = figuresOf(answer, before).map(([k, v]) => `<dt>${text(k)}</dt><dd>${v}</dd>`).join("");
    before = answer;
  };
}
