// Cluster: all nodes as cells and as a table, what fits by class, and where pods to be added would go.

import { classTable, nodeTable, totalCards } from "./tables.js";
import { announce, h, note, replace } from "../base/dom.js";
import { age, amount, counted, now, percent, resource, whole, workload } from "../base/format.js";
import { Grid, binsOf, isShare } from "./grid.js";
import { Cluster, LABEL, isLearning, matcher, spread } from "./nodes.js";
import { follow, isAway, saveRecording } from "../base/stream.js";

const RECORDED_SECONDS = 900;
const GROUPS = [["", "no groups"], ["zone", "zone"], ["type", "type"], ["binding", "what runs out first"], ["class", "largest class"]];
const MEASURES = [["lower", "pods that fit, at least"], ["available", "pods that fit, expected"], ["cpuUsed", "CPU in use"], ["cpuSaturation", "CPU saturation"], ["memory", "memory in use"]];
const OLD_MEASURES = { cpu: "cpuUsed" }; // in saved addresses

export const EVENTS = true; // their stream reports the state of the connection

export function open(main, { search, report, go, keep, about }) {
  const cluster = new Cluster();
  const view = {
    text: search.get("q") ?? "", by: search.get("group") ?? "", measure: measured(search.get("show")),
    name: search.get("class") ?? "", count: Number(search.get("add") ?? 0), selected: search.get("node") ?? "",
    sort: search.get("sort") ?? "lower", down: search.get("down") === "1",
  };
  let expiry = 30;
  let paused = 0;
  let away = false;
  let ordered = [];
  about.then((answer) => { expiry = answer.expirySeconds; });
  const stale = (node) => now() * 1000 - node.at > Math.max(10, expiry / 2) * 1e6;

  const cards = h("div", { class: "cards" });
  const canvas = h("canvas", { class: "grid", role: "img", "aria-label": "Nodes by room; the table below has the same numbers" });
  const tip = h("div", { class: "tip", hidden: true });
  const holder = h("div", { class: "holder" }, canvas, tip);
  const legend = h("div", { class: "legend" });
  const answer = h("p", { class: "answer", role: "status" });
  const unsaved = h("div", {});
  const classes = h("div", {});
  const list = h("div", {});
  const empty = h("div", {});
  const grid = new Grid(canvas);

  const classSelect = h("select", { "aria-label": "Class of the pods", onchange: (event) => { view.name = event.target.value; changed(); } });
  const groupSelect = h("select", { onchange: (event) => { view.by = event.target.value; changed(); } });
  const searchBox = h("input", { type: "search", placeholder: "name, label=value, binding:cpu, zone:a, stale:yes, learning:yes", "aria-label": "Filter nodes", value: view.text,
    oninput: (event) => { view.text = event.target.value; changed(); } });
  const select = (label, options, value, set) => h("label", {}, label, h("select", { onchange: (event) => { set(event.target.value); changed(); } },
    options.map(([key, title]) => h("option", { value: key, selected: key === value }, title))));
  const record = h("button", { type: "button", title: "One HTML file with the series of all nodes, which opens without a network", onclick: async () => {
    record.disabled = true;
    replace(unsaved);
    await saveRecording(now() / 1000 - RECORDED_SECONDS, now() / 1000).catch((error) => replace(unsaved, note("error", "Nothing is saved", error.message)));
    record.disabled = false;
  } }, "Save the last 15 minutes");
  const controls = h("div", { class: "controls" },
    searchBox,
    select("Show", MEASURES, view.measure, (value) => { view.measure = value; }),
    h("label", {}, "Group by", groupSelect),
    h("label", {}, "Pods of", classSelect),
    h("label", {}, "Add", h("input", { type: "number", min: "0", max: "100000", value: view.count ? String(view.count) : "", placeholder: "0", "aria-label": "Number of pods to add",
      oninput: (event) => { view.count = Math.max(0, Math.floor(Number(event.target.value) || 0)); changed(); } }), "pods"),
    record);

  replace(main, h("h1", { class: "hidden" }, "Cluster"), cards, controls, unsaved, answer, legend, empty, holder,
    h("h2", {}, "Workload classes"), classes, h("h2", {}, "Nodes"), list);

  const roomOf = (node) => (view.name ? cluster.room(node, view.name) : node);
  const value = (node) => {
    if (isShare(view.measure)) return node[view.measure];
    const room = roomOf(node);
    return room ? room[view.measure] : null;
  };
  const label = (node) => {
    const shown = value(node);
    if (shown === null || shown === undefined) return "–";
    return isShare(view.measure) ? `${Math.round(100 * shown)}%` : String(Math.floor(shown));
  };

  function changed() {
    keep({ q: view.text, group: view.by, show: view.measure === "lower" ? "" : view.measure, class: view.name, add: view.count || "",
      node: view.selected, sort: view.sort === "lower" ? "" : view.sort, down: view.down ? "1" : "" });
    draw();
  }

  function draw() {
    const nodes = [...cluster.nodes.values()].filter(matcher(view.text, cluster, stale)).sort((one, other) => (one.node < other.node ? -1 : 1));
    announce(empty, emptiness(nodes.length));
    drawSelects();
    const groups = new Map();
    for (const node of nodes) {
      const key = view.by ? cluster.group(node, view.by) : "";
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(node);
    }
    const entries = [...groups.entries()].sort((one, other) => (one[0] < other[0] ? -1 : 1));
    ordered = entries.flatMap(([, members]) => members);
    grid.layout(entries, holder.clientWidth, Math.max(180, Math.min(innerHeight * 0.52, 560)));
    paint(nodes);
    drawNumbers(nodes);
  }

  function emptiness(shown) {
    if (away && !cluster.nodes.size) return null;
    if (!cluster.loaded) return note("wait", "Reading the nodes…", "The first answer takes a second after the page is opened.");
    if (!cluster.nodes.size) return note("wait", "No node reports yet", ["An agent publishes a block each second, and the first number needs about eight seconds. ", h("code", {}, "spazio doctor"), " shows what is missing."]);
    if (!shown) return note("wait", "No node matches", `No match of “${view.text}” among ${counted(cluster.nodes.size, "node")}.`);
    return null;
  }

  function paint(nodes) {
    const plan = view.count ? spread(cluster, nodes.filter((node) => !stale(node)), view.name, view.count) : { placed: new Map(), missing: 0 };
    grid.paint({ value, text: label, stale, learning: isLearning, selected: view.selected, marked: plan.placed, measure: view.measure });
    const of = view.name ? workload(view.name) : "the mix";
    answer.hidden = !view.count;
    answer.textContent = !view.count ? "" : plan.missing
      ? `${view.count - plan.missing} of ${counted(view.count, "pod")} of ${of} fit, on ${counted(plan.placed.size, "node")}; ${plan.missing} do not fit by the lower bounds.`
      : `${counted(view.count, "pod")} of ${of} ${view.count === 1 ? "fits" : "fit"}, on ${counted(plan.placed.size, "node")}: those with most room by their lower bounds are framed.`;
  }

  function drawNumbers(nodes) {
    const total = cluster.totals;
    if (total) {
      const all = [...cluster.nodes.values()];
      const silent = all.length > 0 && all.every(stale);
      replace(cards, totalCards(silent ? null : total, all, stale));
      replace(classes, silent ? h("p", { class: "quiet" }, `${away ? "Nothing comes from the bus" : "No node has reported lately"}, so what fits is not known.`) : classTable(total.classes, total.classCount));
    }
    drawList(nodes);
    const bins = binsOf(view.measure);
    replace(legend, bins.map((bin) => h("span", {}, h("i", { class: `swatch ${bin.name}` }), bin.label)), h("span", {}, h("i", { class: "swatch stale" }), "no number or stale"),
      h("span", {}, h("i", { class: "swatch learning" }), "learning: most of a pod's cost is assumed"),
      view.count ? h("span", {}, h("i", { class: "swatch mark" }), "gets pods") : null);
  }

  function drawSelects() {
    const names = [...cluster.classes].sort().map((name) => [name, workload(name)]);
    options(classSelect, [["", "the mix"], ...names], view.name, `${workload(view.name)}${cluster.loaded ? ", not known" : ""}`);
    options(groupSelect, [...GROUPS, ...cluster.labels.map((label) => [LABEL + label, `label ${label}`])], view.by, view.by.replace(LABEL, "label "));
  }

  function drawList(nodes) {
    if (paused > Date.now()) return;
    replace(list, nodeTable(nodes, { roomOf, stale, closed: (node) => cluster.closed(node), go, sort: { key: view.sort, down: view.down }, onsort: (next) => {
      view.down = next === view.sort ? !view.down : false;
      view.sort = next;
      paused = 0;
      changed();
    } }));
  }

  list.addEventListener("pointerdown", () => { paused = Date.now() + 1500; });
  const nodeAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return grid.at(event.clientX - box.left, event.clientY - box.top);
  };
  canvas.addEventListener("pointermove", (event) => {
    const node = nodeAt(event);
    tip.hidden = !node;
    if (!node) return;
    const room = roomOf(node);
    replace(tip, h("strong", {}, node.node), h("div", {}, room ? `at least ${whole(room.lower)}, ${amount(room.available)} expected` : "does not say for this class"),
      cluster.closed(node) ? h("div", { class: "bad" }, cluster.closed(node)) : null, h("div", {}, `${resource(room?.binding ?? node.binding)} runs out first · ${counted(node.pods, "pod")}`), h("div", {}, `CPU in use ${percent(node.cpuUsed)}, saturation ${percent(node.cpuSaturation)}`), h("div", {}, `memory ${percent(node.memory)}`),
      h("div", {}, `${age((now() * 1000 - node.at) / 1e6)} old${isLearning(node) ? ` · learning: ${percent(node.prior)} of a pod's cost is assumed` : ""}`));
    const box = holder.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 210)}px`;
    tip.style.top = `${event.clientY - box.top + 14}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", (event) => {
    const node = nodeAt(event);
    if (node) location.hash = go("node", node.node);
  });

  let waiting = 0;
  const soon = () => { waiting ||= setTimeout(() => { waiting = 0; draw(); }, 60); };
  const stop = follow("/api/cluster", {
    nodes: (content) => { cluster.take(content); soon(); },
    gone: (names) => { cluster.drop(names); soon(); },
    facts: (content) => { cluster.learn(content); soon(); },
    totals: (content) => { cluster.totals = content; soon(); },
  }, (state) => {
    away = isAway(state);
    report(state);
    soon();
  });
  const observer = new ResizeObserver(soon);
  observer.observe(main);
  const ticking = setInterval(soon, 2000);
  draw();
  return {
    close() {
      stop();
      observer.disconnect();
      clearInterval(ticking);
      clearTimeout(waiting);
    },
    repaint: draw,
    key(key) {
      if (key === "g") {
        view.by = GROUPS[(GROUPS.findIndex(([name]) => name === view.by) + 1) % GROUPS.length][0];
        groupSelect.value = view.by;
      } else if (key === "j" || key === "k") {
        const at = ordered.findIndex((node) => node.node === view.selected);
        view.selected = ordered[Math.max(0, Math.min(ordered.length - 1, at + (key === "j" ? 1 : -1)))]?.node ?? "";
      } else if (key === "Enter" && view.selected) {
        location.hash = go("node", view.selected);
        return true;
      } else return false;
      changed();
      return true;
    },
  };
}

// The measure that an address names, or the first.
function measured(name) {
  const current = Object.hasOwn(OLD_MEASURES, name) ? OLD_MEASURES[name] : name;
  return MEASURES.some(([measure]) => measure === current) ? current : MEASURES[0][0];
}

// Sets the choices of a select, as [value, title], if they have changed; what is chosen is one of them, by the title `otherwise`.
function options(element, choices, chosen, otherwise) {
  const all = choices.some(([value]) => value === chosen) ? choices : [...choices, [chosen, otherwise]];
  const form = JSON.stringify(all);
  if (element.dataset.choices === form) return;
  element.dataset.choices = form;
  replace(element, all.map(([value, title]) => h("option", { value, selected: value === chosen }, title)));
}
