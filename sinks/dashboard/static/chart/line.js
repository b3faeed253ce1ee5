// Values over time from two sources: steps of the history, and live ones at full rate, which win where both are.

const LIVE_MOST = 9000; // 15 minutes at ten a second
const GAP_SECONDS = 2.5; // between live values, from which on the history fills in
const STEPS = 600; // of the history in a range

// Length of a step of the history in seconds.
export const step = (low, high) => Math.max(1, Math.ceil((high - low) / STEPS));

export class Line {
  constructor(width) {
    this.past = empty(width);
    this.live = empty(width);
  }

  // Replaces what is known from the history.
  remember({ times, values }) {
    this.past = { times, values };
  }

  // Appends live values; if the clock went back, they replace those from there on.
  add(times, values) {
    if (!times.length) return;
    const kept = first(this.live.times, times[0]);
    const excess = Math.max(0, kept + times.length - LIVE_MOST);
    const append = (list, more) => {
      list.length = kept;
      list.push(...more);
      list.splice(0, excess);
    };
    append(this.live.times, times);
    this.live.values.forEach((column, at) => append(column, values[at]));
  }

  // Times and columns in a range, and a step beside it.
  within(low, high) {
    const margin = Math.max(5, step(low, high));
    const past = part(this.past, low - margin, high + margin);
    const live = part(this.live, low - margin, high + margin);
    const both = empty(this.live.values.length);
    for (const [isLive, at] of merged(past.times, live.times)) {
      const { times, values } = isLive ? live : past;
      both.times.push(times[at]);
      values.forEach((column, index) => both.values[index].push(column[at]));
    }
    return both;
  }
}

const empty = (width) => ({ times: [], values: Array.from({ length: width }, () => []) });

// Index of the first time that is not before the given one; times are in order.
function first(times, time) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function part({ times, values }, low, high) {
  const [from, to] = [first(times, low), first(times, high)];
  return { times: times.slice(from, to), values: values.map((column) => column.slice(from, to)) };
}

// In order of time, [true, index] for each live value, and [false, index] for each past one where no live ones are.
export function* merged(past, live) {
  let at = 0;
  function* fill(since, until) {
    for (; at < past.length && past[at] < until; at += 1) if (past[at] > since) yield [false, at];
  }
  for (let index = 0; index < live.length; index += 1) {
    const before = index ? live[index - 1] : -Infinity;
    if (live[index] - before > GAP_SECONDS) yield* fill(before, live[index]);
    yield [true, index];
  }
  yield* fill(live.length ? live[live.length - 1] : -Infinity, Infinity);
}

// Spans [from, to] in which a column is not 0, over gaps of so many seconds: of churn, or in which a node rejects.
export function spans({ times, values }, column, gap) {
  const found = [];
  times.forEach((time, at) => {
    if (!values[column][at]) return;
    const last = found.at(-1);
    if (last && time - last[1] < gap) last[1] = time;
    else found.push([time - 0.5, time]);
  });
  return found;
}
