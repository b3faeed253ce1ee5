// Model: what the nodes have in common, by component and by class; how well one direction describes each node; rejects.

import { Chart } from "../chart/chart.js";
import { announce, h, note, replace, shortened, table } from "../base/dom.js";
import { components } from "./eigen.js";
import { age, amount, bytes, moment, now, percent, whole, workload } from "../base/format.js";
import { LARGEST, REST } from "../chart/stack.js";
import { Unreachable, get, repeat, rows } from "../base/stream.js";

const MODEL_SECONDS = 2;
const HISTORY_SECONDS = 15;
const HOUR = "at_us > (SELECT at_us FROM newest_time) - 3600000000 AND date >= current_date - 1";
// Of the classes that use most CPU, and of all others together, whose class is null.
const COSTS = `WITH sums AS (SELECT t, each.class AS class, sum(each.cpu) AS cpu, sum(each.pods) AS pods
FROM (SELECT at_us // 10000000 * 10 AS t, unnest(classes) AS each FROM models WHERE scope = 'global' AND ${HOUR}) WHERE each.pods > 0 GROUP BY 1, 2),
largest AS (SELECT class FROM sums GROUP BY class ORDER BY sum(cpu) DESC, class LIMIT ${LARGEST})
SELECT t, CASE WHEN class IN (SELECT class FROM largest) THEN class END AS class, sum(cpu) / sum(pods) AS cores FROM sums GROUP BY 1, 2 ORDER BY 1`;
const EXPLAINED = `SELECT node, arg_max(explained, at_us) AS explained, arg_max(gap, at_us) AS gap, arg_max(prior, at_us) AS prior, max(at_us) AS at_us
FROM availability WHERE at_us > (SELECT at_us FROM newest_time) - 30000000 AND date >= current_date - 1
GROUP BY node ORDER BY explained, node LIMIT 20`;
const REJECTS = `SELECT * FROM (SELECT node, at_us, reject, score, threshold, rank, weights, since_us FROM rejects
WHERE at_us > (SELECT at_us FROM newest_time) - 30000000 AND date >= current_date - 1
QUALIFY row_number() OVER (PARTITION BY node ORDER BY at_us DESC) = 1) ORDER BY reject DESC, score DESC, node LIMIT 20`;

export function open(main, { go }) {
  let chart = null;
  const learned = h("div", {});
  const place = h("figure", { class: "wide" });
  const seen = h("div", {});
  replace(main, h("h1", {}, "Model"), learned, h("h2", {}, "CPUs that one pod takes, by class"), place, seen);
  replace(learned, note("wait", "Asking the bus…", ""));
  const link = (row) => h("a", { href: go("node", row.node) }, row.node);

  async function loadModel() {
    try {
      const { model, error } = await get("/api/model");
      if (model) replace(learned, shown(model));
      else announce(learned, error ? note("error", "The bus does not answer", error) : note("wait", "Nothing is learned yet", "Processors publish what they have learned once a second."));
    } catch (error) {
      if (!(error instanceof Unreachable)) announce(learned, note("error", "The bus does not answer", error.message));
    }
  }

  async function loadHistory() {
    try {
      const [costs, explained, rejects] = await Promise.all([rows(COSTS), rows(EXPLAINED), rows(REJECTS)]);
      draw(costs);
      replace(seen, shortened(costs), nodes(explained), rejected(rejects));
    } catch (error) {
      if (!(error instanceof Unreachable)) announce(seen, note("quiet-note", "No history", error.message));
    }
  }

  function draw(costs) {
    const last = new Map(costs.map((row) => [row.class, row.cores]));
    const names = [...last].sort((one, other) => (one[0] === null) - (other[0] === null) || other[1] - one[1]).map(([name]) => name);
    const times = [...new Set(costs.map((row) => row.t))];
    const at = new Map(times.map((time, index) => [time, index]));
    const columns = names.map(() => times.map(() => null));
    for (const row of costs) {
      columns[names.indexOf(row.class)][at.get(row.t)] = row.cores;
    }
    chart?.close();
    replace(place);
    chart = names.length ? new Chart(place, { title: "", height: 220, format: (value) => amount(value, 3), series: names.map((name) => ({ label: name === null ? REST : workload(name) })) }) : null;
    if (!chart) replace(place, h("p", { class: "quiet" }, "The history has no models of the last hour."));
    chart?.set([times, ...columns], null);
  }

  function nodes(explained) {
    return [h("h2", {}, "Nodes that one direction describes least"),
      h("p", { class: "quiet" }, "The share of a node's usage that lies in its first direction; below about half, its classes load it in different ways."),
      explained.length ? table([
        { title: "Node", of: link }, { title: "Explained", number: true, of: (row) => percent(row.explained) },
        { title: "Second to first", number: true, help: "near 1: no single direction", of: (row) => percent(row.gap) },
        { title: "Assumed", number: true, help: "share of the cost that is assumed, not measured", of: (row) => percent(row.prior) },
      ], explained, { caption: "Explained share by node" }) : h("p", { class: "quiet" }, "No node yet.")];
  }

  function rejected(rejects) {
    return [h("h2", {}, "Reject signal"),
      h("p", { class: "quiet" }, "PRONTO's sign that usage leaves a node's usual pattern: the weight of the directions that spike, against the threshold."),
      rejects.length ? table([
        { title: "Node", of: link }, { title: "Takes new work", of: (row) => h("span", { class: row.reject ? "bad" : "" }, row.reject ? "no" : "yes") },
        { title: "Score", number: true, of: (row) => percent(row.score) }, { title: "Threshold", number: true, of: (row) => percent(row.threshold) },
        { title: "Directions", number: true, of: (row) => whole(row.rank) }, { title: "Weights", of: (row) => (row.weights ?? []).map(percent).join(", ") },
        { title: "For", number: true, of: (row) => age((now() * 1000 - row.since_us) / 1e6) },
      ], rejects, { caption: "Reject signal by node" }) : h("p", { class: "quiet" }, "None: reject is off, or has not learned a pattern yet.")];
  }

  const ends = [repeat(loadModel, MODEL_SECONDS), repeat(loadHistory, HISTORY_SECONDS)];
  return {
    close() {
      for (const end of ends) end();
      chart?.close();
    },
    repaint() { chart?.build(); },
  };
}

