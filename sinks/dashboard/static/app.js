// Routes, theme, keys and the state of the connection. An address is #/page/argument?key=value, so every view can be shared.

import { announce, h, note, replace } from "./base/dom.js";
import { age, setNow } from "./base/format.js";
import * as storage from "./base/storage.js";
import { WITHOUT_BUS, get, refusal, watchServer } from "./base/stream.js";
import * as cluster from "./cluster/cluster.js";
import * as model from "./learned/learned.js";
import * as node from "./node/node.js";
import * as pipeline from "./pipeline.js";
import * as placement from "./placement/placement.js";
import * as predictions from "./prediction/predictions.js";
import * as sql from "./sql/sql.js";

const PAGES = { cluster, node, model, placement, predictions, pipeline, sql };
const LINKS = [["cluster", "Cluster"], ["model", "Model"], ["placement", "Placement"], ["predictions", "Predictions"], ["pipeline", "Pipeline"], ["sql", "SQL"]];
const KEYS = [
  ["/", "search"], ["j, k", "next, previous node"], ["Enter", "open the node"], ["Esc", "back to the cluster, or to all decisions"],
  ["g", "group by zone, type or not"], ["t", "dark or light"], ["1 – 6", "pages"], ["?", "these keys"],
];

const BUS_AWAY = { title: "The bus does not answer", text: "The dashboard's server has no connection to NATS and tries again by itself. Until then pages show what came before, and the history." };

let current = null;
let unwatch = () => {}; // ends the watch over the server
let state = "connecting";
let since = Date.now();
let trouble = null; // {title, text}: why nothing comes

// A part of the address; one that is not encoded well stands for itself.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function address() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "cluster", ...rest] = path.split("/").map(decoded);
  return { page: page || "cluster", argument: rest.join("/"), search: new URLSearchParams(search) };
}

export function go(page, argument = "", search = {}) {
  const parameters = new URLSearchParams(Object.entries(search).filter(([, value]) => value !== "" && value !== undefined && value !== null));
  const tail = parameters.size ? `?${parameters}` : "";
  return `#/${page}${argument ? `/${encodeURIComponent(argument)}` : ""}${tail}`;
}

// Changes parameters of the address without a new entry in the browser's history.
export function keep(changes) {
  const { page, argument, search } = address();
  history.replaceState(null, "", go(page, argument, { ...Object.fromEntries(search), ...changes }));
}

async function report(next) {
  if (next !== state) since = Date.now();
  state = next;
  if (state !== "disconnected") trouble = state === WITHOUT_BUS ? BUS_AWAY : null;
  paintConnection();
  if (state !== "disconnected") return;
  const text = await refusal();
  if (state === "disconnected") trouble = text ? { title: "The server refuses this page", text } : null;
  paintConnection();
}

function paintConnection() {
  const element = document.getElementById("connection");
  const lasting = { disconnected: trouble ? null : "disconnected for", [WITHOUT_BUS]: "no bus for" }[state];
  const text = lasting ? `${lasting} ${age((Date.now() - since) / 1000)}` : trouble ? "refused" : state;
  if (element.textContent !== text) element.textContent = text;
  element.className = state;
  announce(document.getElementById("trouble"), trouble ? note("error", trouble.title, trouble.text) : null);
}

function show() {
  const { page, argument, search } = address();
  const module = Object.hasOwn(PAGES, page) ? PAGES[page] : null;
  unwatch();
  unwatch = () => {};
  current?.close?.();
  current = null;
  const main = document.getElementById("main");
  for (const link of document.querySelectorAll("#nav a")) {
    link.toggleAttribute("aria-current", link.dataset.page === page);
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
  }
  if (!module) {
    replace(main, note("error", "There is no such page", location.hash));
    return;
  }
  document.title = argument ? `${argument} · spazio` : `${page} · spazio`;
  main.className = page;
  current = module.open(main, { argument, search, report, go, keep, about });
  if (!module.EVENTS) unwatch = watchServer(report);
}

function theme(next) {
  document.documentElement.dataset.theme = next;
  storage.write("spazio-theme", next);
  current?.repaint?.();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (!document.getElementById("keys").open && address().argument) location.hash = go(address().page === "node" ? "cluster" : address().page);
    return;
  }
  if (typing || (event.key === "Enter" && event.target.closest?.("a, button, summary, dialog"))) return;
  const page = LINKS[Number(event.key) - 1];
  if (page) location.hash = go(page[0]);
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "t") theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  else if (event.key === "/") {
    const search = document.querySelector("main input[type=search], main textarea");
    if (!search) return;
    search.focus();
  } else if (!current?.key?.(event.key)) return;
  event.preventDefault();
}

function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = storage.read("spazio-theme") ?? (dark ? "dark" : "light");
  replace(document.getElementById("nav"), LINKS.map(([page, title]) => h("a", { href: go(page), "data-page": page }, title)));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // its address would be that of a page
    document.getElementById("main").focus();
  });
  const dialog = document.getElementById("keys");
  replace(dialog, h("h2", {}, "Keys"), h("dl", {}, KEYS.map(([key, what]) => [h("dt", {}, key), h("dd", {}, what)])),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  document.getElementById("help").addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", keys);
  addEventListener("hashchange", show);
  setInterval(paintConnection, 500);
  show();
}

export const about = get("/api/about").then((answer) => { setNow(answer.now); return answer; }).catch(() => ({ expirySeconds: 30, slowdown: 2, host: "" }));
start();
