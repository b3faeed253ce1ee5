// Node: raw and smoothed metrics live, what fits with its interval, pods by use, events; one range for all charts.

import { h, note, replace, table } from "./dom.js";
import { age, amount, bytes, clock, now, percent, resource, whole } from "./format.js";
import { Chart } from "./chart.js";
import * as series from "./series.js";
import { follow, save, saveRecording } from "./stream.js";

const RANGES = [[60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"]];
const HORIZON_SECONDS = 3600; // before the range, for predictions that hold in it
const REFILL_SECONDS = 15; // by then the history has what was measured while the page opened

export function open(main, { argument: node, search, report, go, keep, about }) {
  const seconds = Number(search.get("range") ?? 300);
  const view = { seconds, from: Number(search.get("from")) || null, to: Number(search.get("to")) || null };
  const raw = new series.Line(series.METRICS.length);
  const smooth = new series.Line(series.METRICS.length);
  const estimate = new series.Line(series.ESTIMATES.length);
  const rejecting = new series.Line(series.REJECTS.length);
  const usage = { times: [], who: new Map() };
  let newest = null;
  let newestPods = null;
  let newestReject = null;
  let predictions = [];
  let events = [];
  let failure = "";
  let dirty = true;
  let machine = {};

  const head = h("div", { class: "head" });
  const message = h("div", {});
  const buttons = h("div", { class: "ranges", role: "group", "aria-label": "Time range" });
  const plots = h("div", { class: "plots" });
  const pods = h("div", {});
  const happened = h("div", {});
  replace(main, head, message, buttons, plots, h("h2", {}, "Pods"), pods, h("h2", {}, "Containers started and ended"), happened);

  const brush = (from, to) => {
    view.from = from;
    view.to = to;
    keep({ from: from.toFixed(1), to: to.toFixed(1) });
    load();
    drawButtons();
  };
  const place = () => plots.appendChild(h("figure", {}));
  const column = (name) => series.METRICS.indexOf(name);
  const spans = () => spansOf(estimate, 6, 3);
  const ratio = (value) => percent(value);
  const two = (title, name, format, options = {}) => {
    const chart = new Chart(place(), { title, format, shade: spans, brush, series: [{ label: "raw", colour: "raw", width: 1 }, { label: "smoothed", colour: "c1", width: 2 }], ...options });
    return { chart, data: () => aligned([raw, column(name)], [smooth, column(name)]) };
  };
  // With what was predicted, as a share of the machine.
  const three = (title, name, share) => {
    const series3 = [{ label: "raw", colour: "raw", width: 1 }, { label: "smoothed", colour: "c1", width: 2 }, { label: "predicted peak", colour: "c2", width: 1.5, dash: [6, 4] }];
    const { chart } = two(title, name, ratio, { max: 1.02, series: series3 });
    return { chart, data: (low, high) => aligned([raw, column(name)], [smooth, column(name)], series.peaks(predictions, share, low, high)) };
  };
  const available = new Chart(place(), { title: "Pods that fit", format: (value) => amount(value), shade: spans, brush, height: 200,
    series: [{ label: "at most", colour: "band", width: 1, band: 1 }, { label: "at least", colour: "band", width: 1 }, { label: "expected", colour: "c1", width: 2 }] });
  const stacked = { chart: null, names: [] };
  const stackedPlace = place();
  const charts = [
    { chart: available, data: () => [estimate.times, estimate.values[2], estimate.values[1], estimate.values[0]] },
    three("CPU in use", "cpu_util", (row) => row.peak_cpu / (machine.cpus ?? row.capacity_cpu)), two("CPU pressure", "cpu_pressure", ratio, { floor: 0.05 }),
    three("Memory in use", "memory_util", (row) => row.peak_memory / (machine.memory_bytes ?? row.capacity_memory)), two("Disk in use", "disk_util", ratio, { floor: 0.05 }),
    two("Network", "net_bytes", (value) => `${bytes(value)}/s`), two("Runnable threads", "procs_running", (value) => amount(value, 0)),
    { chart: new Chart(place(), { title: "Signal, and cost of one pod", format: (value) => amount(value, 3), shade: spans, brush, series: [{ label: "signal", colour: "c1" }, { label: "cost", colour: "c2" }, { label: "capacity", colour: "c3" }] }),
      data: () => [estimate.times, estimate.values[3], estimate.values[4], estimate.values[5]] },
    { chart: new Chart(place(), { title: "Reject signal", format: ratio, max: 1.02, shade: () => spansOf(rejecting, 2, 5), brush, series: [{ label: "score", colour: "c1", width: 2 }, { label: "threshold", colour: "c2", dash: [6, 4] }] }),
      data: () => [rejecting.times, rejecting.values[0], rejecting.values[1]] },
  ];

  const range = () => (view.from ? [view.from, view.to] : [now() / 1000 - view.seconds, now() / 1000]);

  function drawButtons() {
    const live = !view.from;
    replace(buttons, RANGES.map(([value, title]) => h("button", { type: "button", "aria-pressed": String(live && value === view.seconds), onclick: () => {
      view.seconds = value;
      view.from = view.to = null;
      keep({ range: String(value), from: "", to: "" });
      load();
      drawButtons();
    } }, title)), h("span", { class: "quiet" }, live ? "live; drag over a chart to look closer" : `${clock(view.from * 1e6)} to ${clock(view.to * 1e6)}; choose a range to go on live`),
    h("button", { type: "button", onclick: saveTable }, "Save as CSV"), h("button", { type: "button", onclick: savePage }, "Save as a page"));
  }

  function drawHead() {
    const facts = [];
    if (newest) {
      facts.push(["Fit, at least", whole(newest.lower)], ["Expected", `${amount(newest.available)}`], ["At most", amount(newest.upper)], ["Runs out first", resource(newest.binding)],
        ["CPU in use", percent(newest.cpu_used)], ["CPU saturation", percent(newest.usage.cpu)], ["Running pods", whole(newest.pods)], ["Measured", `${age((now() * 1000 - newest.at_us) / 1e6)} ago`]);
    }
    if (machine.cpus) facts.push(["Machine", `${machine.cpus} CPUs, ${bytes(machine.memory_bytes)}`]);
    const prediction = predictions.at(-1);
    if (newestReject) facts.push(["Takes new work", newestReject.reject ? `no, for ${age((now() * 1000 - newestReject.since_us) / 1e6)}` : "yes"]);
    if (prediction) facts.push([`Peak within ${age(prediction.horizon_seconds)}`, prediction.violation >= 1 ? "not known until one has settled"
        : `${amount(prediction.peak_cpu, 2)} CPUs, ${bytes(prediction.peak_memory)}`]);
    replace(head, h("h1", {}, node), h("a", { class: "quiet", href: go("cluster", "", { node }) }, "in the cluster"), h("dl", { class: "facts" }, facts.map(([title, text]) => h("div", {}, h("dt", {}, title), h("dd", {}, text)))));
    const silent = newest && now() * 1000 - newest.at_us > 15e6;
    replace(message, failure ? note("quiet-note", "No history", failure) : null,
      !newest ? note("wait", "Waiting for this node", "It shows when its agent publishes; a new node has its first number after about eight seconds.") : null,
      silent ? note("error", "This node is silent", `Its last block is ${age((now() * 1000 - newest.at_us) / 1e6)} old.`) : null,
      newest?.churn ? note("quiet-note", "Containers start or end", "The estimator does not learn from the shaded seconds.") : null);
  }

  function drawPods() {
    if (!newestPods) return replace(pods, h("p", { class: "quiet" }, "No usage of pods yet."));
    const at = (name, index) => newestPods[name]?.[index];
    const rows = newestPods.pods.map((uid, index) => ({
      name: at("names", index) ?? uid, namespace: at("namespaces", index), workload: at("workloads", index), cpu: at("cpu_cores", index), memory: at("memory_bytes", index),
      pressure: at("cpu_pressure", index), throttled: at("throttled", index),
    })).sort((one, other) => (other.cpu ?? 0) - (one.cpu ?? 0));
    replace(pods, !rows.length ? h("p", { class: "quiet" }, "No pod runs here.") : table([
      { title: "Pod", of: (row) => row.name }, { title: "Namespace", of: (row) => row.namespace }, { title: "Class", of: (row) => row.workload },
      { title: "CPU", number: true, of: (row) => amount(row.cpu, 2) }, { title: "Memory", number: true, of: (row) => bytes(row.memory) },
      { title: "Waits for CPU", number: true, of: (row) => percent(row.pressure) }, { title: "Throttled", number: true, of: (row) => percent(row.throttled) },
    ], rows, { caption: "Pods" }));
  }

  function drawEvents() {
    replace(happened, !events.length ? h("p", { class: "quiet" }, "None in this range.") : table([
      { title: "Time", of: (row) => clock(row.at_us) }, { title: "Event", of: (row) => row.event }, { title: "Container", of: (row) => row.who }, { title: "Class", of: (row) => row.workload },
    ], events.slice(0, 50), { caption: "Containers started and ended" }));
  }

  function drawCharts() {
    const [low, high] = range();
    for (const { chart, data } of charts) chart.set(cut(data(low, high), low, high), [low, high]);
    drawStack(low, high);
  }

  function drawStack(low, high) {
    const totals = [...usage.who.entries()].map(([who, values]) => [who, values.reduce((sum, value) => sum + (value ?? 0), 0)]).sort((one, other) => other[1] - one[1]).slice(0, 7);
    const names = totals.map(([who]) => who);
    if (names.join("\n") !== stacked.names.join("\n") || !stacked.chart) {
      stacked.names = names;
      stacked.chart?.close();
      stacked.chart = new Chart(stackedPlace, { title: "CPU of pods, by class", format: (value) => amount(value, 2), stacked: true, brush, shade: spans, series: names.length ? names.map((label) => ({ label })) : [{ label: "no pods" }] });
    }
    const data = [usage.times, ...(names.length ? names.map((who) => usage.who.get(who)) : [usage.times.map(() => 0)])];
    stacked.chart.set(cut(data, low, high), [low, high]);
  }

  function takeUsage(rows) {
    for (const { t, who, cores } of rows) {
      let at = usage.times.length - 1;
      while (at >= 0 && usage.times[at] > t) at -= 1;
      if (usage.times[at] !== t) {
        at += 1;
        usage.times.splice(at, 0, t);
        for (const values of usage.who.values()) values.splice(at, 0, null);
      }
      if (!usage.who.has(who)) usage.who.set(who, usage.times.map(() => null));
      usage.who.get(who)[at] = (usage.who.get(who)[at] ?? 0) + cores;
    }
  }

  async function load() {
    const [from, to] = range();
    try {
      const [past, smoothed, numbers, used, list, predicted, rejects] = await Promise.all([
        series.metrics("samples", node, from, to), series.metrics("smoothed", node, from, to), series.estimates(node, from, to), series.pods(node, from, to), series.events(node, from, to), series.predictions(node, from - HORIZON_SECONDS, to), series.rejects(node, from, to)]);
      raw.add(...past);
      smooth.add(...smoothed);
      estimate.add(...numbers);
      takeUsage(used.filter((row) => !usage.times.includes(row.t)));
      events = merged(events, list);
      predictions = joined(predicted, predictions);
      rejecting.add(...rejects);
      failure = "";
    } catch (error) {
      failure = error.message;
    }
    dirty = true;
  }

  const takeBlock = (line) => (block) => {
    machine = block.cpus ? block : machine;
    const width = block.metrics.length;
    const count = Math.floor(block.values.length / width);
    const times = Array.from({ length: count }, (_, at) => (block.at_us + at * block.step_us) / 1e6);
    const values = series.METRICS.map((name) => {
      const at = block.metrics.indexOf(name);
      return times.map((_, row) => (at < 0 ? null : block.values[row * width + at]));
    });
    line.add(times, values);
    dirty = true;
  };

  const stop = follow(`/api/node/${encodeURIComponent(node)}`, {
    samples: takeBlock(raw),
    smoothed: takeBlock(smooth),
    availability: (row) => {
      newest = row;
      estimate.add([row.at_us / 1e6], series.ESTIMATES.map((name) => [name === "churn" ? Number(row.churn) : row[name]]));
      dirty = true;
    },
    pods: (block) => {
      newestPods = block;
      const t = Math.round(block.at_us / 1e6);
      const used = block.pods.map((uid, index) => ({ t, who: block.workloads[index] ?? block.names[index] ?? uid, cores: block.cpu_cores[index] ?? 0 }));
      takeUsage([...used, { t, who: "outside pods", cores: block.system_cpu_cores ?? 0 }]);
      dirty = true;
    },
    containers: (event) => {
      events = merged([{ at_us: event.at_us, event: event.event, who: event.name ?? event.container_name ?? event.container.slice(0, 12), workload: event.workload }], events);
      dirty = true;
    },
    prediction: (row) => {
      predictions = joined(predictions, [{ at_us: row.at_us, horizon_seconds: row.horizon_seconds, violation: row.violation, peak_cpu: row.peak.cpu, peak_memory: row.peak.memory, capacity_cpu: row.capacity.cpu, capacity_memory: row.capacity.memory }]);
      dirty = true;
    },
    reject: (row) => {
      newestReject = row;
      rejecting.add([row.at_us / 1e6], [[row.score], [row.threshold], [Number(row.reject)]]);
      dirty = true;
    },
  }, report);

  function draw() {
    drawHead();
    if (!dirty && view.from) return;
    dirty = false;
    drawCharts();
  }

  function saveTable() {
    const lines = [["time", ...series.METRICS].join(","), ...raw.times.map((time, at) => [new Date(time * 1000).toISOString(), ...raw.values.map((values) => values[at] ?? "")].join(","))];
    save(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }), `${node}.csv`);
  }

  async function savePage(event) {
    const button = event.target;
    button.disabled = true;
    await saveRecording(...range(), node).catch((error) => { failure = error.message; });
    button.disabled = false;
  }

  const observer = new ResizeObserver(() => { for (const { chart } of charts) chart.size(); stacked.chart?.size(); });
  observer.observe(plots);
  const drawing = setInterval(draw, 500);
  const listing = setInterval(() => { drawPods(); drawEvents(); }, 2000);
  const refilling = setTimeout(load, REFILL_SECONDS * 1000);
  about.then(() => load()).then(() => { drawPods(); drawEvents(); });
  drawButtons();
  draw();
  return {
    close() {
      stop();
      observer.disconnect();
      clearInterval(drawing);
      clearInterval(listing);
      clearTimeout(refilling);
      for (const { chart } of charts) chart.close();
      stacked.chart?.close();
    },
    repaint() {
      for (const { chart } of charts) chart.build();
      stacked.chart?.build();
      dirty = true;
      draw();
    },
  };
}

