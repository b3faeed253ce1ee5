// Requests to the server: events with their state, queries of the history, JSON.

const AGAIN_SECONDS = 1.5;
const SILENT_SECONDS = 8; // the server sends something every three seconds (event_stream.py)
const ANSWER_SECONDS = 5; // of a server that is there, to what it need not compute
const PULSE_SECONDS = 2;
const LONGEST_SECONDS = 120; // queries wait for their turn, and each ends after some seconds
const SILENT = "the server does not answer";

// The state of a connection to a server that answers, while the bus does not answer the server.
export const WITHOUT_BUS = "without-bus";

// Whether what does not come says nothing about the nodes.
export const isAway = (state) => state === "disconnected" || state === WITHOUT_BUS;

let lost = new AbortController(); // ends the requests that wait for a server that is gone

// The server does not answer, or does not let this page in; the message says which.
export class Unreachable extends Error {}

async function answered(path, options) {
  const signal = options?.signal ?? AbortSignal.any([lost.signal, AbortSignal.timeout(LONGEST_SECONDS * 1000)]);
  const answer = await fetch(path, { ...options, signal }).catch(() => { throw new Unreachable(SILENT); });
  for (const part of ["blob", "json", "text"]) { // it may go away after its headers
    const read = answer[part].bind(answer);
    answer[part] = () => read().catch((error) => { throw error instanceof SyntaxError ? error : new Unreachable(SILENT); });
  }
  if (answer.status === 401 || answer.status === 403) throw new Unreachable((await answer.text()).trim());
  return answer;
}

export async function get(path, options) {
  const answer = await answered(path, options);
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

const ask = (path, content) => answered(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });

// Saves the flight recorder of a range, of all nodes or of one; `from` and `to` in seconds.
export async function saveRecording(from, to, node = "") {
  const answer = await ask("/api/recording", { from, to, node });
  if (answer.headers.get("Content-Type")?.startsWith("application/json")) throw new Error((await answer.json()).error);
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  save(await answer.blob(), `spazio-${new Date(from * 1000).toISOString().slice(0, 16).replaceAll(":", "")}Z.html`);
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

export async function query(sql) {
  const answer = await ask("/api/query", { sql });
  const content = await answer.json().catch((error) => {
    if (error instanceof Unreachable) throw error;
    return { error: `the server answered ${answer.status}` };
  });
  if (content.error) throw new Error(content.error);
  return content;
}

// Rows of a query as objects; `truncated` of the list says whether the server has left out rows at its end.
export async function rows(sql) {
  const answer = await query(sql);
  const found = answer.rows.map((row) => Object.fromEntries(row.map((value, at) => [answer.columns[at], value])));
  return Object.assign(found, { truncated: answer.truncated });
}

const stateBy = ({ bus }) => (bus ? "live" : WITHOUT_BUS);

const ping = () => get("/api/about", { signal: AbortSignal.timeout(ANSWER_SECONDS * 1000) });

// Ends the requests that wait for an answer; each fails as one to a server that is gone.
function giveUp() {
  lost.abort();
  lost = new AbortController();
}

// Asks now and then whether the server is there, for a page without events, and reports "live", "without-bus" or
// "disconnected"; returns what ends it.
export function watchServer(report) {
  let closed = false;
  const end = repeat(async () => {
    const state = await ping().then(stateBy, () => "disconnected");
    if (closed || document.hidden) return;
    if (state === "disconnected") giveUp();
    report(state);
  }, PULSE_SECONDS);
  return () => {
    closed = true;
    end();
  };
}

// Why a page gets no events: the text of a server that refuses it, or empty if no server answers.
export async function refusal() {
  try {
    return (await ping()).refusal ?? "";
  } catch (error) {
    return error instanceof Unreachable && error.message === SILENT ? "" : error.message;
  }
}

// Calls `load` now, and again so many seconds after each end while the page is seen; returns what ends it.
export function repeat(load, seconds) {
  let timer = 0;
  let running = false;
  let closed = false;
  async function turn() {
    clearTimeout(timer);
    if (running || closed || document.hidden) return;
    running = true;
    await load();
    running = false;
    if (!closed && !document.hidden) timer = setTimeout(turn, seconds * 1000);
  }
  document.addEventListener("visibilitychange", turn);
  turn();
  return () => {
    closed = true;
    document.removeEventListener("visibilitychange", turn);
    clearTimeout(timer);
  };
}

// Follows events until `close`, except while the page is hidden; connects again by itself, also to a server that has sent
// nothing for a while, and reports "connecting", "live", "without-bus" or "disconnected".
export function follow(path, handlers, report) {
  let source = null;
  let timer = 0;
  let watch = 0;
  let heard = 0;
  let state = "";
  const tell = (next) => {
    state = next;
    report(next);
  };
  const hear = () => { heard = performance.now(); };
  const end = () => {
    clearTimeout(timer);
    clearInterval(watch);
    source?.close();
    source = null;
  };
  const lose = () => {
    end();
    giveUp();
    tell("disconnected");
    timer = setTimeout(open, AGAIN_SECONDS * 1000);
  };
  const open = () => {
    hear();
    watch = setInterval(() => { if (performance.now() - heard > SILENT_SECONDS * 1000) lose(); }, 1000);
    source = new EventSource(path);
    source.onopen = () => tell("live");
    source.onerror = lose;
    source.addEventListener("ping", (event) => {
      hear();
      const next = stateBy(JSON.parse(event.data));
      if (next !== state) tell(next);
    });
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        hear();
        handle(JSON.parse(event.data));
      });
    }
  };
  const seen = () => {
    end();
    if (document.hidden) return;
    tell("connecting");
    open();
  };
  document.addEventListener("visibilitychange", seen);
  seen();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    end();
  };
}
