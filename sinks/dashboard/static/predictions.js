// Predictions: how often each model's peaks were exceeded against what it states, and forecasts of workloads.

import { h, note, replace, shortened, table } from "./dom.js";
import { age, amount, bytes, moment, percent, whole } from "./format.js";
import { Unreachable, repeat, rows } from "./stream.js";

const ACCURACY = "SELECT * FROM prediction_accuracy ORDER BY horizon_seconds, violations";
const STATED = "SELECT horizon_seconds, model, violation, count(DISTINCT node) AS nodes FROM predictions WHERE at_us > (SELECT max(at_us) FROM predictions) - 120000000 AND date >= current_date - 1 GROUP BY ALL ORDER BY 1, 3";
const FORECASTS = "SELECT * FROM (SELECT at_us, namespace, kind, workload, pods, current_cpu, forecast_cpu, current_memory, forecast_memory, horizon_seconds, model, desired FROM forecasts WHERE date >= current_date - 1 QUALIFY row_number() OVER (PARTITION BY namespace, kind, workload ORDER BY at_us DESC) = 1) ORDER BY forecast_cpu DESC LIMIT 100";

export function open(main, { report }) {
  const body = h("div", {});
  replace(main, h("h1", {}, "Predictions"), body);
  replace(body, note("wait", "Asking the history…", ""));

  async function load() {
    try {
      const [accuracy, stated, forecasts] = await Promise.all([rows(ACCURACY), rows(STATED), rows(FORECASTS)]);
      report("live");
      const settled = accuracy.filter((row) => row.settled > 0);
      replace(body, shortened(accuracy, stated, forecasts), h("h2", {}, "Peaks: stated and seen"),
        settled.length ? table([
          { title: "Horizon", number: true, of: (row) => age(row.horizon_seconds) }, { title: "Model", of: (row) => row.model }, { title: "Nodes", number: true, of: (row) => whole(row.nodes) },
          { title: "Settled", number: true, help: "predictions whose horizon has passed", of: (row) => whole(row.settled) },
          { title: "Seen above the peak", number: true, of: (row) => percent(row.violations) }, { title: "Saved against requests", number: true, of: (row) => percent(row.savings) },
        ], settled, { caption: "Accuracy by model" }) : note("wait", "Nothing has settled yet", "A prediction settles when its horizon has passed: an hour, six hours or a day after it was made."),
        h("h2", {}, "In force now"), stated.length ? table([
          { title: "Horizon", number: true, of: (row) => age(row.horizon_seconds) }, { title: "Model", of: (row) => row.model }, { title: "States", number: true, help: "share of times above the peak", of: (row) => (row.violation >= 1 ? "nothing yet" : percent(row.violation)) },
          { title: "Nodes", number: true, of: (row) => whole(row.nodes) },
        ], stated, { caption: "Predictions in force" }) : h("p", { class: "quiet" }, "None yet."),
        h("h2", {}, "Forecasts of workloads"), forecasts.length ? table([
          { title: "Workload", of: (row) => `${row.namespace}/${row.workload}` }, { title: "Pods", number: true, of: (row) => whole(row.pods) },
          { title: "CPU now", number: true, of: (row) => amount(row.current_cpu, 2) }, { title: "in", number: true, of: (row) => age(row.horizon_seconds) }, { title: "CPU then", number: true, of: (row) => amount(row.forecast_cpu, 2) },
          { title: "Memory now", number: true, of: (row) => bytes(row.current_memory) }, { title: "Memory then", number: true, of: (row) => bytes(row.forecast_memory) },
          { title: "Model", of: (row) => row.model }, { title: "Replicas wanted", number: true, of: (row) => whole(row.desired) }, { title: "Made", of: (row) => moment(row.at_us) },
        ], forecasts, { caption: "Forecasts" }) : h("p", { class: "quiet" }, "No workload is known: forecasts need pods that belong to workloads."));
    } catch (error) {
      if (error instanceof Unreachable) report("disconnected");
      else replace(body, note("error", "The history does not answer", error.message));
    }
  }

  return { close: repeat(load, 15) };
}
