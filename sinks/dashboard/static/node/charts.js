// The charts of a node, all over one range, with seconds of churn shaded.

import { amount, brief, bytes, percent } from "../base/format.js";
import { h } from "../base/dom.js";
import { Chart } from "../chart/chart.js";
import { gapped } from "../chart/gap.js";
import { spans, step } from "../chart/line.js";
import * as series from "./series.js";

const RAW = { label: "raw", colour: "raw", width: 1 };
const SMOOTH = { label: "smoothed", colour: "c1", width: 2 };
const PEAK = { label: "predicted peak", colour: "c2", width: 1.5, dash: [6, 4] };
const ROOM = [{ label: "at most", colour: "band", width: 1, band: 1 }, { label: "at least", colour: "band", width: 1 }, { label: "expected", colour: "c1", width: 2 }];
const SIGNAL = [{ label: "signal", colour: "c1" }];
const COST = [{ label: "cost", colour: "c2" }, { label: "capacity", colour: "c3" }];
const SCORE = [{ label: "score", colour: "c1", width: 2 }, { label: "threshold", colour: "c2", dash: [6, 4] }];

export class NodeCharts {
  // `brush` is called with the range that is drawn over a chart.
  constructor(place, data, brush) {
    this.place = place;
    this.data = data;
    this.brush = brush;
    this.churning = [];
    this.rejecting = [];
    this.charts = [];
    this.add("Pods that fit", (value) => amount(value), ROOM, ({ estimate }) => estimated(estimate, "upper", "lower", "available"), { height: 200 });
    this.stack = { names: null, chart: null, place: place.appendChild(h("figure", {})) };
    const share = (resource, size) => (row) => (series.isKnown(row, resource) ? row[`peak_${resource}`] / (data.machine[size] ?? row[`capacity_${resource}`]) : null);
    this.measured("CPU in use", "cpu_util", percent, { max: 1.02 }, share("cpu", "cpus"));
    this.measured("CPU pressure", "cpu_pressure", percent, { floor: 0.05 });
    this.measured("Memory in use", "memory_util", percent, { max: 1.02 }, share("memory", "memory_bytes"));
    this.measured("Disk in use", "disk_util", percent, { floor: 0.05 });
    this.measured("Network", "net_bytes", (value) => `${bytes(value)}/s`, { binary: true });
    this.measured("Runnable threads", "procs_running", (value) => amount(value, 0));
    this.add("Signal", (value) => amount(value, 3), SIGNAL, ({ estimate }) => estimated(estimate, "signal"));
    this.add("Capacity, and cost of one pod", (value) => amount(value, 3), COST, ({ estimate }) => estimated(estimate, "cost", "capacity"));
    this.add("Reject signal", percent, SCORE, ({ rejecting }) => [rejecting.times, rejecting.values[0], rejecting.values[1]], { max: 1.02, shade: () => this.rejecting });
  }

  add(title, format, lines, of, options = {}) {
    const chart = new Chart(this.place.appendChild(h("figure", {})), { title, format, series: lines, brush: this.brush, shade: () => this.churning, ...options });
    this.charts.push({ chart, of });
  }

  // A metric as it was measured and smoothed; with `share` also what was predicted, as a share of the machine.
  measured(title, name, format, options, share) {
    const column = series.METRICS.indexOf(name);
    this.add(title, format, share ? [RAW, SMOOTH, PEAK] : [RAW, SMOOTH], ({ raw, smooth }, low, high) => uPlot.join([
      [raw.times, raw.values[column]], [smooth.times, smooth.values[column]], ...(share ? [series.peaks(this.data.predictions, share, low, high)] : [])]), options);
  }

  draw(low, high) {
    const seconds = step(low, high);
    const silent = { estimate: this.data.silentSeconds, rejecting: this.data.silentSeconds };
    const parts = Object.fromEntries(["raw", "smooth", "estimate", "rejecting"].map((name) => [name, gapped(this.data[name].within(low, high), seconds, silent[name])]));
    this.churning = spans(parts.estimate, series.ESTIMATES.indexOf("churn"), Math.max(3, 1.5 * seconds));
    this.rejecting = spans(parts.rejecting, series.REJECTS.indexOf("reject"), Math.max(5, 1.5 * seconds));
    for (const { chart, of } of this.charts) chart.set(of(parts, low, high), [low, high]);
    this.drawStack(low, high);
  }

  drawStack(low, high) {
    const { names, data } = this.data.usage.within(low, high);
    if (names.join("\n") !== this.stack.names) {
      this.stack.names = names.join("\n");
      this.stack.chart?.close();
      this.stack.chart = new Chart(this.stack.place, { title: "CPU of pods, by class", format: (value) => amount(value, 2), stacked: true, brush: this.brush, shade: () => this.churning,
        series: names.length ? names.map((label) => ({ label: brief(label) })) : [{ label: "no pods" }] });
    }
    this.stack.chart.set(names.length ? data : [...data, data[0].map(() => 0)], [low, high]);
  }

  all() {
    return [...this.charts.map(({ chart }) => chart), ...(this.stack.chart ? [this.stack.chart] : [])];
  }

  size() {
    for (const chart of this.all()) chart.size();
  }

  build() {
    for (const chart of this.all()) chart.build();
  }

  close() {
    for (const chart of this.all()) chart.close();
  }
}

const estimated = (part, ...names) => [part.times, ...names.map((name) => part.values[series.ESTIMATES.indexOf(name)])];
