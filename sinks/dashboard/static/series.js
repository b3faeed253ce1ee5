// Values of one node over time: from the history in steps of seconds, then live at ten a second, in one line.

import { quoted } from "./format.js";
import { rows } from "./stream.js";

export const METRICS = ["cpu_util", "cpu_pressure", "memory_util", "memory_pressure", "io_pressure", "disk_util", "net_bytes", "disk_bytes", "procs_running"];
const STEPS = 600;
const LIVE_MOST = 9000;

// A list of [time, values] kept in order of time, bounded.
export class Line {
  constructor(width) {
    this.width = width;
    this.times = [];
    this.values = Array.from({ length: width }, () => []);
  }

  // Adds rows that are later than all before, or fills those that are not there yet.
  add(times, values) {
    const last = this.times.at(-1) ?? -Infinity;
    if (times.length && times[0] > last) {
      for (let at = 0; at < times.length; at += 1) {
        this.times.push(times[at]);
        for (let column = 0; column < this.width; column += 1) this.values[column].push(values[column][at]);
      }
    } else if (times.length) this.merge(times, values);
    const excess = this.times.length - LIVE_MOST;
    if (excess > 0) {
      this.times.splice(0, excess);
      for (const column of this.values) column.splice(0, excess);
    }
  }

  // What is there already wins, so live values at full rate stay when coarser ones of the history come behind them.
  merge(times, values) {
    const first = this.times[0] ?? Infinity;
    const inside = this.gaps();
    const wanted = [];
    times.forEach((time, at) => {
      if (time < first || inside.some(([from, to]) => time > from && time < to)) wanted.push(at);
    });
    const all = [
      ...this.times.map((time, at) => [time, (column) => this.values[column][at]]),
      ...wanted.map((at) => [times[at], (column) => values[column][at]]),
    ].sort((one, other) => one[0] - other[0]);
    const columns = this.values.map((_, column) => all.map(([, of]) => of(column)));
    this.times = all.map(([time]) => time);
    this.values = columns;
  }

  gaps() {
    const found = [];
    for (let at = 1; at < this.times.length; at += 1) {
      if (this.times[at] - this.times[at - 1] > 2.5) found.push([this.times[at - 1], this.times[at]]);
    }
    return found;
  }
}

// The part of the history that a range needs; `from` and `to` in seconds.
const within = (node, from, to) => {
  const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
  return `node = ${quoted(node)} AND at_us BETWEEN ${Math.round(from * 1e6)} AND ${Math.round(to * 1e6)} AND date BETWEEN DATE '${day(from)}' AND DATE '${day(to)}'`;
};

const step = (from, to) => Math.max(1, Math.ceil((to - from) / STEPS));

async function columns(sql, names) {
  const found = await rows(sql);
  return [found.map((row) => row.t), names.map((name) => found.map((row) => row[name]))];
}

const bucket = (from, to) => `(at_us // ${step(from, to) * 1000000}) * ${step(from, to)}`;

// Means of metrics in steps, of the table `samples` or `smoothed`.
export function metrics(name, node, from, to) {
  const list = METRICS.map((metric) => `avg(${metric}) AS ${metric}`).join(", ");
  return columns(`SELECT ${bucket(from, to)} AS t, ${list} FROM ${name} WHERE ${within(node, from, to)} GROUP BY 1 ORDER BY 1`, METRICS);
}

export const ESTIMATES = ["available", "lower", "upper", "signal", "cost", "capacity", "churn"];

export function estimates(node, from, to) {
  const list = "avg(available) AS available, avg(lower) AS lower, avg(upper) AS upper, avg(signal) AS signal, avg(cost) AS cost, avg(capacity) AS capacity, avg(churn::INTEGER) AS churn";
  return columns(`SELECT ${bucket(from, to)} AS t, ${list} FROM availability WHERE ${within(node, from, to)} GROUP BY 1 ORDER BY 1`, ESTIMATES);
}

export async function pods(node, from, to) {
  const coarse = Math.max(5, step(from, to));
  const found = await rows(`SELECT (at_us // ${coarse * 1000000}) * ${coarse} AS t, coalesce(workload, name, pod, 'outside pods') AS who, sum(cpu_cores) / count(DISTINCT seq) AS cores `
    + `FROM pods WHERE ${within(node, from, to)} GROUP BY 1, 2 ORDER BY 1`);
  return found;
}

export const events = (node, from, to) => rows(
  `SELECT at_us, event, coalesce(name, container_name, left(container, 12)) AS who, workload FROM containers WHERE ${within(node, from, to)} ORDER BY at_us DESC LIMIT 100`);

// Predictions that state how often they are exceeded; those that know nothing yet state the whole capacity.
export const predictions = (node, from, to) => rows(
  `SELECT at_us, peak_cpu, peak_memory, capacity_cpu, capacity_memory, horizon_seconds, model, violation FROM predictions WHERE ${within(node, from, to)} ORDER BY at_us`);

export const REJECTS = ["score", "threshold", "reject"];

export function rejects(node, from, to) {
  const list = "max(score) AS score, max(threshold) AS threshold, max(reject::INTEGER) AS reject";
  return columns(`SELECT ${bucket(from, to)} AS t, ${list} FROM rejects WHERE ${within(node, from, to)} GROUP BY 1 ORDER BY 1`, REJECTS);
}

// Times and values of predicted peaks within a range, each until the next one or to the end of its horizon.
export function peaks(predictions, of, low, high) {
  const times = [];
  const values = [];
  const put = (time, value) => {
    if (times.length && time <= times.at(-1)) return;
    times.push(time);
    values.push(value);
  };
  predictions.forEach((row, at) => {
    const next = (predictions[at + 1]?.at_us ?? Infinity) / 1e6;
    const begin = Math.max(low, row.at_us / 1e6);
    const end = Math.min(high, row.at_us / 1e6 + row.horizon_seconds, next);
    if (begin >= end) return;
    const value = row.violation >= 1 ? null : of(row);
    put(begin, value);
    put(end - 0.001, value);
    if (end < Math.min(high, next)) put(end, null);
  });
  return [times, values];
}
