// SQL: an editor over the history, with saved questions; answers as a table or as lines over time.

import { h, note, replace, table } from "../base/dom.js";
import { Chart } from "../chart/chart.js";
import { csv } from "../base/csv.js";
import { amount } from "../base/format.js";
import * as questions from "./questions.js";
import { query, rows, save } from "../base/stream.js";

const TABLES = `SELECT table_name AS name, string_agg(column_name, ', ' ORDER BY column_index) AS columns
FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal GROUP BY 1 ORDER BY 1`;

export function open(main, { search, keep }) {
  let chart = null;
  let newest = 0; // an answer that comes after a newer question was asked is dropped
  let answer = null;
  let shape = search.get("as") ?? "table";
  let offered = [];
  const output = h("div", {});
  const status = h("span", { class: "quiet", role: "status" });
  const editor = h("textarea", { rows: "7", spellcheck: "false", "aria-label": "SQL", placeholder: "SELECT …" });
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
  });
  const name = h("input", { type: "text", placeholder: "name of a question of your own", "aria-label": "Name of the question", maxlength: "100" });
  const list = h("select", { "aria-label": "Questions", onchange: () => choose(offered[Number(list.value)]) });
  const as = h("select", { "aria-label": "Show as", onchange: (event) => { shape = event.target.value; keep({ as: shape }); show(); } },
    [["table", "as a table"], ["chart", "as a chart"]].map(([value, title]) => h("option", { value, selected: value === shape }, title)));
  const download = h("button", { type: "button", disabled: true, onclick: () => save(new Blob([csv(answer.columns, answer.rows)], { type: "text/csv" }), "answer.csv") }, "Download as CSV");
  const tables = h("div", {});
  replace(main, h("h1", {}, "SQL"), h("p", { class: "quiet" }, "DuckDB over the history; statements only read. Filter by date, so that other days are not opened."),
    editor, h("div", { class: "controls" }, h("button", { type: "button", class: "primary", onclick: run }, "Run (Ctrl-Enter)"), list, as, download, status),
    h("div", { class: "controls" }, name, h("button", { type: "button", onclick: keepQuestion }, "Save"), h("button", { type: "button", onclick: dropQuestion }, "Delete"),
      h("span", { class: "quiet" }, "your own questions stay in this browser")),
    h("details", { ontoggle: (event) => { if (event.target.open) listTables(); } }, h("summary", {}, "Tables and views"), tables), output);

  function choose(question) {
    if (!question) return;
    editor.value = question.sql;
    name.value = question.group === questions.OWN ? question.question : "";
    run();
  }

  async function offer(chosen = "") {
    const given = await questions.given().catch(() => []);
    offered = [...questions.own(), ...given];
    const groups = [...new Set(offered.map(({ group }) => group))];
    replace(list, h("option", { value: "" }, "Questions…"), groups.map((group) => h("optgroup", { label: group }, offered.map((each, at) => (each.group === group
      ? h("option", { value: String(at), selected: group === questions.OWN && each.question === chosen }, each.question) : null)))));
    return given;
  }

  function keepQuestion() {
    const question = name.value.trim();
    if (!question || !editor.value.trim()) {
      status.textContent = question ? "there is no statement to save" : "give the question a name";
      return;
    }
    const kept = questions.save(question, editor.value);
    status.textContent = kept ? `saved as “${question}”` : "not saved: this browser keeps no data of this page";
    offer(question);
  }

  function dropQuestion() {
    const question = name.value.trim();
    const known = questions.own().some((each) => each.question === question);
    if (known) questions.remove(question);
    status.textContent = known ? `deleted “${question}”` : "choose a question of your own, or write its name";
    offer();
  }

  async function listTables() {
    try {
      const found = await rows(TABLES);
      const ask = (view) => () => choose({ group: "", question: "", sql: `SELECT * FROM ${view} LIMIT 100` });
      replace(tables, table([{ title: "Table", of: (row) => h("button", { type: "button", class: "sort", onclick: ask(row.name) }, row.name) },
        { title: "Columns", of: (row) => h("code", {}, row.columns) }], found, { caption: "Tables and views" }));
    } catch (error) {
      replace(tables, note("error", "No answer", error.message));
    }
  }

  async function run() {
    keep({ q: editor.value });
    status.textContent = "running…";
    const began = performance.now();
    const asked = ++newest;
    try {
      const found = await query(editor.value);
      if (asked !== newest) return;
      answer = found;
      const seconds = ((performance.now() - began) / 1000).toFixed(2);
      const count = answer.rows.length;
      status.textContent = `${count}${answer.truncated ? " and more" : ""} ${count === 1 && !answer.truncated ? "row" : "rows"} in ${seconds} s`;
      show();
    } catch (error) {
      if (asked !== newest) return;
      answer = null;
      status.textContent = "";
      show();
      replace(output, note("error", "No answer", error.message));
    }
  }

  function show() {
    chart?.close();
    chart = null;
    download.disabled = !answer;
    if (!answer) return;
    if (shape === "chart") draw();
    else replace(output, table(answer.columns.map((title, at) => ({ title, number: typeof answer.rows[0]?.[at] === "number", of: (row) => text(row[at]) })), answer.rows, { caption: "Answer" }));
  }

  function draw() {
    const time = answer.columns.findIndex((_, at) => isTime(answer.rows[0]?.[at]));
    const numbers = answer.columns.map((_, at) => at).filter((at) => at !== time && answer.rows.some((row) => typeof row[at] === "number"));
    if (time < 0 || !numbers.length) {
      replace(output, note("wait", "Nothing to draw", "A chart needs a column of times and a column of numbers, such as GROUP BY date_trunc('minute', time)."));
      return;
    }
    const place = h("figure", { class: "wide" });
    replace(output, place);
    chart = new Chart(place, { title: "", height: 320, format: (value) => amount(value, 2), series: numbers.map((at) => ({ label: answer.columns[at] })) });
    const lines = answer.rows.map((row) => [Date.parse(row[time]) / 1000, ...numbers.map((at) => row[at])]).sort((one, other) => one[0] - other[0]);
    chart.set([lines.map((row) => row[0]), ...numbers.map((_, at) => lines.map((row) => row[at + 1]))], null);
  }

  const ready = offer();
  if (search.get("q") === null) ready.then((given) => { if (!editor.value) choose(given[0]); });
  else {
    editor.value = search.get("q");
    run();
  }
  return { close() { chart?.close(); }, repaint() { chart?.build(); } };
}

// Whether a value begins with a date; Date.parse alone also takes "node-1" for one.
const isTime = (value) => typeof value === "string" && /^\d{4}-\d\d-\d\d/.test(value) && !Number.isNaN(Date.parse(value));

const text = (value) => {
  if (value === null) return "–";
  if (typeof value === "number") return rounded(value);
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
};

// A number with at least its whole part and two digits behind the point; if there are more, with all of them in a tip.
function rounded(value) {
  const whole = String(Math.trunc(Math.abs(value))).length;
  const short = Number.isInteger(value) ? value : Number(value.toPrecision(Math.max(6, whole + 2)));
  return short === value ? String(value) : h("span", { title: String(value) }, String(short));
}
