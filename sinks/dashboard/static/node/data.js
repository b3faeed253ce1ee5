// What the page of a node knows: its history in the range on screen, and its live messages beside it.

import { now } from "../base/format.js";
import * as series from "./series.js";
import { SILENT_SECONDS } from "../chart/gap.js";
import { Line } from "../chart/line.js";
import { Stack } from "../chart/stack.js";

const HORIZON_SECONDS = 3600; // before the range, for predictions that hold in it
const PREDICTIONS = 2000;
const EVENTS = 200;

export class NodeData {
  constructor(node) {
    this.node = node;
    this.raw = new Line(series.METRICS.length);
    this.smooth = new Line(series.METRICS.length);
    this.estimate = new Line(series.ESTIMATES.length);
    this.rejecting = new Line(series.REJECTS.length);
    this.usage = new Stack();
    this.past = { predictions: [], events: [] };
    this.live = { predictions: [], events: [] };
    this.predictions = [];
    this.newest = { availability: null, pods: null, reject: null };
    this.machine = {};
    this.silentSeconds = SILENT_SECONDS; // without an estimate, until which a line goes on
    this.answers = [];
    this.failure = "";
    this.reported = false; // whether anything of the node has come, of the history or live
    this.away = false; // whether live messages cannot come, whatever the node does
    this.dirty = true;
    this.asked = 0;
  }

  // Reads the history of a range; if another range is asked for meanwhile, the answer is dropped.
  async load(from, to) {
    const asked = ++this.asked;
    const { node } = this;
    try {
      const answers = await Promise.all([
        series.metrics("samples", node, from, to), series.metrics("smoothed", node, from, to), series.estimates(node, from, to), series.rejects(node, from, to),
        series.pods(node, from, to), series.events(node, from, to), series.predictions(node, from - HORIZON_SECONDS, to),
        series.newest(node, now() / 1000)]);
      if (asked !== this.asked) return;
      const [raw, smooth, estimate, rejecting, used, events, predictions, [newest]] = answers;
      this.raw.remember(raw);
      this.smooth.remember(smooth);
      this.estimate.remember(estimate);
      this.rejecting.remember(rejecting);
      this.usage.remember(used);
      this.past = { events, predictions };
      this.newest.availability ??= newest ?? null; // until the next live one, which comes within four seconds
      this.join();
      this.answers = answers;
      this.reported ||= answers.some((answer) => (answer.times ?? answer).length > 0);
      this.failure = "";
    } catch (error) {
      if (asked !== this.asked) return;
      this.failure = error.message;
    }
    this.dirty = true;
  }

  // Predictions of history and bus in order of time, each once.
  join() {
    const all = new Map([...this.past.predictions, ...this.live.predictions].map((row) => [row.at_us, row]));
    this.predictions = [...all.values()].sort((one, other) => one.at_us - other.at_us);
  }

  // Containers that started or ended in a range, the newest first.
  events(low, high) {
    const all = new Map([...this.past.events, ...this.live.events].map((row) => [`${row.at_us} ${row.event} ${row.who}`, row]));
    return [...all.values()].filter((row) => row.at_us >= low * 1e6 && row.at_us <= high * 1e6).sort((one, other) => other.at_us - one.at_us);
  }

  // Older containers of the range that the history has, and that were not read.
  get eventsLeft() {
    return this.past.events.length ? this.past.events[0].found - this.past.events.length : 0;
  }

  // What takes the live messages, by kind.
  handlers() {
    const taking = {
      samples: (block) => this.takeBlock(this.raw, block), smoothed: (block) => this.takeBlock(this.smooth, block),
      availability: (row) => this.takeAvailability(row), reject: (row) => this.takeReject(row),
      pods: (block) => this.takePods(block), containers: (event) => this.takeEvent(event), prediction: (row) => this.takePrediction(row),
    };
    return Object.fromEntries(Object.entries(taking).map(([kind, take]) => [kind, (message) => {
      take(message);
      this.reported = true;
      this.dirty = true;
    }]));
  }

  takeBlock(line, block) {
    if (block.cpus) this.machine = block;
    const width = block.metrics.length;
    const times = Array.from({ length: Math.floor(block.values.length / width) }, (_, at) => (block.at_us + at * block.step_us) / 1e6);
    const columns = series.METRICS.map((name) => block.metrics.indexOf(name));
    line.add(times, columns.map((at) => times.map((_, row) => (at < 0 ? null : block.values[row * width + at]))));
  }

  takeAvailability(row) {
    this.newest.availability = row;
    this.estimate.add([row.at_us / 1e6], series.ESTIMATES.map((name) => [name === "churn" ? Number(row.churn) : row[name]]));
  }

  takeReject(row) {
    this.newest.reject = row;
    this.rejecting.add([row.at_us / 1e6], [[row.score], [row.threshold], [Number(row.reject)]]);
  }

  takePods(block) {
    this.newest.pods = block;
    const used = block.pods.map((uid, at) => [block.workloads[at] ?? block.names[at] ?? uid, block.cpu_cores[at] ?? 0]);
    this.usage.add(Math.round(block.at_us / 1e6), [...used, ["outside pods", block.system_cpu_cores ?? 0]]);
  }

  takeEvent({ at_us, event, name, container_name, container, workload }) {
    this.live.events = [{ at_us, event, who: name ?? container_name ?? container.slice(0, 12), workload }, ...this.live.events].slice(0, EVENTS);
  }

  takePrediction({ at_us, horizon_seconds, violation, assumed, peak, capacity }) {
    const row = { at_us, horizon_seconds, violation, assumed, peak_cpu: peak.cpu, peak_memory: peak.memory, capacity_cpu: capacity.cpu, capacity_memory: capacity.memory };
    this.live.predictions = [...this.live.predictions, row].slice(-PREDICTIONS);
    this.join();
  }
}
