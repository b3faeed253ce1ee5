// The story of one pod: decisions with all their reasons, its facts, its containers and its usage, from the history.

import { Chart } from "../chart/chart.js";
import { gapped } from "../chart/gap.js";
import { announce, h, note, replace, shortened, table } from "../base/dom.js";
import { amount, bytes, counted, moment, now, quoted, whole } from "../base/format.js";
import { step } from "../chart/line.js";
import { Unreachable, repeat, rows } from "../base/stream.js";

const DAYS = 7;
const USAGE_SECONDS = 21600;

export function open(main, { argument, go }) {
  const [namespace, ...rest] = argument.split("/");
  const name = rest.join("/");
  let shown = "";
  let chart = null;
  const body = h("div", {});
  const place = h("figure", { class: "wide", hidden: true });
  replace(main, h("h1", {}, argument), h("p", { class: "quiet" }, h("a", { href: go("placement", "", { q: name }) }, "all decisions"), ` · what the history has of the last ${DAYS} days`), body, place);
  replace(body, note("wait", "Asking the history…", ""));

  async function load() {
    try {
      const [decisions, facts, containers] = await Promise.all([DECISIONS, FACTS, CONTAINERS].map((of) => rows(of(namespace, name))));
      const node = facts.at(-1)?.node ?? containers.at(-1)?.node ?? decisions.find((row) => row.node)?.node;
      const first = Math.min(...[decisions, facts, containers].flat().map((row) => row.at_us)) / 1e6;
      const [from, to] = [Math.max(first, now() / 1000 - USAGE_SECONDS), now() / 1000];
      const usage = node ? await rows(usageOf(namespace, name, node, from, to)) : [];
      const content = JSON.stringify([decisions, facts, containers]);
      if (content !== shown) replace(body, ...storyOf({ decisions, facts, containers, go }));
      shown = content;
      draw(usage, node, [from, to]);
    } catch (error) {
      if (!(error instanceof Unreachable)) announce(body, note("error", "The history does not answer", error.message));
    }
  }

  function draw(usage, node, range) {
    place.hidden = !usage.length;
    if (!usage.length) return;
    chart ??= new Chart(place, { title: `CPUs in use on ${node}`, height: 200, format: (value) => amount(value, 3), series: [{ label: "CPUs", width: 2 }] });
    const { times, values } = gapped({ times: usage.map((row) => row.t), values: [usage.map((row) => row.cores)] }, step(...range));
    chart.set([times, ...values], range);
  }

  const end = repeat(load, 5);
  return {
    close() {
      end();
      chart?.close();
    },
    repaint() { chart?.build(); },
  };
}

const of = (namespace, name) => `namespace = ${quoted(namespace)} AND name = ${quoted(name)} AND date >= current_date - ${DAYS}`;
const DECISIONS = (namespace, name) => `SELECT at_us, outcome, node, mode, guaranteed, note, workload, nodes, feasible, refused, ranked, refusals, bound, breaks FROM decisions WHERE ${of(namespace, name)} ORDER BY at_us DESC LIMIT 50`;
const FACTS = (namespace, name) => `SELECT * FROM (SELECT at_us, node, phase, deleted, terminating, ready_us, requests FROM podfacts WHERE ${of(namespace, name)} ORDER BY at_us DESC LIMIT 200) ORDER BY at_us`;
const CONTAINERS = (namespace, name) => `SELECT * FROM (SELECT at_us, node, event, coalesce(container_name, left(container, 12)) AS who FROM containers WHERE ${of(namespace, name)} ORDER BY at_us DESC LIMIT 200) ORDER BY at_us`;

function usageOf(namespace, name, node, from, to) {
  const seconds = step(from, to);
  return `SELECT (at_us // ${seconds * 1e6}) * ${seconds} AS t, avg(cpu_cores) AS cores FROM pods WHERE ${of(namespace, name)} AND node = ${quoted(node)} `
    + `AND date >= current_date - 1 AND at_us > ${Math.round(from * 1e6)} GROUP BY 1 ORDER BY 1`;
}

