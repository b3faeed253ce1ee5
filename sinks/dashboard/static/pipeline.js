// Pipeline: streams and for how long they hold, who folds what, what became of every message, dead letters.

import { announce, h, note, replace, table } from "./base/dom.js";
import { age, bytes, counted, moment, now, part as words, whole } from "./base/format.js";
import { get, repeat } from "./base/stream.js";

export function open(main) {
  const trouble = h("div", {});
  const body = h("div", {});
  replace(main, h("h1", { class: "hidden" }, "Pipeline"), trouble, body);
  replace(body, note("wait", "Asking the services…", "Each answers within half a second."));

  async function load() {
    try {
      draw(await get("/api/pipeline"));
    } catch (error) {
      if (!body.querySelector("table")) announce(body, note("error", "The dashboard's server does not answer", error.message));
    }
  }

  function draw(state) {
    const failures = Object.entries(state.errors).map(([part, reason]) => note("error", `${part}: not readable`, reason));
    const parts = (state.replicas ?? []).flatMap((replica) => Object.entries(replica.parts).map(([name, part]) => ({ name, ...part, host: replica.host, pid: replica.pid })));
    const accounts = (state.ledger ?? []).flatMap((report) => report.accounts.map((account) => ({ ...account, service: report.service, pid: report.pid })));
    const skipped = accounts.some((account) => account.outcomes.skipped);
    const lag = Math.max(0, ...parts.map((part) => part.lag));
    announce(trouble, failures,
      skipped ? note("error", "Some messages are left out", `Processors skipped messages in the last hour, since this machine has too little CPU time for what runs on it. Add a core and start another processor (spazio up --processors 2), or measure fewer nodes.`) : null);
    replace(body,
      h("div", { class: "cards" },
        card("Processors", String(state.replicas?.length ?? 0), counted(parts.length, "part")), card("Largest lag", whole(lag), "messages behind"),
        card("Services that answer", String(state.ledger?.length ?? 0), ""), card("Dead letters", whole(state.letters?.count), state.letters?.seconds ? `kept for ${age(state.letters.seconds)}` : "")),
      h("h2", {}, "Streams"), streams(state), h("h2", {}, "What became of the messages of the last hour"), ledger(accounts),
      h("h2", {}, "Parts"), owners(parts), h("p", { class: "quiet" }, "No processor holds a part before its first message; ", h("code", {}, "spazio top --partitions"), " lists such parts, too."), h("h2", {}, "Dead letters"), state.letters ? letters(state.letters) : null);
  }

  const card = (title, number, text) => h("div", { class: "card" }, h("span", {}, title), h("strong", {}, number), h("small", {}, text));

  function streams(state) {
    const held = Object.fromEntries((state.retention ?? []).map((row) => [row.stream, row]));
    return table([
      { title: "Stream", of: (row) => row.name }, { title: "Messages", number: true, of: (row) => whole(row.messages) }, { title: "Size", number: true, help: "before compression", of: (row) => bytes(row.bytes) },
      { title: "Limit", number: true, of: (row) => (row.most > 0 ? bytes(row.most) : "none") },
      { title: "Grows by", number: true, of: (row) => (held[row.name] ? `${bytes(held[row.name].bytes_per_second)}/s` : "–") },
      { title: "Holds", number: true, help: "at the present rate", of: (row) => {
        const found = held[row.name];
        if (!found) return "–";
        return h("span", { class: found.seconds < found.wanted_seconds ? "bad" : undefined, title: found.seconds < found.wanted_seconds ? `set --nats-${found.setting.replaceAll("_", "-")} ${Math.round(found.bytes_per_second * found.wanted_seconds)}` : undefined }, age(found.seconds));
      } },
    ], state.streams ?? [], { caption: "Streams" });
  }

  function ledger(accounts) {
    return table([
      { title: "Service", of: (row) => row.service }, { title: "Account", of: (row) => row.account }, { title: "Stream", of: (row) => row.stream },
      { title: "Received", number: true, of: (row) => whole(row.received) }, { title: "Waiting", number: true, of: (row) => whole(row.waiting) },
      { title: "Outcomes", of: (row) => h("span", {}, Object.entries(row.outcomes).filter(([, count]) => count).map(([name, count]) => h("span", { class: `outcome ${["refused", "buried", "skipped", "expired", "lost"].includes(name) ? "bad" : ""}` }, `${name} ${whole(count)}`))) },
    ], accounts, { caption: "Accounts" });
  }

  function owners(parts) {
    return table([
      { title: "Part", of: (row) => h("span", { title: row.name }, words(row.name)) }, { title: "Host", of: (row) => row.host }, { title: "Process", of: (row) => String(row.pid) },
      { title: "Nodes", number: true, of: (row) => whole(row.nodes) }, { title: "Lag", number: true, of: (row) => h("span", { class: row.lag > 2000 ? "bad" : undefined }, whole(row.lag)) },
      { title: "Held for", number: true, of: (row) => age(now() / 1000 - row.since_us / 1e6) },
    ], parts, { caption: "Parts and their owners" });
  }

  function letters({ count, newest }) {
    if (!newest.length) return h("p", { class: "quiet" }, "None: every message could be used.");
    return [count > newest.length ? h("p", { class: "quiet" }, `The newest ${newest.length} of ${whole(count)}.`) : null, table([
      { title: "Time", of: (row) => moment(row.at) }, { title: "Subject", of: (row) => row.subject }, { title: "Reason", of: (row) => row.reason },
      { title: "Size", number: true, of: (row) => bytes(row.bytes) },
      { title: "Begins with", of: ({ begin }) => h("code", { class: "begin" }, begin.hex ? h("span", { class: "quiet" }, "hex ") : null, begin.text, begin.more ? "…" : null) },
    ], newest, { caption: "Dead letters" })];
  }

  return { close: repeat(load, 2) };
}
