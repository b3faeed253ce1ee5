// The nodes of the cluster as the pages know them, kept from the events of /api/cluster.

import { resource } from "./format.js";

export class Cluster {
  constructor() {
    this.nodes = new Map();
    this.facts = {};
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

  group(node, by) {
    const facts = this.facts[node.node];
    if (by === "zone") return facts?.zone || "no zone";
    if (by === "type") return facts?.type || "no type";
    if (by === "binding") return `${resource(node.binding)} runs out first`;
    return "";
  }
}

// Places pods one after another where most room is left by the lower bound; returns how many go to each node.
export function spread(cluster, nodes, name, count) {
  const rooms = nodes
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

// A filter of words: each has to occur in the name, a label, a class, or as key:value (binding:cpu, stale:yes, zone:a).
export function matcher(text, cluster, isStale) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return () => true;
  return (node) => words.every((word) => matches(word, node, cluster, isStale));
}

function matches(word, node, cluster, isStale) {
  const [key, value] = word.split(/[:=](.*)/s);
  const facts = cluster.facts[node.node];
  if (value !== undefined) {
    if (key === "binding") return node.binding.startsWith(value);
    if (key === "stale") return isStale(node) === (value !== "no");
    if (key === "zone") return (facts?.zone ?? "").toLowerCase().includes(value);
    if (key === "type") return (facts?.type ?? "").toLowerCase().includes(value);
    if (key === "class") return node.classes.some(([number]) => cluster.classes[number].toLowerCase().includes(value));
    return (facts?.labels?.[key] ?? "").toLowerCase() === value;
  }
  return node.node.toLowerCase().includes(word)
    || Object.entries(facts?.labels ?? {}).some(([label, text]) => `${label}=${text}`.toLowerCase().includes(word));
}
