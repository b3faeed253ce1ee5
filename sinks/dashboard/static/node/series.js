// What the pages ask the history about one node, in steps of seconds.

import { quoted } from "../base/format.js";
import { step } from "../chart/line.js";
import { LARGEST, pastStep } from "../chart/stack.js";
import { rows } from "../base/stream.js";

export const METRICS = ["cpu_util", "cpu_pressure", "memory_util", "memory_pressure", "io_pressure", "disk_util", "net_bytes", "disk_bytes", "procs_running"];

// The part of the history that a range needs; `from` and `to` in seconds.
const within = (node, from, to) => {
  const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
  return `node = ${quoted(node)} AND at_us BETWEEN ${Math.round(from * 1e6)} AND ${Math.round(to * 1e6)} AND date BETWEEN DATE '${day(from)}' AND DATE '${day(to)}'`;
};

async function columns(sql, names) {
  const found = await rows(sql);
  return { times: found.map((row) => row.t), values: names.map((name) => found.map((row) => row[name])), truncated: found.truncated };
}

const steps = (seconds) => `(at_us // ${seconds * 1000000}) * ${seconds}`;
const bucket = (from, to) => steps(step(from, to));

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

// The newest estimate of the last hour, in the form of a live message: a list of one, or of none.
export async function newest(node, now) {
  const found = await rows(`SELECT at_us, available, lower, upper, binding, cpu_used, cpu_saturation, pods, churn FROM availability WHERE ${within(node, now - 3600, now)} ORDER BY at_us DESC LIMIT 1`);
  return found.map((row) => ({ ...row, usage: { cpu: row.cpu_saturation } }));
}

// Mean cores in steps: of the classes that use most in the range, and of all others together, whose `who` is null.
export function pods(node, from, to) {
  const t = steps(pastStep(from, to));
  const where = within(node, from, to);
  return rows(`WITH used AS (SELECT ${t} AS t, coalesce(workload, name, pod, 'outside pods') AS who, sum(cpu_cores) AS cores FROM pods WHERE ${where} GROUP BY 1, 2),
blocks AS (SELECT ${t} AS t, count(DISTINCT at_us) AS blocks FROM pods WHERE ${where} GROUP BY 1),
largest AS (SELECT who FROM used GROUP BY who ORDER BY sum(cores) DESC NULLS LAST, who LIMIT ${LARGEST})
SELECT t, CASE WHEN who IN (SELECT who FROM largest) THEN who END AS who, sum(cores) / any_value(blocks) AS cores
FROM used JOIN blocks USING (t) GROUP BY 1, 2 ORDER BY 1`);
}

// The newest; `found` of each is the number of all in the range.
export const events = (node, from, to) => rows(
  `SELECT at_us, event, coalesce(name, container_name, left(container, 12)) AS who, workload, count(*) OVER () AS found FROM containers WHERE ${within(node, from, to)} ORDER BY at_us DESC LIMIT 100`);

// Predictions, the newest of each step; of resources that are assumed the peak is the whole machine.
export const predictions = (node, from, to) => rows(
  `SELECT at_us, peak_cpu, peak_memory, capacity_cpu, capacity_memory, horizon_seconds, model, violation, assumed FROM predictions WHERE ${within(node, from, to)} `
  + `QUALIFY row_number() OVER (PARTITION BY ${bucket(from, to)}, horizon_seconds ORDER BY at_us DESC) = 1 ORDER BY at_us`);

export const REJECTS = ["score", "threshold", "reject"];

export function rejects(node, from, to) {
  const list = "max(score) AS score, max(threshold) AS threshold, max(reject::INTEGER) AS reject";
  return columns(`SELECT ${bucket(from, to)} AS t, ${list} FROM rejects WHERE ${within(node, from, to)} GROUP BY 1 ORDER BY 1`, REJECTS);
}

// Whether anything supports the predicted peak of a resource; predictions of before say only that nothing supports both.
export const isKnown = ({ assumed, violation }, resource) => (assumed ? !assumed.includes(resource) : !(violation >= 1));

// Times and values of predicted peaks within a range, each until the next one or to the end of its horizon; `of` returns
// null where a peak is not known.
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
    const value = of(row);
    put(begin, value);
    put(end - 0.001, value);
    if (end < Math.min(high, next)) put(end, null);
  });
  return [times, values];
}