export const amounts = (given) => Object.entries(given ?? {}).map(([name, value]) => `${name} ${name === "memory" || name.endsWith("storage") ? bytes(value) : amount(value, 2)}`).join(", ");

function storyOf({ decisions, facts, containers, go }) {
  const events = [...decisions.map(decided), ...facts.map((row, at) => stated(row, facts[at - 1])), ...containers.map((row) => ({ ...row, what: `container ${row.event}`, text: row.who }))]
    .filter(Boolean).sort((one, other) => other.at_us - one.at_us);
  if (!events.length) return [note("wait", "Nothing is known of this pod", `The history of the last ${DAYS} days has no decision, no fact and no container of it.`)];
  return [shortened(decisions, facts, containers), h("h2", {}, "What happened, newest first"), table([
    { title: "Time", of: (row) => moment(row.at_us) }, { title: "What", of: (row) => h("span", { class: row.bad ? "bad" : undefined }, row.what) },
    { title: "Node", of: (row) => (row.node ? h("a", { href: go("node", row.node) }, row.node) : "–") }, { title: "Details", of: (row) => row.text },
  ], events, { caption: "What happened" }), ...decisions.flatMap((row, at) => reasons(row, at, go))];
}

function decided(row) {
  const refused = Object.entries(row.refused ?? {}).map(([reason, count]) => `${reason}: ${count}`).join("; ");
  const chosen = row.bound ? `the scheduler chose ${row.bound}${row.breaks?.length ? `, which the policy refuses: ${row.breaks.join("; ")}` : ""}` : "";
  return { at_us: row.at_us, node: row.node, what: `decision: ${row.outcome}`, bad: row.outcome === "rejected",
    text: [row.note, `${whole(row.feasible)} of ${counted(row.nodes, "node")} would do`, refused, chosen].filter(Boolean).join(" · ") };
}

// A fact as what it changed; null: nothing that is shown.
function stated(row, before) {
  const words = (fact) => [fact.phase, fact.ready_us ? "ready" : "", fact.terminating ? "terminating" : "", fact.deleted ? "deleted" : ""].filter(Boolean).join(", ");
  if (before && words(before) === words(row) && before.node === row.node) return null;
  return { at_us: row.at_us, node: row.node, what: `pod: ${words(row)}`, bad: row.phase === "Failed", text: before ? "" : `requests ${amounts(row.requests) || "nothing"}` };
}

function reasons(row, at, go) {
  const number = at + 1;
  const node = (each) => h("a", { href: go("node", each.node) }, each.node);
  const ranked = row.ranked?.length ? table([
    { title: "Node", of: node }, { title: "Score", number: true, of: (each) => amount(each.score) }, { title: "Fit before reservations", number: true, of: (each) => amount(each.room) },
    { title: "Reserved", number: true, of: (each) => amount(each.reserved, 0) }, { title: "Telemetry", of: (each) => each.state },
    { title: "By strategy", of: (each) => (each.scores ?? []).map(({ strategy, score }) => `${strategy} ${amount(score)}`).join(", ") },
  ], row.ranked, { caption: `Ranked nodes ${number}` }) : null;
  const refusals = row.refusals?.length ? table([
    { title: "Node", of: node }, { title: "Refused for", of: (each) => each.reason }, { title: "Needs", of: (each) => (each.needs ?? []).join("; ") || "–" },
  ], row.refusals, { caption: `Refused nodes ${number}` }) : null;
  if (!ranked && !refusals) return [];
  return [h("details", { open: at === 0 }, h("summary", {}, `Decision of ${moment(row.at_us)}: ${row.outcome}${row.node ? ` on ${row.node}` : ""}`),
    ranked ? h("h3", {}, "Best nodes") : null, ranked, refusals ? h("h3", {}, "Refused nodes that were closest") : null, refusals)];
}
