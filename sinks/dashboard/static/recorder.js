// The flight recorder: a file that holds this script with those it imports, and the series of all nodes of a period.

import { amount, counted, moment, percent, resource, stamp, whole } from "./base/format.js";
import { cut, h, replace, table } from "./base/dom.js";
import { Chart } from "./chart/chart.js";
import { SILENT_SECONDS, gapped } from "./chart/gap.js";

const ROWS = 200;
const LEAST_ROW = 3;
const MOST_ROW = 18;
const MAPS = {
  cpu: { title: "CPU in use", of: (node) => [node.samples, "cpu"], share: (value) => value },
  memory: { title: "Memory in use", of: (node) => [node.samples, "memory"], share: (value) => value },
  lower: { title: "Pods that fit at least", of: (node) => [node.availability, "lower"], share: (value) => 1 / (1 + value / 4) },
};

function record(main, recording) {
  const state = { shown: null, from: recording.from, to: recording.to, text: "", map: "cpu", charts: [] };
  const box = h("input", { type: "search", placeholder: "filter nodes", "aria-label": "Filter nodes", oninput: (event) => { state.text = event.target.value.toLowerCase(); list(); } });
  const kind = h("select", { "aria-label": "Colour by", onchange: (event) => { state.map = event.target.value; paint(); } },
    Object.entries(MAPS).map(([value, { title }]) => h("option", { value }, title)));
  const canvas = h("canvas", { class: "grid", role: "img", "aria-label": "All nodes over time, the node with least room first" });
  const tip = h("p", { class: "quiet", role: "status" }, "A row is a node, the one with least room first; the darker the busier. Click one to see it below.");
  const body = h("div", {});
  const detail = h("div", {});
  const theme = h("button", { type: "button", onclick: () => { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); paint(); show(); } }, "Theme");
  const time = stamp(recording.from, recording.to, recording.from);
  const left = recording.found - recording.nodes.length;
  replace(main, h("h1", {}, `spazio, ${moment(recording.from * 1e6)} to ${time(recording.to * 1e6)}`),
    h("p", { class: "quiet" }, `${counted(recording.nodes.length, "node")}${left ? ` with least room; ${whole(left)} more are left out` : ""}, in steps of ${amount(recording.step, 0)} s. Made ${recording.made} by spazio ${recording.release}; this file loads nothing.`),
    h("div", { class: "controls" }, kind, box, theme), h("div", { class: "holder scroll" }, canvas), tip, detail, h("h2", {}, "Nodes"), body,
    h("h2", {}, "Decisions"), decisions(recording, time), h("h2", {}, "Containers started and ended"), events(recording, time));

  const count = Math.max(1, Math.ceil((recording.to - recording.from) / recording.step));
  const height = Math.max(LEAST_ROW, Math.min(MOST_ROW, Math.floor(420 / recording.nodes.length)));

  function paint() {
    canvas.width = count;
    canvas.height = recording.nodes.length;
    canvas.style.height = `${height * recording.nodes.length}px`;
    canvas.style.imageRendering = "pixelated";
    const context = canvas.getContext("2d");
    const image = context.createImageData(count, recording.nodes.length);
    const { of, share } = MAPS[state.map];
    recording.nodes.forEach((node, row) => {
      const [part, name] = of(node);
      if (!part) return;
      part.steps.forEach((step, at) => {
        if (part[name][at] === null) return;
        // Up to the next step with a value, as far as the node was not silent.
        const end = Math.min(part.steps[at + 1] ?? step + 1, step + Math.max(1, Math.ceil(SILENT_SECONDS / recording.step)), count);
        const colour = shade(share(part[name][at]));
        for (let x = step; x < end; x += 1) image.data.set(colour, 4 * (row * count + x));
      });
    });
    context.putImageData(image, 0, 0);
  }

  const under = (event) => {
    const place = canvas.getBoundingClientRect();
    return recording.nodes[Math.min(recording.nodes.length - 1, Math.max(0, Math.floor((event.clientY - place.top) / place.height * recording.nodes.length)))];
  };
  canvas.addEventListener("mousemove", (event) => {
    const place = canvas.getBoundingClientRect();
    const at = recording.from + (event.clientX - place.left) / place.width * (recording.to - recording.from);
    tip.textContent = `${under(event).node} at ${time(at * 1e6)}`;
  });
  canvas.addEventListener("click", (event) => choose(under(event)));

  function choose(node) {
    state.shown = node;
    show();
    detail.scrollIntoView({ block: "nearest" });
  }

  function list() {
    const found = recording.nodes.filter((node) => node.node.toLowerCase().includes(state.text));
    replace(body, table([
      { title: "Node", of: (node) => h("button", { type: "button", class: "sort", onclick: () => choose(node) }, node.node) },
      { title: "Fit, at least", number: true, of: (node) => whole(least(node.availability?.lower)) }, { title: "Runs out first", of: (node) => resource(node.binding) },
      { title: "CPU, mean", number: true, of: (node) => percent(mean(node.samples?.cpu)) }, { title: "CPU, most", number: true, of: (node) => percent(most(node.samples?.cpu_most)) },
      { title: "Memory, most", number: true, of: (node) => percent(most(node.samples?.memory)) }, { title: "Pods, most", number: true, of: (node) => whole(most(node.availability?.pods)) },
    ], found.slice(0, ROWS), { caption: "Nodes" }), found.length > ROWS ? h("p", { class: "quiet" }, `and ${whole(found.length - ROWS)} more; filter by name`) : null);
  }

  function show() {
    for (const chart of state.charts) chart.close();
    state.charts = [];
    const node = state.shown;
    if (!node) return;
    const plots = h("div", { class: "plots" });
    const whole_ = h("button", { type: "button", onclick: () => range(recording.from, recording.to) }, "Whole period");
    replace(detail, h("h2", {}, node.node), h("div", { class: "ranges" }, whole_, h("span", { class: "quiet" }, "drag over a chart to look closer")), plots);
    const add = (part, names, title, format, series, options = {}) => {
      if (!part) return;
      const chart = new Chart(plots.appendChild(h("figure", {})), { title, format, series, brush: range, shade: () => churning(node), ...options });
      state.charts.push(chart);
      const { times, values } = gapped({ times: part.steps.map((at) => at * recording.step), values: names.map((name) => part[name]) }, recording.step);
      chart.data = [times.map((time) => recording.from + time), ...values];
    };
    add(node.availability, ["upper", "lower", "available"], "Pods that fit", (value) => amount(value),
      [{ label: "at most", colour: "band", width: 1, band: 1 }, { label: "at least", colour: "band", width: 1 }, { label: "expected", colour: "c1", width: 2 }]);
    add(node.samples, ["cpu_most", "cpu"], "CPU in use", percent, [{ label: "most", colour: "raw", width: 1 }, { label: "mean", colour: "c1", width: 2 }], { max: 1.02 });
    add(node.samples, ["memory"], "Memory in use", percent, [{ label: "mean", colour: "c1", width: 2 }], { max: 1.02 });
    add(node.samples, ["pressure"], "CPU pressure", percent, [{ label: "mean", colour: "c1", width: 2 }], { floor: 0.05 });
    add(node.availability, ["pods"], "Running pods", (value) => amount(value, 0), [{ label: "pods", colour: "c1", width: 2 }]);
    add(node.rejects, ["score", "threshold"], "Reject signal", percent, [{ label: "score", colour: "c1", width: 2 }, { label: "threshold", colour: "c2", dash: [6, 4] }], { max: 1.02 });
    range(state.from, state.to);
  }

  function range(from, to) {
    state.from = from;
    state.to = to;
    for (const chart of state.charts) chart.set(chart.data, [from, to]);
  }

  function churning({ availability }) {
    if (!availability) return [];
    const time = (step) => recording.from + step * recording.step;
    return availability.steps.flatMap((step, at) => (availability.churn[at] ? [[time(step), time(step + 1)]] : []));
  }

  addEventListener("resize", () => { for (const chart of state.charts) chart.size(); });
  paint();
  list();
  choose(recording.nodes[0]);
  scrollTo(0, 0);
}

