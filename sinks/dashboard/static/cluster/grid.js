// The grid of nodes on a canvas: one cell a node, coloured by room, with a pattern for each colour.

import { patterns } from "./pattern.js";

const GAP = 2;
const HEADER = 26;

const BINS = [
  { least: -Infinity, label: "0: full", name: "full" },
  { least: 1, label: "1–2", name: "r1" },
  { least: 3, label: "3–9", name: "r2" },
  { least: 10, label: "10–29", name: "r3" },
  { least: 30, label: "30 and more", name: "r4" },
];
const SHARES = [
  { least: -Infinity, label: "below 50 %", name: "r4" },
  { least: 0.5, label: "50–70 %", name: "r3" },
  { least: 0.7, label: "70–85 %", name: "r2" },
  { least: 0.85, label: "85–95 %", name: "r1" },
  { least: 0.95, label: "95 % and more", name: "full" },
];

// A measure that is a share of the machine; the others count pods.
export const isShare = (measure) => ["cpuUsed", "cpuSaturation", "memory"].includes(measure);

export const binsOf = (measure) => (isShare(measure) ? SHARES : BINS);

function bin(bins, value) {
  let found = bins[0];
  for (const each of bins) if (value >= each.least) found = each;
  return found.name;
}

export class Grid {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.cells = [];
    this.groups = [];
    this.side = 0;
  }

  // Lays out groups of nodes; `groups` is a list of [title, nodes].
  layout(groups, width, height) {
    const titled = groups.length > 1 || groups[0]?.[0];
    const total = groups.reduce((sum, [, nodes]) => sum + nodes.length, 0);
    let side = 64;
    const needed = (size) => groups.reduce((sum, [, nodes]) =>
      sum + (titled ? HEADER : 0) + Math.ceil(nodes.length / Math.max(1, Math.floor(width / size))) * size, 0);
    while (side > 12 && needed(side) > height) side -= 1;
    this.side = total ? side : 0;
    const columns = Math.max(1, Math.floor(width / side));
    this.cells = [];
    this.groups = [];
    let top = 0;
    for (const [title, nodes] of groups) {
      if (titled) {
        this.groups.push({ title: `${title} · ${nodes.length}`, top });
        top += HEADER;
      }
      nodes.forEach((node, at) => {
        this.cells.push({ node, x: (at % columns) * side, y: top + Math.floor(at / columns) * side });
      });
      top += Math.ceil(nodes.length / columns) * side;
    }
    this.resize(width, Math.max(top, 40));
  }

  resize(width, height) {
    const scale = devicePixelRatio || 1;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
  }

  at(x, y) {
    return this.cells.find((cell) => x >= cell.x && x < cell.x + this.side && y >= cell.y && y < cell.y + this.side)?.node;
  }

  paint({ value, text, stale, learning, selected, marked, measure }) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const palette = Object.fromEntries(["full", "r1", "r2", "r3", "r4", "stale", "ink", "line", "mark", "text"].map((name) => [name, colour(name)]));
    const inks = Object.fromEntries(["full", "r1", "r2", "r3", "r4", "stale"].map((name) => [name, colour(`on-${name}`)]));
    const bins = binsOf(measure);
    const context = this.context;
    const drawn = patterns(context, inks);
    context.clearRect(0, 0, this.width, this.height);
    context.textBaseline = "middle";
    context.fillStyle = palette.text;
    context.font = "600 13px system-ui, sans-serif";
    for (const group of this.groups) context.fillText(group.title, 2, group.top + HEADER / 2 + 2);
    const size = this.side - GAP;
    for (const { node, x, y } of this.cells) {
      const old = stale(node);
      const known = value(node);
      const name = old || known === null || known === undefined ? "stale" : bin(bins, known);
      context.fillStyle = palette[name];
      context.fillRect(x, y, size, size);
      if (drawn[name]) {
        context.fillStyle = drawn[name];
        context.fillRect(x, y, size, size);
      } else if (name === "stale" && size > 7) this.cross(x, y, size, inks.stale);
      const count = marked.get(node.node);
      if (size >= 30 && !old) this.label(count ? `+${count}` : text(node), x, y, size, inks[name], palette[name]);
      if (!old && learning(node)) this.corner(x, y, size, inks[name]);
      if (count) this.frame(x, y, size, palette.mark);
      if (selected === node.node) {
        context.strokeStyle = palette.ink;
        context.lineWidth = 2.5;
        context.strokeRect(x + 1, y + 1, size - 2, size - 2);
      }
    }
  }

  label(text, x, y, size, ink, ground) {
    const context = this.context;
    context.textAlign = "center";
    context.font = `600 ${size >= 44 ? 15 : 12}px system-ui, sans-serif`;
    const width = context.measureText(text).width + 6;
    context.fillStyle = ground;
    context.fillRect(x + (size - width) / 2, y + size / 2 - 9, width, 18);
    context.fillStyle = ink;
    context.fillText(text, x + size / 2, y + size / 2 + 1);
    context.textAlign = "left";
  }

  frame(x, y, size, colour) {
    const context = this.context;
    context.strokeStyle = colour;
    context.lineWidth = Math.max(2, size / 12);
    const inset = context.lineWidth / 2;
    context.strokeRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
  }

  // The mark of a node that is learning.
  corner(x, y, size, colour) {
    const context = this.context;
    const side = Math.max(4, size / 6);
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(x + size - side, y);
    context.lineTo(x + size, y);
    context.lineTo(x + size, y + side);
    context.fill();
  }

  cross(x, y, size, colour) {
    const context = this.context;
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x + size * 0.3, y + size * 0.3);
    context.lineTo(x + size * 0.7, y + size * 0.7);
    context.moveTo(x + size * 0.7, y + size * 0.3);
    context.lineTo(x + size * 0.3, y + size * 0.7);
    context.stroke();
  }
}
