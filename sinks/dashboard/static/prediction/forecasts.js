// Forecasts of workloads: the newest of each, how right earlier ones were, and of one its usage with what was forecast for
// the same time.

import { Chart } from "../chart/chart.js";
import { h, table } from "../base/dom.js";
import { age, amount, bytes, moment, now, percent, quoted, whole } from "../base/format.js";
import { step } from "../chart/line.js";
import { rows } from "../base/stream.js";

const SECONDS = 21600;
const KEY = "namespace, kind, workload";
export const NEWEST = `SELECT * FROM (SELECT at_us, ${KEY}, pods, current_cpu, forecast_cpu, current_memory, forecast_memory, horizon_seconds, model, desired FROM forecasts WHERE date >= current_date - 1 QUALIFY row_number() OVER (PARTITION BY ${KEY} ORDER BY at_us DESC) = 1) ORDER BY forecast_cpu DESC LIMIT 100`;

export const WORTH = "SELECT model, count(*) AS workloads, sum(f.settled) AS settled, sum(f.violations * f.settled) / sum(f.settled) AS violations, sum(f.severity * f.settled) / sum(f.settled) AS severity, sum(f.overprovision * f.settled) / sum(f.settled) AS overprovision, bool_or(f.chosen) AS chosen FROM forecast_accuracy AS f WHERE f.settled > 0 GROUP BY model ORDER BY severity, model";

export const keyOf = (row) => [row.namespace, row.kind ?? "", row.workload].join("/");

export function forecastTable(found, choose) {
  if (!found.length) return h("p", { class: "quiet" }, "No workload is known: forecasts need pods that belong to workloads.");
  return table([
    { title: "Workload", of: (row) => h("button", { type: "button", class: "sort link", onclick: () => choose(keyOf(row)) }, `${row.namespace}/${row.workload}`) }, { title: "Pods", number: true, of: (row) => whole(row.pods) },
    { title: "CPU now", number: true, of: (row) => amount(row.current_cpu, 2) }, { title: "in", number: true, of: (row) => age(row.horizon_seconds) }, { title: "CPU then", number: true, of: (row) => amount(row.forecast_cpu, 2) },
    { title: "Memory now", number: true, of: (row) => bytes(row.current_memory) }, { title: "Memory then", number: true, of: (row) => bytes(row.forecast_memory) },
    { title: "Model", of: (row) => row.model }, { title: "Replicas wanted", number: true, of: (row) => whole(row.desired) }, { title: "Made", of: (row) => moment(row.at_us) },
  ], found, { caption: "Forecasts" });
}

// How right earlier forecasts were, by model; a workload counts by its forecasts whose horizon has passed.
export function worthTable(found) {
  if (!found.length) return h("p", { class: "quiet" }, "How right they are is not known yet: no forecast's horizon has passed.");
  return [h("p", { class: "quiet" }, "How right earlier forecasts were. A forecast is of one time, not a peak, so about half are exceeded under level load."), table([
    { title: "Model", of: (row) => (row.chosen ? `${row.model} (chosen)` : row.model) }, { title: "Workloads", number: true, of: (row) => whole(row.workloads) },
    { title: "Settled", number: true, help: "forecasts whose horizon has passed; older ones count less", of: (row) => amount(row.settled) },
    { title: "Exceeded", number: true, help: "share of forecasts that usage exceeded", of: (row) => percent(row.violations) },
    { title: "Used beyond", number: true, help: "mean share of the usage that was not forecast", of: (row) => percent(row.severity) },
    { title: "Not used", number: true, help: "mean share of the forecast that was not used", of: (row) => percent(row.overprovision) },
  ], found, { caption: "Accuracy of forecasts" })];
}

// Steps of the last hours of one workload: {t, used, forecast, horizon}, used in cores at t, forecast at t for t + horizon.
export function stepsOf(key) {
  const [namespace, kind, ...rest] = key.split("/");
  const to = now() / 1000;
  const seconds = step(to - SECONDS, to);
  return rows(`SELECT (at_us // ${seconds * 1e6}) * ${seconds} AS t, avg(current_cpu) AS used, avg(forecast_cpu) AS forecast, avg(horizon_seconds) AS horizon FROM forecasts
WHERE namespace = ${quoted(namespace)} AND coalesce(kind, '') = ${quoted(kind)} AND workload = ${quoted(rest.join("/"))} AND date >= current_date - 1 AND at_us > ${Math.round((to - SECONDS) * 1e6)} GROUP BY 1 ORDER BY 1`);
}

// Columns of a chart: times, what was used then, and what had been forecast for then.
export function shifted(steps) {
  const meant = new Map(steps.map((row) => [row.t + row.horizon, row.forecast])); // horizons may change, so times may meet
  const times = [...meant.keys()].sort((one, other) => one - other);
  return uPlot.join([[steps.map((row) => row.t), steps.map((row) => row.used)], [times, times.map((time) => meant.get(time))]]);
}

export class ForecastChart {
  constructor(place) {
    this.place = place;
    this.chart = null;
    this.key = "";
  }

  async show(key) {
    const steps = await stepsOf(key);
    if (key !== this.key) this.close();
    this.key = key;
    this.chart ??= new Chart(this.place, { title: `CPUs of ${key}`, height: 220, format: (value) => amount(value, 2),
      series: [{ label: "used", colour: "c1", width: 2 }, { label: "forecast for then", colour: "c2", dash: [6, 4] }] });
    this.chart.set(shifted(steps), null);
  }

  close() {
    this.chart?.close();
    this.chart = null;
    this.place.replaceChildren();
  }
}
