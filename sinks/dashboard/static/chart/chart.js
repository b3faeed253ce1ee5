// Charts over time by uPlot: one range for all of a page, shaded churn, stacked areas.

import { now, stamp, trimmed } from "../base/format.js";

const COLOURS = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
const POWERS_OF_TWO = Array.from({ length: 60 }, (_, power) => 2 ** power); // between labels of bytes

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Labels of the time axis: with seconds where they differ, with the day where it changes, and at first unless it is today.
function times(_, splits) {
  const seconds = splits.length > 1 && splits[1] - splits[0] < 60;
  return splits.map((at, index) => {
    const date = new Date(at * 1000);
    const text = date.toLocaleTimeString("en-GB", seconds ? {} : { hour: "2-digit", minute: "2-digit" });
    const before = new Date(index ? splits[index - 1] * 1000 : now());
    return before.toDateString() === date.toDateString() ? text : `${text}\n${date.toLocaleDateString("en-GB")}`;
  });
}

export class Chart {
  // series: [{label, colour, width, dash, fill, band, points}]; band names the series below it. The axis of values goes up to
  // `floor` at least; without one it goes to 1 where all values are 0 or there is none, so that its labels differ.
  constructor(element, { title, series, format, height = 170, min, max, floor, binary = false, stacked = false, shade = () => [], brush }) {
    this.element = element;
    this.options = { title, series, format, height, min, max, floor, binary, stacked, shade, brush };
    this.data = [[], ...series.map(() => [])];
    this.range = null;
    this.build();
  }

  build() {
    this.plot?.destroy();
    const { title, series, format, height, min, max, floor, binary, stacked, shade, brush } = this.options;
    const axis = { stroke: style("quiet"), grid: { stroke: style("line"), width: 1 }, ticks: { stroke: style("line"), width: 1 }, font: "11px system-ui" };
    this.plot = new uPlot({
      title, height, width: Math.max(200, this.element.clientWidth), padding: [null, 36, null, null],
      legend: { live: true },
      cursor: { sync: { key: "spazio" }, drag: { x: true, y: false, setScale: false }, points: { size: 5 } },
      scales: { x: { time: true, range: (_, low, high) => this.range ?? [low, high] }, y: { range: (_, low, high) => [min ?? Math.min(0, low ?? 0), max ?? Math.max((high ?? 0) * 1.08, floor ?? (high ? 0 : 1))] } },
      axes: [{ ...axis, space: 70, size: (_, labels) => (labels?.some((text) => text.includes("\n")) ? 48 : 34), values: times }, { ...axis, size: 72, values: (_, values) => values.map((value) => trimmed(format(value))), ...(binary ? { incrs: POWERS_OF_TWO } : {}) }],
      series: [{ value: (_, at) => (at === null ? "–" : this.time(at)) }, ...series.map((each, at) => ({
        label: each.label,
        stroke: style(each.colour ?? COLOURS[at % COLOURS.length]),
        width: each.width ?? 1.5,
        dash: each.dash,
        fill: each.fill || stacked ? `${style(each.colour ?? COLOURS[at % COLOURS.length])}${stacked ? "b0" : "28"}` : undefined,
        points: { show: each.points ?? false, size: 3 },
        spanGaps: false,
        value: (_, value, number, index) => this.value(value, number, index, format),
      }))],
      bands: stacked
        ? series.slice(1).map((_, at) => ({ series: [at + 2, at + 1] }))
        : series.flatMap((each, at) => (each.band === undefined ? [] : [{ series: [at + 1, each.band + 1], fill: `${style(each.colour ?? "c1")}22` }])),
      hooks: {
        setCursor: [() => this.newest()],
        drawClear: [(plot) => this.shade(plot, shade())],
        setSelect: [(plot) => {
          if (plot.select.width < 5 || !brush) return;
          brush(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    }, this.drawn(), this.element);
  }

  value(value, number, index, format) {
    if (value === null || value === undefined) return "–";
    const raw = this.options.stacked && index !== null ? this.data[number][index] : value;
    return raw === null || raw === undefined ? "–" : format(raw);
  }

  time(at) {
    const [low, high] = this.range ?? [this.data[0][0], this.data[0].at(-1)];
    return stamp(low, high, now() / 1000)(at * 1e6);
  }

  shade(plot, spans) {
    const context = plot.ctx;
    context.save();
    context.fillStyle = style("shade");
    for (const [from, to] of spans) {
      const left = Math.max(plot.bbox.left, plot.valToPos(from, "x", true));
      const right = Math.min(plot.bbox.left + plot.bbox.width, plot.valToPos(to, "x", true));
      if (right > left) context.fillRect(left, plot.bbox.top, Math.max(1, right - left), plot.bbox.height);
    }
    context.restore();
  }

  drawn() {
    if (!this.options.stacked) return this.data;
    const [times, ...columns] = this.data;
    const sums = times.map((_, at) => (columns.every((column) => column[at] === null) ? null : 0)); // null: nothing was measured
    return [times, ...columns.map((column) => column.map((value, at) => { if (sums[at] !== null) sums[at] += value ?? 0; return sums[at]; }))];
  }

  set(data, range) {
    this.data = data;
    this.range = range;
    this.plot.setData(this.drawn(), true);
    this.newest();
  }

  // While no pointer is over a chart, its legend shows the newest value of each series.
  newest() {
    if (!this.plot || this.plot.cursor.left >= 0 || !this.data[0].length) return;
    const visible = (at) => !this.range || (this.data[0][at] >= this.range[0] && this.data[0][at] <= this.range[1]);
    this.plot.setLegend({ idxs: this.data.map((column) => column.findLastIndex((value, at) => value !== null && value !== undefined && visible(at))).map((at) => (at < 0 ? null : at)) }, false);
  }

  size() {
    const width = Math.max(200, this.element.clientWidth);
    if (width !== this.plot.width) this.plot.setSize({ width, height: this.options.height });
  }

  close() {
    this.plot.destroy();
  }
}
