// Node: raw and smoothed metrics live, what fits with its interval, pods by use, events; one range for all charts.

import { csv } from "../base/csv.js";
import { announce, cut, h, note, replace, shortened, table } from "../base/dom.js";
import { age, amount, brief, bytes, counted, moment, now, percent, resource, stamp, whole } from "../base/format.js";
import { NodeCharts } from "./charts.js";
import { NodeData } from "./data.js";
import { METRICS, isKnown } from "./series.js";
import { follow, isAway, save, saveRecording } from "../base/stream.js";

const RANGES = [[60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"]];
const REFILL_SECONDS = 15; // by then the history has what was measured while the page connected
const RELOAD_SECONDS = 300; // before live values are left out, of which the page keeps those of 15 minutes
const LAST_SECONDS = 253402300799; // of the year 9999
const SILENT_US = 15e6;
const SHOWN_EVENTS = 50;

export const EVENTS = true; // their stream reports the state of the connection

export function open(main, { argument: node, search, report, go, keep, about }) {
  const view = { seconds: seconds(search.get("range")) ?? 300, ...between(seconds(search.get("from")), seconds(search.get("to"))) };
  const data = new NodeData(node);
  about.then(({ reportSeconds = 0 }) => { data.silentSeconds = Math.max(data.silentSeconds, 1.5 * reportSeconds); });
  const head = h("div", { class: "head" });
  const message = h("div", {});
  const buttons = h("div", { class: "ranges", role: "group", "aria-label": "Time range" });
  const plots = h("div", { class: "plots" });
  const pods = h("div", {});
  const happened = h("div", {});
  replace(main, head, message, buttons, plots, h("h2", {}, "Pods"), pods, h("h2", {}, "Containers started and ended"), happened);

  const range = () => (view.from ? [view.from, view.to] : [now() / 1000 - view.seconds, now() / 1000]);
  const time = (us) => stamp(...range(), now() / 1000)(us);
  const load = () => data.load(...range());
  const charts = new NodeCharts(plots, data, (from, to) => {
    Object.assign(view, { from, to });
    keep({ from: from.toFixed(1), to: to.toFixed(1) });
    load();
    drawButtons();
  });

  function drawButtons() {
    const live = !view.from;
    const choose = (seconds) => () => {
      Object.assign(view, { seconds, from: null, to: null });
      keep({ range: String(seconds), from: "", to: "" });
      load();
      drawButtons();
    };
    replace(buttons, RANGES.map(([seconds, title]) => h("button", { type: "button", "aria-pressed": String(live && seconds === view.seconds), onclick: choose(seconds) }, title)),
      h("span", { class: "quiet" }, live ? "live; drag over a chart to look closer" : `${time(view.from * 1e6)} to ${time(view.to * 1e6)}; choose a range to go on live`),
      h("button", { type: "button", onclick: () => saveTable(node, data.raw.within(...range())) }, "Save as CSV"), h("button", { type: "button", onclick: savePage }, "Save as a page"));
  }

  async function savePage(event) {
    const button = event.target;
    button.disabled = true;
    await saveRecording(...range(), node).catch((error) => { data.failure = error.message; });
    button.disabled = false;
  }

  function draw() {
    replace(head, h("h1", {}, node), h("a", { class: "quiet", href: go("cluster", "", { node }) }, "in the cluster"),
      h("dl", { class: "facts" }, facts(data).map(([title, text]) => h("div", {}, h("dt", {}, title), h("dd", {}, text)))));
    announce(message, ...notes(data));
    plots.hidden = !data.reported;
    if (!data.dirty && view.from) return;
    data.dirty = false;
    charts.draw(...range());
  }

  function list() {
    replace(pods, podTable(data.newest.pods));
    replace(happened, eventTable(data.events(...range()), data.eventsLeft, time));
  }

  let refilling = 0;
  // Reads the history after a pause of the live messages, and once more when it has the last ones before them.
  async function refill() {
    clearTimeout(refilling);
    refilling = setTimeout(load, REFILL_SECONDS * 1000);
    await load();
    list();
  }
  const stop = follow(`/api/node/${encodeURIComponent(node)}`, data.handlers(), (state) => {
    data.away = isAway(state);
    if (state === "live" || (state !== "connecting" && !data.asked)) about.then(refill);
    report(state);
  });
  const observer = new ResizeObserver(() => charts.size());
  observer.observe(plots);
  const drawing = setInterval(draw, 500);
  const listing = setInterval(list, 2000);
  const reloading = setInterval(() => { if (!document.hidden) load(); }, RELOAD_SECONDS * 1000);
  drawButtons();
  draw();
  return {
    close() {
      stop();
      observer.disconnect();
      for (const timer of [drawing, listing, reloading]) clearInterval(timer);
      clearTimeout(refilling);
      charts.close();
    },
    repaint() {
      charts.build();
      data.dirty = true;
      draw();
    },
  };
}

// Seconds of an address that a date can have; null: there are none.
function seconds(text) {
  const number = Number(text);
  return number > 0 && number <= LAST_SECONDS ? number : null;
}

// A range from one time to a later one; without both, the page is live.
const between = (from, to) => (from && to && from < to ? { from, to } : { from: null, to: null });

const silence = ({ at_us }) => now() * 1000 - at_us;

function facts({ newest: { availability, reject }, machine, predictions }) {
  const found = [];
  if (availability) {
    found.push(["Fit, at least", whole(availability.lower)], ["Expected", amount(availability.available)], ["At most", amount(availability.upper)], ["Runs out first", resource(availability.binding)],
      ["CPU in use", percent(availability.cpu_used)], ["CPU saturation", percent(availability.usage.cpu)], ["Running pods", whole(availability.pods)],
      ["Measured", `${age(silence(availability) / 1e6)} ago`]);
  }
  if (machine.cpus) found.push(["Machine", `${counted(machine.cpus, "CPU")}, ${bytes(machine.memory_bytes)}`]);
  if (reject) found.push(["Takes new work", reject.reject ? `no, for ${age((now() * 1000 - reject.since_us) / 1e6)}` : "yes"]);
  const prediction = predictions.at(-1);
  if (prediction) found.push([`Peak within ${age(prediction.horizon_seconds)}`, peak(prediction)]);
  return found;
}

function peak(prediction) {
  const [cpu, memory] = ["cpu", "memory"].map((name) => isKnown(prediction, name));
  if (!cpu && !memory) return "not known yet";
  return `${cpu ? `${amount(prediction.peak_cpu, 2)} CPUs` : "CPU not known yet"}, ${memory ? bytes(prediction.peak_memory) : "memory not known yet"}`;
}

function notes({ away, failure, answers, reported, newest: { availability } }) {
  const missing = failure ? note("quiet-note", "No history", failure) : shortened(...answers);
  if (away) return [missing];
  if (!failure && !reported && answers.length) {
    return [note("wait", "No node of this name is known", "The history has nothing of it in this range or in the last hour, and no agent reports under this name. The page shows it as soon as one does.")];
  }
  return [missing,
    availability ? null : note("wait", "Waiting for this node", "It shows when its agent publishes; a new node has its first number after about eight seconds."),
    availability && silence(availability) > SILENT_US ? note("error", "This node is silent", `Its last block is of ${moment(availability.at_us)}.`) : null,
    availability?.churn ? note("quiet-note", "Containers start or end", "The estimator does not learn from the shaded seconds.") : null];
}

function podTable(block) {
  if (!block) return h("p", { class: "quiet" }, "No usage of pods yet.");
  const at = (name, index) => block[name]?.[index];
  const rows = block.pods.map((uid, index) => ({
    name: at("names", index) ?? uid, namespace: at("namespaces", index), workload: at("workloads", index), cpu: at("cpu_cores", index), memory: at("memory_bytes", index),
    pressure: at("cpu_pressure", index), throttled: at("throttled", index),
  })).sort((one, other) => (other.cpu ?? 0) - (one.cpu ?? 0));
  if (!rows.length) return h("p", { class: "quiet" }, "No pod runs here.");
  return table([
    { title: "Pod", of: (row) => brief(row.name) }, { title: "Namespace", of: (row) => row.namespace }, { title: "Class", of: (row) => brief(row.workload) },
    { title: "CPU", number: true, of: (row) => amount(row.cpu, 2) }, { title: "Memory", number: true, of: (row) => bytes(row.memory) },
    { title: "Waits for CPU", number: true, of: (row) => percent(row.pressure) }, { title: "Throttled", number: true, of: (row) => percent(row.throttled) },
  ], rows, { caption: "Pods" });
}

function eventTable(events, left, time) {
  if (!events.length) return h("p", { class: "quiet" }, "None in this range.");
  return [cut("events", SHOWN_EVENTS, events.length + left, "newest"), table([
    { title: "Time", of: (row) => time(row.at_us) }, { title: "Event", of: (row) => row.event }, { title: "Container", of: (row) => brief(row.who) }, { title: "Class", of: (row) => brief(row.workload) },
  ], events.slice(0, SHOWN_EVENTS), { caption: "Containers started and ended" })];
}

function saveTable(node, { times, values }) {
  const rows = times.map((time, at) => [new Date(time * 1000).toISOString(), ...values.map((column) => column[at])]);
  save(new Blob([csv(["time", ...METRICS], rows)], { type: "text/csv" }), `${node}.csv`);
}
