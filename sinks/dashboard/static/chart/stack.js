// CPU of a node's pods by class: from the history in steps, then live by the second; the largest classes and the rest.

import { gapped } from "./gap.js";
import { merged, step } from "./line.js";

const LIVE_MOST = 900;
export const LARGEST = 7;
export const REST = "other classes";

// Length of a step of the history of pods in seconds.
export const pastStep = (low, high) => Math.max(5, step(low, high));

export class Stack {
  constructor() {
    this.past = [];
    this.live = [];
  }

  // Replaces what is known from the history: rows {t, who, cores} in order of time; `who` null: the rest together.
  remember(rows) {
    this.past = [];
    for (const { t, who, cores } of rows) {
      if (this.past.at(-1)?.t !== t) this.past.push({ t, cores: new Map() });
      count(this.past.at(-1).cores, who, cores);
    }
  }

  // Appends what was used at one time, as [class, cores]; if the clock went back, it replaces what came from there on.
  add(t, used) {
    while (this.live.length && this.live.at(-1).t >= t) this.live.pop();
    const cores = new Map();
    for (const [who, amount] of used) count(cores, who, amount);
    this.live.push({ t, cores });
    if (this.live.length > LIVE_MOST) this.live.shift();
  }

  // {names, data}: the largest classes of a range, at last the rest if there is one; times, and a column for each name, all null
  // where nothing was measured.
  within(low, high) {
    const points = this.points(low, high);
    const totals = new Map();
    points.forEach(({ t, cores }, at) => {
      const seconds = (points[at + 1]?.t ?? high) - t;
      for (const [who, amount] of cores) if (who !== null) count(totals, who, amount * Math.max(0, seconds));
    });
    const names = [...totals].sort((one, other) => other[1] - one[1]).slice(0, LARGEST).map(([who]) => who);
    const largest = new Set(names);
    const columns = names.map((name) => points.map(({ cores }) => cores.get(name) ?? null));
    const rest = points.map(({ cores }) => remainder(cores, largest));
    if (rest.some((value) => value !== null)) {
      names.push(REST);
      columns.push(rest);
    }
    const { times, values } = gapped({ times: points.map(({ t }) => t), values: columns }, pastStep(low, high));
    return { names, data: [times, ...values] };
  }

  points(low, high) {
    const margin = pastStep(low, high);
    const inside = (list) => list.filter(({ t }) => t > low - margin && t < high + margin);
    const [past, live] = [inside(this.past), inside(this.live)];
    const times = (list) => list.map(({ t }) => t);
    return [...merged(times(past), times(live))].map(([isLive, at]) => (isLive ? live : past)[at]);
  }
}

const count = (sums, key, amount) => sums.set(key, (sums.get(key) ?? 0) + amount);

function remainder(cores, largest) {
  const others = [...cores].filter(([who]) => !largest.has(who));
  return others.length ? others.reduce((sum, [, amount]) => sum + amount, 0) : null;
}