function shown(model) {
  const { features, components: found } = components(model);
  const top = found.slice(0, 4);
  const facts = [["Nodes", whole(model.nodes)], ["Pods behind it", amount(model.pods)], ["Explained by the first", percent(top[0]?.share)], ["Learned until", moment(model.at_us)]];
  const loadings = [
    { name: "explains", of: (component) => percent(component.share) },
    ...features.map((name, at) => ({ name: name.replaceAll("_", " "), of: (component) => amount(component.vector[at], 2) })),
  ];
  return [h("dl", { class: "facts" }, facts.map(([title, text]) => h("div", {}, h("dt", {}, title), h("dd", {}, text)))),
    h("h2", {}, "Components"),
    h("p", { class: "quiet" }, "Directions in which the use of all nodes grows together, each feature scaled to a mean square of 1; how much of the use each explains."),
    top.length ? table([{ title: "Feature", of: (row) => row.name }, ...top.map((component, at) => ({ title: `Component ${at + 1}`, number: true, of: (row) => row.of(component) }))],
      loadings, { caption: "Components" }) : h("p", { class: "quiet" }, "No usage yet."),
    h("h2", {}, "Classes"), classes(model)];
}

function classes(model) {
  const list = Object.entries(model.classes ?? {}).sort((one, other) => (other[1].running ?? other[1].pods) - (one[1].running ?? one[1].pods));
  if (!list.length) return h("p", { class: "quiet" }, "No class is known yet: pods have not been measured.");
  const a = (of) => ([, sum]) => (sum.pods > 0 ? of(sum) : null);
  return table([
    { title: "Class", of: ([name]) => workload(name) }, { title: "Running", number: true, of: ([, sum]) => amount(sum.running ?? sum.pods) },
    { title: "CPUs a pod", number: true, of: a((sum) => amount(sum.cpu / sum.pods, 3)) }, { title: "Memory a pod", number: true, of: a((sum) => bytes(sum.memory / sum.pods)) },
    { title: "Soaking", number: true, help: "share of its pods whose threads are always runnable", of: a((sum) => percent((sum.soaking ?? 0) / sum.pods)) },
    { title: "Next pod", number: true, help: "probability that the next pod is of the class, mean of the nodes", of: ([, sum]) => (model.voting ? percent((sum.votes ?? 0) / model.voting) : "–") },
    { title: "Started", number: true, help: "with a memory of an hour", of: ([, sum]) => amount(sum.started) }, { title: "Nodes with evidence", number: true, of: ([, sum]) => whole(sum.nodes) },
  ], list, { caption: "What was learned of each class" });
}
