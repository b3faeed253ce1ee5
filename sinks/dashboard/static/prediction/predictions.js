// Predictions: how often each model's peaks were exceeded against what it states and saves, and forecasts of workloads.

import { announce, h, note, replace, shortened, table } from "../base/dom.js";
import { ForecastChart, NEWEST, WORTH, forecastTable, keyOf, worthTable } from "./forecasts.js";
import { age, percent, whole } from "../base/format.js";
import { scatter } from "../chart/scatter.js";
import { Unreachable, repeat, rows } from "../base/stream.js";

const COLOURS = 8;
const ACCURACY = "SELECT * FROM prediction_accuracy ORDER BY horizon_seconds, violations";
// Where nothing supports the peak of either resource, a violation is of what is no prediction.
const ASSUMED = "coalesce(list_has_all(assumed, ['cpu', 'memory']), false)";
// Of the newest one of each node; those that stay as they are come again after ten minutes.
const STATED = `SELECT horizon_seconds, model, CASE WHEN assumed THEN 1 ELSE round(violation, 2) END AS violation, count(*) AS nodes
FROM (SELECT node, horizon_seconds, model, violation, ${ASSUMED} AS assumed FROM predictions WHERE at_us > (SELECT at_us FROM newest_time) - 1200000000 AND date >= current_date - 1
QUALIFY row_number() OVER (PARTITION BY node, horizon_seconds ORDER BY at_us DESC) = 1) GROUP BY ALL ORDER BY 1, 3`;
// Of each node, what its predictions stated on average, and how often usage was above them.
const CALIBRATION = `WITH newest AS (SELECT node, horizon_seconds, arg_max(accuracy, at_us) AS accuracy, arg_max(model, at_us) AS chosen FROM predictions WHERE date >= current_date - 1 GROUP BY ALL),
seen AS (SELECT node, horizon_seconds, of_model.model AS model, of_model.violations AS seen, of_model.settled AS settled FROM (SELECT node, horizon_seconds, chosen, unnest(accuracy) AS of_model FROM newest) WHERE of_model.model = chosen AND of_model.settled > 0),
stated AS (SELECT node, horizon_seconds, avg(violation) AS stated FROM predictions WHERE date >= current_date - 1 AND violation < 1 AND NOT ${ASSUMED} GROUP BY ALL)
SELECT node, horizon_seconds, model, stated, seen FROM seen JOIN stated USING (node, horizon_seconds) ORDER BY settled DESC, node LIMIT 1000`;

export function open(main, { search, keep }) {
  let workload = search.get("workload") ?? "";
  const charts = h("div", { class: "plots" });
  const body = h("div", {});
  const forecasts = h("div", {});
  const worth = h("div", {});
  const place = h("figure", { class: "wide", hidden: true });
  const line = new ForecastChart(place);
  replace(main, h("h1", {}, "Predictions"), charts, body, h("h2", {}, "Forecasts of workloads"), forecasts, place, worth);
  replace(body, note("wait", "Asking the history…", ""));

  async function load() {
    try {
      const [accuracy, calibration, stated, newest, right] = await Promise.all([ACCURACY, CALIBRATION, STATED, NEWEST, WORTH].map(rows));
      const settled = accuracy.filter((row) => row.settled > 0);
      replace(charts, settled.length ? frontier(settled) : null, calibration.length ? calibrated(calibration) : null);
      replace(body, shortened(accuracy, calibration, stated, newest), accuracyTable(settled), h("h2", {}, "In force now"), statedTable(stated));
      replace(forecasts, forecastTable(newest, choose));
      replace(worth, newest.length ? worthTable(right) : null);
      if (!newest.some((row) => keyOf(row) === workload)) workload = newest.length ? keyOf(newest[0]) : "";
      await draw();
    } catch (error) {
      if (!(error instanceof Unreachable)) announce(body, note("error", "The history does not answer", error.message));
    }
  }

  async function draw() {
    place.hidden = !workload;
    if (workload) await line.show(workload);
  }

  function choose(key) {
    workload = key;
    keep({ workload });
    draw().catch((error) => announce(body, note("error", "The history does not answer", error.message)));
  }

  const end = repeat(load, 15);
  return {
    close() {
      end();
      line.close();
    },
    repaint() { line.chart?.build(); },
  };
}

const colours = (rows) => {
  const models = [...new Set(rows.map((row) => row.model))].sort();
  return (row) => models.indexOf(row.model) % COLOURS + 1;
};

function frontier(settled) {
  const several = new Set(settled.map((row) => row.horizon_seconds)).size > 1;
  const colour = colours(settled);
  return scatter({ title: "What each model saves, and how often usage is above its peak", across: "saved of the node", up: "seen above the peak", points: settled.filter((row) => row.savings !== null).map((row) => ({
    x: row.savings, y: row.violations, colour: colour(row), name: several ? `${row.model}, ${age(row.horizon_seconds)}` : row.model,
    title: `${row.model}, ${age(row.horizon_seconds)}: saves ${percent(row.savings)}, ${percent(row.violations)} above`,
  })) });
}

function calibrated(calibration) {
  const colour = colours(calibration);
  return scatter({ title: "Stated and seen, by node; below the line usage is above the peak more rarely than stated", across: "stated", up: "seen above the peak", diagonal: true, points: calibration.map((row) => ({
    x: row.stated, y: row.seen, colour: colour(row), title: `${row.node}, ${row.model}, ${age(row.horizon_seconds)}: ${percent(row.stated)} stated, ${percent(row.seen)} seen`,
  })) });
}

function accuracyTable(settled) {
  const title = h("h2", {}, "Peaks: stated and seen");
  if (!settled.length) return [title, note("wait", "Nothing has settled yet", "A prediction settles when its horizon has passed, predict.horizon_seconds after it was made.")];
  return [title, table([
    { title: "Horizon", of: (row) => age(row.horizon_seconds) }, { title: "Model", of: (row) => row.model }, { title: "Nodes", number: true, of: (row) => whole(row.nodes) },
    { title: "Settled", number: true, help: "predictions whose horizon has passed", of: (row) => whole(row.settled) },
    { title: "Seen above the peak", number: true, of: (row) => percent(row.violations) }, { title: "Saved of the node", number: true, help: "mean share of what Kubernetes declares allocatable, else of the node's size, that the peak left free", of: (row) => percent(row.savings) },
  ], settled, { caption: "Accuracy by model" })];
}

function statedTable(stated) {
  if (!stated.length) return h("p", { class: "quiet" }, "None yet.");
  return table([
    { title: "Horizon", of: (row) => age(row.horizon_seconds) }, { title: "Model", of: (row) => row.model }, { title: "States", number: true, help: "share of times above the peak", of: (row) => (row.violation >= 1 ? "nothing yet" : percent(row.violation)) },
    { title: "Nodes", number: true, of: (row) => whole(row.nodes) },
  ], stated, { caption: "Predictions in force" });
}
