// A chart of points, each a share against another, as SVG.

import { h } from "../base/dom.js";
import { percent } from "../base/format.js";

const [WIDTH, HEIGHT] = [480, 300];
const [LEFT, RIGHT, TOP, BOTTOM] = [58, 16, 12, 46];
const TICKS = 4;
const LEAST = 0.05; // to which an axis goes at least

// `points` are {x, y, title, name, colour}: title is shown under the pointer, name beside the point; colours are 1 to 8.
export function scatter({ title, points, across, up, diagonal = false }) {
  const x = axis(points.map((point) => point.x));
  const y = diagonal ? axis([...points.map((point) => point.y), x.high]) : axis(points.map((point) => point.y));
  if (diagonal) [x.low, x.high] = [y.low, y.high];
  const left = (value) => LEFT + (value - x.low) / (x.high - x.low) * (WIDTH - LEFT - RIGHT);
  const top = (value) => HEIGHT - BOTTOM - (value - y.low) / (y.high - y.low) * (HEIGHT - TOP - BOTTOM);
  const grid = ticks(x).map((value) => [line(left(value), TOP, left(value), HEIGHT - BOTTOM), text(left(value), HEIGHT - BOTTOM + 16, percent(value), "middle")])
    .concat(ticks(y).map((value) => [line(LEFT, top(value), WIDTH - RIGHT, top(value)), text(LEFT - 6, top(value) + 4, percent(value), "end")]));
  const marks = points.flatMap((point) => [
    svg("circle", { cx: left(point.x), cy: top(point.y), r: 4.5, class: `c${point.colour}` }, svg("title", {}, point.title)),
    ...(point.name ? [text(left(point.x) + (left(point.x) > WIDTH * 0.7 ? -8 : 8), top(point.y) - 7, point.name, left(point.x) > WIDTH * 0.7 ? "end" : "start", "name")] : [])]);
  return h("figure", { class: "scatter" }, h("figcaption", {}, title), svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title },
    ...grid.flat(), ...(diagonal ? [line(left(x.low), top(x.low), left(x.high), top(x.high), "diagonal")] : []), ...marks,
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, "middle"), svg("text", { transform: `translate(12 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" }, up)));
}

function axis(values) {
  return { low: Math.min(0, ...values), high: Math.max(LEAST, ...values.map((value) => 1.05 * value)) };
}

const ticks = ({ low, high }) => Array.from({ length: TICKS + 1 }, (_, at) => low + at / TICKS * (high - low));

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

const line = (x1, y1, x2, y2, kind = "grid") => svg("line", { x1, y1, x2, y2, class: kind });
const text = (x, y, content, anchor, kind = "tick") => svg("text", { x, y, "text-anchor": anchor, class: kind }, content);