const numbers = (values) => (values ?? []).filter((value) => value !== null);
const least = (values) => (numbers(values).length ? numbers(values).reduce((one, other) => Math.min(one, other)) : null);
const most = (values) => (numbers(values).length ? numbers(values).reduce((one, other) => Math.max(one, other)) : null);
const mean = (values) => (numbers(values).length ? numbers(values).reduce((sum, value) => sum + value, 0) / numbers(values).length : null);

// From pale blue through yellow to red; opaque.
function shade(share) {
  const x = Math.max(0, Math.min(1, share));
  const [from, to, at] = x < 0.5 ? [[169, 211, 238], [240, 184, 96], 2 * x] : [[240, 184, 96], [180, 50, 0], 2 * x - 1];
  return [...from.map((value, channel) => Math.round(value + (to[channel] - value) * at)), 255];
}

function decisions(recording, time) {
  if (!recording.decisions.length) return h("p", { class: "quiet" }, "None in this time.");
  return [cut("decisions", ROWS, recording.decisions_found, "newest"), table([
    { title: "Time", of: (row) => time(row[0]) }, { title: "Pod", of: (row) => row[3] }, { title: "Class", of: (row) => row[4] }, { title: "Outcome", of: (row) => row[2] },
    { title: "Node", of: (row) => row[1] }, { title: "Would do", number: true, of: (row) => `${whole(row[5])} of ${whole(row[6])}` },
  ], recording.decisions.slice(0, ROWS), { caption: "Decisions" })];
}

function events(recording, time) {
  if (!recording.events.length) return h("p", { class: "quiet" }, "None in this time.");
  return [cut("events", ROWS, recording.events_found, "newest"), table([
    { title: "Time", of: (row) => time(row[0]) }, { title: "Node", of: (row) => row[1] }, { title: "Event", of: (row) => row[2] },
    { title: "Container", of: (row) => row[3] }, { title: "Class", of: (row) => row[4] },
  ], recording.events.slice(0, ROWS), { caption: "Containers started and ended" })];
}

function setTheme(next) {
  document.documentElement.dataset.theme = next;
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
record(document.getElementById("main"), JSON.parse(document.getElementById("recording").textContent));
