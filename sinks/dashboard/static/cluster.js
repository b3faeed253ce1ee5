// Cluster: all nodes as cells and as a table, what fits by class, and where pods to be added would go.

import { h, note, replace, table } from "./dom.js";
import { age, amount, now, percent, resource, whole } from "./format.js";
import { Grid, binsOf, isShare } from "./grid.js";
import { Cluster, matcher, spread } from "./model.js";
import { follow, saveRecording } from "./stream.js";

const MOST_ROWS = 200;
const RECORDED_SECONDS = 900;
const GROUPS = [["", "no groups"], ["zone", "zone"], ["type", "type"], ["binding", "what runs out first"]];
const MEASURES = [["lower", "pods that fit, at least"], ["available", "pods that fit, expected"], ["cpuUsed", "CPU in use"], ["cpuSaturation", "CPU saturation"], ["memory", "memory in use"]];
const OLD_MEASURES = { cpu: "cpuUsed" }; // in saved addresses

export function open(main, { search, report, go, keep, about }) {
  const cluster = new Cluster();
  const view = {
    text: search.get("q") ?? "", by: search.get("group") ?? "", measure: OLD_MEASURES[search.get("show")] ?? search.get("show") ?? "lower",
    name: search.get("class") ?? "", count: Number(search.get("add") ?? 0), selected: search.get("node") ?? "",
    sort: search.get("sort") ?? "lower", down: search.get("down") === "1",
  };
  let expiry = 30;
  let paused = 0;
  let ordered = [];
  about.then((answer) => { expiry = answer.expirySeconds; });
  const stale = (node) => now() * 1000 - node.at > Math.max(10, expiry / 2) * 1e6;

  const cards = h("div", { class: "cards" });
  const canvas = h("canvas", { class: "grid", role: "img", "aria-label": "Nodes by room; the table below has the same numbers" });
  const tip = h("div", { class: "tip", hidden: true });
  const holder = h("div", { class: "holder" }, canvas, tip);
  const legend = h("div", { class: "legend" });
  const answer = h("p", { class: "answer", role: "status" });
  const classes = h("div", {});
  const list = h("div", {});
  const empty = h("div", {});
  const grid = new Grid(canvas);

  const classSelect = h("select", { "aria-label": "Class of the pods", onchange: (event) => { view.name = event.target.value; changed(); } });
  const searchBox = h("input", { type: "search", placeholder: "name, label=value, binding:cpu, zone:a, stale:yes", "aria-label": "Filter nodes", value: view.text,
    oninput: (event) => { view.text = event.target.value; changed(); } });
  const select = (label, options, value, set) => h("label", {}, label, h("select", { onchange: (event) => { set(event.target.value); changed(); } },
    options.map(([key, title]) => h("option", { value: key, selected: key === value }, title))));
  const record = h("button", { type: "button", title: "One HTML file with the series of all nodes, which opens without a network", onclick: async () => {
    record.disabled = true;
    await saveRecording(now() / 1000 - RECORDED_SECONDS, now() / 1000).catch((error) => replace(answer, error.message));
    record.disabled = false;
  } }, "Save the last 15 minutes");
  const controls = h("div", { class: "controls" },
    searchBox,
    select("Show", MEASURES, view.measure, (value) => { view.measure = value; }),
    select("Group by", GROUPS, view.by, (value) => { view.by = value; }),
    h("label", {}, "Pods of", classSelect),
    h("label", {}, "Add", h("input", { type: "number", min: "0", max: "100000", value: view.count ? String(view.count) : "", placeholder: "0", "aria-label": "Number of pods to add",
      oninput: (event) => { view.count = Math.max(0, Math.floor(Number(event.target.value) || 0)); changed(); } }), "pods"),
    record);

  replace(main, h("h1", { class: "hidden" }, "Cluster"), cards, controls, answer, legend, empty, holder,
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
    replace(empty, emptiness(nodes.length));
    drawClassSelect();
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
    if (!cluster.loaded) return note("wait", "Reading the nodes…", "The first answer takes a second after the page is opened.");
    if (!cluster.nodes.size) return note("wait", "No node reports yet", "An agent publishes a block each second, and the first number needs about eight seconds. `spazio doctor` shows what is missing.");
    if (!shown) return note("wait", "No node matches", `None of ${cluster.nodes.size} nodes matches “${view.text}”.`);
    return null;
  }

  function paint(nodes) {
    const plan = view.count ? spread(cluster, nodes.filter((node) => !stale(node)), view.name, view.count) : { placed: new Map(), missing: 0 };
    grid.paint({ value, text: label, stale, selected: view.selected, marked: plan.placed, measure: view.measure });
    const pods = view.name ? `pods of ${view.name}` : "pods of the mix";
    answer.hidden = !view.count;
    answer.textContent = !view.count ? "" : plan.missing
      ? `${view.count - plan.missing} of ${view.count} ${pods} fit, on ${plan.placed.size} nodes; ${plan.missing} do not fit by the lower bounds.`
      : `${view.count} ${pods} fit, on ${plan.placed.size} nodes: those with most room by their lower bounds are framed.`;
  }

  function drawNumbers(nodes) {
    const total = cluster.totals;
    if (total) {
      const old = [...cluster.nodes.values()].filter(stale).length;
      const full = [...cluster.nodes.values()].filter((node) => !stale(node) && node.lower < 1).length;
      replace(cards, card("Nodes", whole(total.nodes), old ? `${old} stale` : "all report"), card("More pods fit", whole(total.lower), `at least; ${whole(total.available)} expected`),
        card("Running pods", whole(total.pods), ""), card("Full nodes", whole(full), full ? "no room for one more pod" : "each has room"));
      drawClasses(total.classes);
    }
    drawList(nodes);
    const bins = binsOf(view.measure);
    replace(legend, bins.map((bin) => h("span", {}, h("i", { class: `swatch ${bin.name}` }), bin.label)), h("span", {}, h("i", { class: "swatch stale" }), "no number or stale"),
      view.count ? h("span", {}, h("i", { class: "swatch mark" }), "gets pods") : null);
  }

  const card = (title, number, text) => h("div", { class: "card" }, h("span", {}, title), h("strong", {}, number), h("small", {}, text));

  function drawClassSelect() {
    const names = [...cluster.classes].sort();
    if (classSelect.dataset.names === names.join("\n")) return;
    classSelect.dataset.names = names.join("\n");
    replace(classSelect, h("option", { value: "" }, "the mix"), names.map((name) => h("option", { value: name, selected: name === view.name }, name)));
  }

  function drawClasses(rows) {
    replace(classes, !rows.length ? h("p", { class: "quiet" }, "No workload class is known yet; pods without a class count as the mix.") : table([
      { title: "Class", of: (row) => row.workload },
      { title: "Running", number: true, of: (row) => whole(row.pods) },
      { title: "Fit, at least", number: true, help: "sum of the nodes' lower bounds", of: (row) => whole(row.lower) },
      { title: "Expected", number: true, help: "whole pods on each node", of: (row) => whole(row.available) },
      { title: "As one machine", number: true, help: "pods that would fit if all nodes were one", of: (row) => whole(row.fluid) },
      { title: "Fragmented", number: true, help: "share of those that is lost between nodes", of: (row) => percent(row.fragmentation) },
      { title: "Stranded CPU", number: true, help: "free CPU that the class cannot use, since another resource is gone", of: (row) => percent(row.stranded_cpu) },
      { title: "Stranded memory", number: true, of: (row) => percent(row.stranded_memory) },
      { title: "Runs out first", of: (row) => resource(row.binding) },
    ], rows.slice(0, 30), { caption: "Workload classes" }));
  }

  function drawList(nodes) {
    if (paused > Date.now()) return;
    const key = view.sort;
    const of = (node) => (key === "node" ? node.node : key === "lower" || key === "available" ? roomOf(node)?.[key] ?? -1 : node[key] ?? -1);
    const sorted = [...nodes].sort((one, other) => (of(one) < of(other) ? -1 : of(one) > of(other) ? 1 : 0) * (view.down ? -1 : 1));
    const us = now() * 1000;
    const rows = sorted.slice(0, MOST_ROWS);
    replace(list, nodes.length > MOST_ROWS ? h("p", { class: "quiet" }, `The first ${MOST_ROWS} of ${nodes.length} nodes; filter or sort to see others.`) : null, table([
      { title: "Node", key: "node", of: (node) => h("a", { href: go("node", node.node) }, node.node) },
      { title: "Fit, at least", key: "lower", number: true, of: (node) => whole(roomOf(node)?.lower) },
      { title: "Expected", key: "available", number: true, of: (node) => amount(roomOf(node)?.available) },
      { title: "Runs out first", key: "binding", of: (node) => resource(node.binding) },
      { title: "Pods", key: "pods", number: true, of: (node) => whole(node.pods) },
      { title: "CPU in use", key: "cpuUsed", number: true, help: "share of the CPUs in use", of: (node) => percent(node.cpuUsed) },
      { title: "CPU saturation", key: "cpuSaturation", number: true, help: "CPUs in use and wanted, as a share of what the allowed slowdown admits", of: (node) => percent(node.cpuSaturation) },
      { title: "Memory", key: "memory", number: true, of: (node) => percent(node.memory) },
      { title: "Age", key: "at", number: true, of: (node) => h("span", { class: stale(node) ? "bad" : undefined }, age((us - node.at) / 1e6)) },
    ], rows, { caption: "Nodes", sort: { key, down: view.down }, onsort: (next) => {
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
      h("div", {}, `${resource(room?.binding ?? node.binding)} runs out first · ${node.pods} pods`), h("div", {}, `CPU in use ${percent(node.cpuUsed)}, saturation ${percent(node.cpuSaturation)}`), h("div", {}, `memory ${percent(node.memory)}`),
      h("div", {}, `${age((now() * 1000 - node.at) / 1e6)} old`));
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
    facts: (content) => { Object.assign(cluster.facts, content); soon(); },
    totals: (content) => { cluster.totals = content; soon(); },
  }, report);
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
        controls.querySelectorAll("select")[1].value = view.by;
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
