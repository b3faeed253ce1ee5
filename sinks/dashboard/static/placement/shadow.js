// Shadow mode: how often the scheduler, which decides alone, broke the policy; by week and namespace, as `spazio ledger`.

import { cut, h, table } from "../base/dom.js";
import { percent, whole } from "../base/format.js";
import { rows } from "../base/stream.js";

const LEDGER = "SELECT strftime(week, '%Y-%m-%d') AS week, namespace, pods, agreed, without_room, broken, share, share_low, share_high, count(*) OVER () AS found FROM ledger ORDER BY week DESC, namespace LIMIT 200";

export const load = () => rows(LEDGER);

// Nothing where the extender never ran in shadow mode.
export function ledger(found) {
  if (!found.length) return [];
  return [h("h2", {}, "Shadow mode"),
    h("p", { class: "quiet" }, "Pods that the scheduler bound without us, and how many of them the policy refuses on their node, as that node was when the scheduler asked."),
    cut("rows", found.length, found[0].found),
    table([
      { title: "Week of", of: (row) => row.week }, { title: "Namespace", of: (row) => row.namespace }, { title: "Pods", number: true, of: (row) => whole(row.pods) },
      { title: "As we would", number: true, help: "on the node that we would have chosen", of: (row) => whole(row.agreed) },
      { title: "Without room", number: true, help: "we would have let them wait", of: (row) => whole(row.without_room) },
      { title: "Policy broken", number: true, of: (row) => h("span", { class: row.broken ? "bad" : undefined }, whole(row.broken)) },
      { title: "Share", number: true, of: (row) => percent(row.share) },
      { title: "At 95 %", number: true, help: "Wilson's interval", of: (row) => `${percent(row.share_low)} to ${percent(row.share_high)}` },
    ], found, { caption: "Shadow mode by week" })];
}
