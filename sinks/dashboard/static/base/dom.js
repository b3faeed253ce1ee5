// Builds elements. Text becomes text nodes only, so names of nodes and pods are never read as markup.

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

export function replace(element, ...children) {
  element.replaceChildren(...present(children));
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

// A note if the server has left out rows of an answer; null: it has not.
export function shortened(...answers) {
  if (!answers.some((answer) => answer.truncated)) return null;
  return note("quiet-note", "Not everything is shown", "An answer of the history had more rows than dashboard.query_rows allows, or more than 32 MiB; the last ones are missing.");
}
