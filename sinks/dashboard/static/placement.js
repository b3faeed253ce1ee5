// Placement: the decisions of the extender with their reasons, from the history.

import { h, note, replace, shortened, table } from "./dom.js";
import { amount, moment, quoted, whole } from "./format.js";
import { Unreachable, repeat, rows } from "./stream.js";

export function open(main, { search, report, keep, go }) {
  let text = search.get("q") ?? "";
  let timer = 0;
  const body = h("div", {});
  const box = h("input", { type: "search", placeholder: "pod, namespace, class or node", "aria-label": "Filter decisions", value: text, oninput: (event) => {
    text = event.target.value;
    keep({ q: text });
    clearTimeout(timer);
    timer = setTimeout(load, 300);
  } });
  replace(main, h("h1", {}, "Placement"), h("p", { class: "quiet" }, "What the extender answered kube-scheduler, newest first. `spazio explain` asks the same for a pod that does not exist yet."), h("div", { class: "controls" }, box), body);

  async function load() {
    const like = quoted(`%${text.toLowerCase()}%`);
    const filter = text ? `WHERE lower(concat_ws(' ', namespace, name, workload, node)) LIKE ${like}` : "";
    try {
      const found = await rows(`SELECT * FROM (SELECT at_us, namespace, name, workload, outcome, node, guaranteed, note, nodes, feasible, refused, ranked, seconds FROM decisions ORDER BY at_us DESC LIMIT 2000) ${filter} LIMIT 100`);
      report("live");
      replace(body, shortened(found), found.length ? decisions(found) : note("wait", text ? "No decision matches" : "No decision yet", text ? `None of the last 2000 has “${text}”.` : "Decisions show when a kube-scheduler asks the extender: deploy/kube-scheduler.yaml connects it."));
    } catch (error) {
      if (error instanceof Unreachable) report("disconnected");
      else replace(body, note("error", "The history does not answer", error.message));
    }
  }

  function decisions(found) {
    return table([
      { title: "Time", of: (row) => moment(row.at_us) }, { title: "Pod", of: (row) => `${row.namespace}/${row.name}` }, { title: "Class", of: (row) => row.workload },
      { title: "Outcome", of: (row) => h("span", { class: row.outcome === "placed" || row.node ? "" : "bad" }, row.outcome) },
      { title: "Node", of: (row) => (row.node ? h("a", { href: go("node", row.node) }, row.node) : "–") },
      { title: "Would do", number: true, of: (row) => `${whole(row.feasible)} of ${whole(row.nodes)}` },
      { title: "Why", of: (row) => why(row) },
    ], found, { caption: "Decisions" });
  }

  function why(row) {
    const best = (row.ranked ?? []).slice(0, 3).map((each) => `${each.node} ${amount(each.score)} (room ${amount(each.room)})`).join(", ");
    const refused = Object.entries(row.refused ?? {}).map(([reason, count]) => `${reason}: ${count}`).join("; ");
    return [row.note, best, refused].filter(Boolean).join(" · ");
  }

  const end = repeat(load, 5);
  return {
    close() {
      end();
      clearTimeout(timer);
    },
  };
}
