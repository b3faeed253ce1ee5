// The numbers of the cluster: totals as cards, workload classes and nodes as tables.

import { cut, h, table } from "../base/dom.js";
import { age, amount, bytes, counted, now, percent, resource, whole, workload } from "../base/format.js";
import { isLearning } from "./nodes.js";

const MOST_ROWS = 200;
const MOST_CLASSES = 30;

const card = (title, number, text) => h("div", { class: "card" }, h("span", {}, title), h("strong", {}, number), h("small", {}, text));

// `total` is null where all nodes are stale.
export function totalCards(total, nodes, stale) {
  const count = (of) => nodes.filter(of).length;
  const old = count(stale);
  const full = count((node) => !stale(node) && node.lower < 1);
  const learning = count((node) => !stale(node) && isLearning(node));
  const state = [old ? `${old} stale` : "all report", learning ? `${learning} learning` : ""].filter(Boolean).join(", ");
  if (!total) return [card("Nodes", whole(nodes.length), state), ...["More pods fit", "Running pods", "Full nodes"].map((title) => card(title, "–", "not known"))];
  return [card("Nodes", whole(total.nodes), state), card("More pods fit", whole(total.lower), `at least; ${whole(total.available)} expected`),
    card("Running pods", whole(total.pods), ""), card("Full nodes", whole(full), full ? "no room for one more pod" : "each has room"),
    stranded("Stranded CPU", total.stranded, "cpu", (cores) => `${amount(cores)} cores`), stranded("Stranded memory", total.stranded, "memory", bytes)];
}

// What is free where no further pod fits, and what has run out there.
function stranded(title, sums, name, format) {
  const parts = sums.filter((sum) => sum[name] > 0);
  const reasons = parts.map((sum) => `${parts.length > 1 ? `${format(sum[name])}: ` : ""}no ${resource(sum.binding)} on ${counted(sum.nodes, "node")}`);
  return card(title, format(parts.reduce((total, sum) => total + sum[name], 0)), reasons.join("; ") || "no full node has any left");
}

// `total` counts also the classes that the server has left out.
export function classTable(rows, total) {
  if (!rows.length) return h("p", { class: "quiet" }, "No workload class is known yet; pods without a class count as the mix.");
  return [cut("classes", MOST_CLASSES, total), table([
    { title: "Class", of: (row) => workload(row.workload) },
    { title: "Running", number: true, of: (row) => whole(row.pods) },
    { title: "Fit, at least", number: true, help: "sum of the nodes' lower bounds", of: (row) => whole(row.lower) },
    { title: "Expected", number: true, help: "whole pods on each node", of: (row) => whole(row.available) },
    { title: "As one machine", number: true, help: "pods that would fit if all nodes were one", of: (row) => whole(row.fluid) },
    { title: "Fragmented", number: true, help: "share of those that is lost between nodes", of: (row) => percent(row.fragmentation) },
    { title: "Stranded CPU", number: true, help: "free CPU that the class cannot use, since another resource is gone", of: (row) => percent(row.stranded_cpu) },
    { title: "Stranded memory", number: true, of: (row) => percent(row.stranded_memory) },
    { title: "Runs out first", of: (row) => resource(row.binding) },
  ], rows.slice(0, MOST_CLASSES), { caption: "Workload classes" })];
}

// `roomOf` returns what fits on a node, `closed` why it takes no pods; `sort` is {key, down}.
export function nodeTable(nodes, { roomOf, stale, closed, sort, onsort, go }) {
  const { key, down } = sort;
  const of = (node) => (key === "node" ? node.node : key === "lower" || key === "available" ? roomOf(node)?.[key] ?? -1 : node[key] ?? -1);
  const sorted = [...nodes].sort((one, other) => (of(one) < of(other) ? -1 : of(one) > of(other) ? 1 : 0) * (down ? -1 : 1));
  const us = now() * 1000;
  return [nodes.length > MOST_ROWS ? h("p", { class: "quiet" }, `The first ${MOST_ROWS} of ${nodes.length} nodes; filter or sort to see others.`) : null, table([
    { title: "Node", key: "node", of: (node) => [h("a", { href: go("node", node.node) }, node.node), closed(node) ? h("span", { class: "bad" }, ` ${closed(node)}`) : null] },
    { title: "Fit, at least", key: "lower", number: true, of: (node) => whole(roomOf(node)?.lower) },
    { title: "Expected", key: "available", number: true, of: (node) => amount(roomOf(node)?.available) },
    { title: "Runs out first", key: "binding", of: (node) => resource(node.binding) },
    { title: "Pods", key: "pods", number: true, of: (node) => whole(node.pods) },
    { title: "CPU in use", key: "cpuUsed", number: true, help: "share of the CPUs in use", of: (node) => percent(node.cpuUsed) },
    { title: "CPU saturation", key: "cpuSaturation", number: true, help: "CPUs in use and wanted, as a share of what the allowed slowdown admits", of: (node) => percent(node.cpuSaturation) },
    { title: "Memory", key: "memory", number: true, of: (node) => percent(node.memory) },
    { title: "Assumed", key: "prior", number: true, help: "share of a pod's cost that is assumed, not measured on this node; from half on it is learning", of: (node) => percent(node.prior) },
    { title: "Age", key: "at", number: true, of: (node) => h("span", { class: stale(node) ? "bad" : undefined }, age((us - node.at) / 1e6)) },
  ], sorted.slice(0, MOST_ROWS), { caption: "Nodes", sort, onsort })];
}
