// Builds elements. Text becomes text nodes only, so names of nodes and pods are never read as markup.

import { whole } from "./format.js";

// Children of lists in lists, without what is absent.
const present = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

// Puts children in the place of an element's. What is like the one that had the focus gets it, and tables stay scrolled.
export function replace(element, ...children) {
  const focus = keptFocus(element);
  const scrolled = new Map(regions(element).filter((region) => region.scrollLeft).map((region) => [label(region), region.scrollLeft]));
  element.replaceChildren(...present(children));
  focus();
  if (scrolled.size) for (const region of regions(element)) region.scrollLeft = scrolled.get(label(region)) ?? 0;
}

const label = (element) => element.getAttribute("aria-label");

const regions = (element) => [...element.querySelectorAll(".scroll")];

// What a control is, whichever row it moves to: where it leads, or its text without the mark of an order.
const identity = (control) => `${control.tagName} ${control.getAttribute("href") ?? label(control) ?? control.textContent.replace(/ [↑↓]$/, "")}`;

// Remembers what has the focus in an element, and returns what gives it to the same control, or to its table if that has gone.
function keptFocus(element) {
  const active = document.activeElement;
  if (active === element || !element.contains(active)) return () => {};
  const like = (control) => (control ? [...element.querySelectorAll(control.tagName)].filter((each) => identity(each) === identity(control)) : []);
  const [at, region] = [like(active).indexOf(active), active.closest(".scroll")];
  return () => {
    const same = like(active);
    (same[at] ?? same.at(-1) ?? like(region)[0])?.focus({ preventScroll: true });
  };
}

// Puts notes in the place of an element's children if they say something else: a screen reader reads each new note aloud.
export function announce(element, ...notes) {
  const fresh = h("div", {}, ...notes);
  if (fresh.textContent !== element.textContent) replace(element, ...fresh.childNodes);
}

// A table whose columns are {title, of, number, title2}; `of` returns text or an element.
export function table(columns, rows, { caption, sort, onsort } = {}) {
  const head = columns.map((column) => {
    const active = sort && sort.key === column.key;
    const label = onsort && column.key
      ? h("button", { type: "button", class: "sort", onclick: () => onsort(column.key) },
        column.title, active ? (sort.down ? " ↓" : " ↑") : "")
      : column.title;
    const order = active ? (sort.down ? "descending" : "ascending") : undefined;
    return h("th", { scope: "col", class: column.number ? "number" : undefined, title: column.help, "aria-sort": order }, label);
  });
  const body = rows.map((row) => h("tr", {}, columns.map((column) =>
    h("td", { class: column.number ? "number" : undefined }, column.of(row) ?? "–"))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function note(kind, title, text) {
  return h("div", { class: `note ${kind}`, role: kind === "error" ? "alert" : "status" }, h("strong", {}, title), h("p", {}, text));
}

// A line above a list that has not all there is, such as "The first 30 of 120 classes."; null: it has.
export function cut(items, shown, total, order = "first") {
  return total > shown ? h("p", { class: "quiet" }, `The ${order} ${whole(shown)} of ${whole(total)} ${items}.`) : null;
}

// A note if the server has left out rows of an answer; null: it has not.
export function shortened(...answers) {
  if (!answers.some((answer) => answer.truncated)) return null;
  return note("quiet-note", "Not everything is shown", "An answer of the history had more rows than dashboard.query_rows allows, or more than 32 MiB; the last ones are missing.");
}
