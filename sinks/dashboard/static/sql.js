// SQL: an editor over the history, with saved questions; answers as a table or as lines over time.

import { h, note, replace, table } from "./dom.js";
import { Chart } from "./chart.js";
import { amount } from "./format.js";
import { Unreachable, query } from "./stream.js";

const QUESTIONS = [
  ["Newest availability of each node", "SELECT node, time, available, lower, upper, binding, pods\nFROM availability\nWHERE date >= current_date - 1\nQUALIFY row_number() OVER (PARTITION BY node ORDER BY at_us DESC) = 1\nORDER BY lower"],
  ["Pods that fit in the cluster, by minute", "SELECT minute, nodes, available, least_lower, full_nodes\nFROM cluster_room\nWHERE minute > (SELECT max(time) FROM availability WHERE date >= current_date - 1) - INTERVAL 1 HOUR AND date >= current_date - 1\nORDER BY minute"],
  ["CPU and its pressure of one node, by second", "SELECT date_trunc('second', time) AS second, avg(cpu_util) AS cpu, avg(cpu_pressure) AS pressure\nFROM samples\nWHERE node = (SELECT min(node) FROM samples) AND date >= current_date - 1\n  AND at_us > (SELECT max(at_us) FROM samples) - 900000000\nGROUP BY 1 ORDER BY 1"],
  ["Which classes use most CPU", "SELECT workload, count(DISTINCT pod) AS running, avg(cpu_cores) AS cores_a_pod, avg(memory_bytes) / 1048576 AS mib_a_pod\nFROM pods\nWHERE at_us > (SELECT max(at_us) FROM pods) - 300000000 AND date >= current_date - 1\nGROUP BY 1 ORDER BY running * cores_a_pod DESC"],
  ["Where containers started most", "SELECT node, count(*) FILTER (event = 'started') AS started, count(*) FILTER (event IN ('exited', 'deleted')) AS ended\nFROM containers\nWHERE date >= current_date - 1\nGROUP BY 1 ORDER BY 2 DESC LIMIT 20"],
  ["What the tables hold", "SELECT table_name AS \"table\", string_agg(column_name, ', ' ORDER BY column_index) AS columns\nFROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal\nGROUP BY 1 ORDER BY 1"],
];

export function open(main, { search, keep, report }) {
  let chart = null;
  let newest = 0;  // an answer that comes after a newer question was asked is dropped
  const output = h("div", {});
  const status = h("span", { class: "quiet", role: "status" });
  const editor = h("textarea", { rows: "7", spellcheck: "false", "aria-label": "SQL", placeholder: "SELECT …" });
  editor.value = search.get("q") ?? QUESTIONS[0][1];
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
  });
  const saved = h("select", { "aria-label": "Questions", onchange: (event) => { editor.value = QUESTIONS[event.target.value]?.[1] ?? editor.value; run(); } },
    h("option", { value: "" }, "Questions…"), QUESTIONS.map(([title], at) => h("option", { value: String(at) }, title)));
  let shape = search.get("as") ?? "table";
  const as = h("select", { "aria-label": "Show as", onchange: (event) => { shape = event.target.value; keep({ as: shape }); run(); } },
    [["table", "as a table"], ["chart", "as a chart"]].map(([value, title]) => h("option", { value, selected: value === shape }, title)));
  replace(main, h("h1", {}, "SQL"), h("p", { class: "quiet" }, "DuckDB over the history; statements only read. Filter by date, so that other days are not opened."),
    editor, h("div", { class: "controls" }, h("button", { type: "button", class: "primary", onclick: run }, "Run (Ctrl-Enter)"), saved, as, status), output);

  async function run() {
    keep({ q: editor.value });
    status.textContent = "running…";
    const began = performance.now();
    const asked = ++newest;
    try {
      const answer = await query(editor.value);
      report("live");
      if (asked !== newest) return;
      const seconds = ((performance.now() - began) / 1000).toFixed(2);
      status.textContent = `${answer.rows.length}${answer.truncated ? " and more" : ""} rows in ${seconds} s`;
      chart?.close();
      chart = null;
      if (shape === "chart") draw(answer);
      else replace(output, table(answer.columns.map((title, at) => ({ title, number: typeof answer.rows[0]?.[at] === "number", of: (row) => text(row[at]) })), answer.rows, { caption: "Answer" }));
    } catch (error) {
      report(error instanceof Unreachable ? "disconnected" : "live");
      if (asked !== newest) return;
      status.textContent = "";
      replace(output, note("error", "No answer", error.message));
    }
  }

  function draw(answer) {
    const time = answer.columns.findIndex((_, at) => typeof answer.rows[0]?.[at] === "string" && !Number.isNaN(Date.parse(answer.rows[0][at])));
    const numbers = answer.columns.map((_, at) => at).filter((at) => at !== time && answer.rows.some((row) => typeof row[at] === "number"));
    if (time < 0 || !numbers.length) {
      replace(output, note("wait", "Nothing to draw", "A chart needs a column of times and a column of numbers, such as GROUP BY date_trunc('minute', time)."));
      return;
    }
    const place = h("figure", { class: "wide" });
    replace(output, place);
    chart = new Chart(place, { title: "", height: 320, format: (value) => amount(value, 2), series: numbers.map((at) => ({ label: answer.columns[at] })) });
    const rows = answer.rows.map((row) => [Date.parse(row[time]) / 1000, ...numbers.map((at) => row[at])]).sort((one, other) => one[0] - other[0]);
    chart.set([rows.map((row) => row[0]), ...numbers.map((_, at) => rows.map((row) => row[at + 1]))], null);
  }

  const text = (value) => {
    if (value === null) return "–";
    if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
    if (typeof value === "object") return JSON.stringify(value);
    return String(value);
  };

  run();
  return { close() { chart?.close(); }, repaint() { chart?.build(); } };
}
