// Placement: the decisions of the extender with their reasons, from the history; the reservations, from the bus.

import { announce, h, note, replace, shortened, table } from "../base/dom.js";
import { age, amount, counted, moment, now, quoted, whole } from "../base/format.js";
import * as shadow from "./shadow.js";
import * as story from "./story.js";
import { Unreachable, get, repeat, rows } from "../base/stream.js";

const NEWEST = 2000; // decisions that the filter sees
const SHOWN = 100;
const WINDOW = `(SELECT at_us, namespace, name, workload, outcome, node, guaranteed, note, nodes, feasible, refused, ranked, mode, bound, breaks FROM decisions ORDER BY at_us DESC LIMIT ${NEWEST})`;

export function open(main, context) {
  if (context.argument) return story.open(main, context);
  const { search, keep, go } = context;
  let text = search.get("q") ?? "";
  let timer = 0;
  let asked = 0;
  const seen = h("p", { class: "quiet" });
  const body = h("div", {});
  const held = h("div", {});
  const judged = h("div", {});
  const box = h("input", { type: "search", placeholder: "pod, namespace, class or node", "aria-label": "Filter decisions", value: text, oninput: (event) => {
    text = event.target.value;
    keep({ q: text });
    clearTimeout(timer);
    timer = setTimeout(load, 300);
  } });
  replace(main, h("h1", {}, "Placement"), h("p", { class: "quiet" }, "What the extender answered kube-scheduler, newest first. ", h("code", {}, "spazio explain"), " asks the same for a pod that does not exist yet."),
    h("div", { class: "controls" }, box), seen, body, h("h2", {}, "Reservations"), held, judged);

  async function load() {
    const turn = ++asked;
    const filter = text ? `WHERE lower(concat_ws(' ', namespace, name, workload, node)) LIKE ${quoted(`%${text.toLowerCase()}%`)}` : "";
    try {
      const [found, [window]] = await Promise.all([rows(`SELECT * FROM ${WINDOW} ${filter} ORDER BY at_us DESC LIMIT ${SHOWN}`),
        rows(`SELECT count(*) AS decisions, min(at_us) AS since FROM ${WINDOW}`)]);
      if (turn === asked) show(found, window);
    } catch (error) {
      if (!(error instanceof Unreachable)) announce(body, note("error", "The history does not answer", error.message));
    }
  }

  function show(found, window) {
    replace(seen, window.decisions ? `The filter sees the newest ${counted(window.decisions, "decision")}, made since ${moment(window.since)}.${found.length === SHOWN ? ` The first ${SHOWN} that match are listed.` : ""}` : "");
    const none = text ? note("wait", "No decision matches", `None of these has “${text}”.`)
      : note("wait", "No decision yet", "Decisions show when a kube-scheduler asks the extender: deploy/kube-scheduler.yaml connects it.");
    replace(body, shortened(found), found.length ? decisions(found, go) : none);
  }

  async function loadReservations() {
    try {
      const { reservations: list, error } = await get("/api/reservations");
      if (error) announce(held, note("error", "The bus does not answer", error));
      else replace(held, reservations(list, go));
    } catch (error) {
      if (!(error instanceof Unreachable)) announce(held, note("error", "The bus does not answer", error.message));
    }
  }

  async function loadLedger() {
    try {
      replace(judged, shadow.ledger(await shadow.load()));
    } catch (error) {
      if (!(error instanceof Unreachable)) announce(judged, note("error", "The history does not answer", error.message));
    }
  }

  const ends = [repeat(load, 5), repeat(loadReservations, 5), repeat(loadLedger, 60)];
  return {
    close() {
      for (const end of ends) end();
      clearTimeout(timer);
    },
  };
}

const pod = (row, go) => h("a", { href: go("placement", `${row.namespace}/${row.name}`) }, `${row.namespace}/${row.name}`);
const place = (node, go) => (node ? h("a", { href: go("node", node) }, node) : "–");

function decisions(found, go) {
  return table([
    { title: "Time", of: (row) => moment(row.at_us) }, { title: "Pod", of: (row) => pod(row, go) }, { title: "Class", of: (row) => row.workload },
    { title: "Outcome", of: (row) => h("span", { class: row.outcome === "rejected" ? "bad" : "" }, row.outcome) },
    { title: "Node", of: (row) => place(row.node, go) },
    { title: "Would do", number: true, of: (row) => `${whole(row.feasible)} of ${whole(row.nodes)}` },
    { title: "Why", of: (row) => why(row) },
  ], found, { caption: "Decisions" });
}

function why(row) {
  const best = (row.ranked ?? []).slice(0, 3).map((each) => `${each.node} ${amount(each.score)} (room ${amount(each.room)})`).join(", ");
  const refused = Object.entries(row.refused ?? {}).map(([reason, count]) => `${reason}: ${count}`).join("; ");
  return [row.mode === "shadow" ? inShadow(row) : "", row.note, best, refused].filter(Boolean).join(" · ");
}

// What the scheduler did without us, and what the policy says to that.
function inShadow(row) {
  if (!row.bound) return "shadow: not bound yet";
  return `shadow: the scheduler chose ${row.bound}${row.breaks?.length ? `, which the policy refuses: ${row.breaks.join("; ")}` : ""}`;
}

function reservations(list, go) {
  if (!list.length) return h("p", { class: "quiet" }, "None: no pod is decided and not yet bound.");
  const left = (row) => row.until_us / 1e6 - now() / 1000;
  return table([
    { title: "Node", of: (row) => place(row.node, go) }, { title: "Pod", of: (row) => pod(row, go) }, { title: "Class", of: (row) => row.workload },
    { title: "Decided", of: (row) => moment(row.at_us) }, { title: "Expires in", number: true, of: (row) => (left(row) > 0 ? age(left(row)) : "expired") },
    { title: "Requests", of: (row) => story.amounts(row.requests) },
  ], list, { caption: "Reservations" });
}