// Spans [from, to] in which a column is not 0, over gaps of so many seconds: of churn, or in which a node rejects.
function spansOf(line, column, gap) {
  const spans = [];
  line.times.forEach((time, at) => {
    if (!line.values[column][at]) return;
    const last = spans.at(-1);
    if (last && time - last[1] < gap) last[1] = time;
    else spans.push([time - 0.5, time]);
  });
  return spans;
}

// Columns of lines, and further columns, over the union of their times.
function aligned([one, first], [other, second], ...further) {
  return uPlot.join([[one.times, one.values[first]], [other.times, other.values[second]], ...further]);
}

function cut(data, low, high) {
  const times = data[0];
  let from = 0;
  while (from < times.length && times[from] < low - 5) from += 1;
  let to = times.length;
  while (to > from && times[to - 1] > high + 5) to -= 1;
  return data.map((column) => column.slice(from, to));
}

// Predictions of both in order of time, each once.
function joined(one, other) {
  const all = new Map([...one, ...other].map((row) => [row.at_us, row]));
  return [...all.values()].sort((first, second) => first.at_us - second.at_us).slice(-2000);
}

function merged(one, other) {
  const seen = new Set();
  return [...one, ...other].filter((row) => {
    const key = `${row.at_us} ${row.event} ${row.who}`;
    return seen.has(key) ? false : seen.add(key);
  }).sort((first, second) => second.at_us - first.at_us).slice(0, 200);
}
