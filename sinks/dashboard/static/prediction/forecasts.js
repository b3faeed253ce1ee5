// Forecasts of workloads: the newest of each, and of one its usage with what was forecast for the same time.

import { Chart } from "../chart/chart.js";
import { h, table } from "../base/dom.js";
import { age, amount, bytes, moment, now, quoted, whole } from "../base/format.js";
import { step } from "../chart/line.js";
import { rows } from "../base/stream.js";

const SECONDS = 21600;
const KEY = "namespace, kind, workload";
export const NEWEST = `SELECT * FROM (SELECT at_us, ${KEY}, pods, current_cpu, forecast_cpu, current_memory, forecast_memory, horizon_seconds, model, desired FROM forecasts WHERE date >= current_date - 1 QUALIFY row_number() OVER (PARTITION BY ${KEY} ORDER BY at_us DESC) = 1) ORDER BY forecast_cpu DESC LIMIT 100`;

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
