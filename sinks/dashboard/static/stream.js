// Requests to the server: events with their state, queries of the history, JSON.

export async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

const ask = (path, content) => fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });

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
  const content = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (content.error) throw new Error(content.error);
  return content;
}

// Rows of a query as objects; `truncated` of the list says whether the server has left out rows at its end.
export async function rows(sql) {
  const answer = await query(sql);
  const found = answer.rows.map((row) => Object.fromEntries(row.map((value, at) => [answer.columns[at], value])));
  return Object.assign(found, { truncated: answer.truncated });
}

// Follows events until `close`; connects again by itself, and reports "connecting", "live" or "disconnected".
export function follow(path, handlers, report) {
  let source = null;
  let timer = 0;
  let closed = false;
  const open = () => {
    report("connecting");
    source = new EventSource(path);
    source.onopen = () => report("live");
    source.onerror = () => {
      report("disconnected");
      source.close();
      if (!closed) timer = setTimeout(open, 1500);
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
  };
  open();
  return () => {
    closed = true;
    clearTimeout(timer);
    source.close();
  };
}
