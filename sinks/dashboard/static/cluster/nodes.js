// The nodes of the cluster as the pages know them, kept from the events of /api/cluster.

import { resource, workload } from "../base/format.js";

export const LABEL = "label:"; // before the name of a label by which nodes are grouped
const LABEL_VALUES = 40; // of a label with more, most groups would be one node
const LEARNING = 0.5;

// Whether most of what a pod costs on a node is assumed.
export const isLearning = (node) => node.prior >= LEARNING;

export class Cluster {
  constructor() {
    this.nodes = new Map();
    this.facts = {};
    this.labels = [];
    this.classes = [];
    this.totals = null;
    this.loaded = false;
  }

  take({ full, columns, classes, rows }) {
    this.classes = classes;
    if (full) this.nodes.clear();
    for (const row of rows) {
      const node = {};
      columns.forEach((name, at) => { node[name] = row[at]; });
      this.nodes.set(node.node, node);
    }
    this.loaded = true;
  }

  // Takes facts of nodes in, null for those that were deleted, and finds the labels that tell groups of them apart.
  learn(facts) {
    for (const [name, fact] of Object.entries(facts)) {
      if (fact) this.facts[name] = fact;
      else delete this.facts[name];
    }
    const values = new Map();
    for (const { labels } of Object.values(this.facts)) {
      for (const [label, value] of Object.entries(labels ?? {})) {
        if (!values.has(label)) values.set(label, new Set());
        values.get(label).add(value);
      }
    }
    this.labels = [...values].filter(([, found]) => found.size > 1 && found.size <= LABEL_VALUES).map(([label]) => label).sort();
  }

  // Forgets nodes that have not reported for so long that the server has dropped them.
  drop(names) {
    for (const name of names) this.nodes.delete(name);
  }

  // What of a class fits on a node; null: it does not say.
  room(node, name) {
    const number = this.classes.indexOf(name);
    const found = node.classes.find((entry) => entry[0] === number);
    return found ? { available: found[1], lower: found[2], pods: found[3], binding: found[4] } : null;
  }

  // Class with most running pods on a node; null: none runs.
  largest(node) {
    let [name, most] = [null, 0];
    for (const [number, , , pods] of node.classes) if (pods > most) [name, most] = [this.classes[number], pods];
    return name;
  }

  // Why no pod is scheduled on a node, by its facts; empty: pods are.
  closed(node) {
    const facts = this.facts[node.node];
    return [facts?.ready === false ? "not ready" : "", facts?.unschedulable ? "unschedulable" : ""].filter(Boolean).join(", ");
  }

  group(node, by) {
    const facts = this.facts[node.node];
    if (by === "zone") return facts?.zone || "no zone";
    if (by === "type") return facts?.type || "no type";
    if (by === "binding") return `${resource(node.binding)} runs out first`;
    if (by === "class") return workload(this.largest(node) ?? "no class");
    if (by.startsWith(LABEL)) return facts?.labels?.[by.slice(LABEL.length)] ?? `no ${by.slice(LABEL.length)}`;
    return "";
  }
}

// Places pods one after another where most room is left by the lower bound, on nodes that take any; returns how many go to each node.
export function spread(cluster, nodes, name, count) {
  const rooms = nodes
    .filter((node) => !cluster.closed(node))
    .map((node) => ({ node: node.node, left: Math.floor(name ? cluster.room(node, name)?.lower ?? 0 : node.lower) }))
    .filter((room) => room.left > 0);
  const placed = new Map();
  let missing = count;
  // By levels: all nodes with the most room give one place at a time.
  rooms.sort((one, other) => other.left - one.left);
  for (let level = rooms[0]?.left ?? 0; level > 0 && missing > 0; level -= 1) {
    for (const room of rooms) {
      if (room.left < level || missing === 0) break;
      placed.set(room.node, (placed.get(room.node) ?? 0) + 1);
      missing -= 1;
    }
  }
  return { placed, missing };
}

// A filter of words: each has to occur in the name, a label, a class, or as key:value (binding:cpu, stale:yes, learning:yes, zone:a).
export function matcher(text, cluster, isStale) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return () => true;
  return (node) => words.every((word) => matches(word, node, cluster, isStale));
}

function matches(word, node, cluster, isStale) {
  const [key, value] = word.split(/[:=](.*)/s);
  const facts = cluster.facts[node.node];
  const labels = Object.entries(facts?.labels ?? {});
  if (value !== undefined) {
    if (key === "binding") return node.binding.startsWith(value);
    if (key === "learning") return isLearning(node) === (value !== "no");
    if (key === "stale") return isStale(node) === (value !== "no");
    if (key === "zone") return (facts?.zone ?? "").toLowerCase().includes(value);
    if (key === "type") return (facts?.type ?? "").toLowerCase().includes(value);
    if (key === "class") return node.classes.some(([number, , , pods]) => pods > 0 && cluster.classes[number].toLowerCase().includes(value));
    return labels.some(([label, text]) => label.toLowerCase() === key && text.toLowerCase() === value);
  }
  return node.node.toLowerCase().includes(word)
    || labels.some(([label, text]) => `${label}=${text}`.toLowerCase().includes(word));
}
