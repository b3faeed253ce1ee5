// Requests to the server: events with their state, queries of the history, JSON.

export async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

export async function query(sql) {
  const answer = await fetch("/api/query", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ sql }),
  });
  const content = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (content.error) throw new Error(content.error);
  return content;
}

// Rows of a query as objects.
export async function rows(sql) {
  const answer = await query(sql);
  return answer.rows.map((row) => Object.fromEntries(row.map((value, at) => [answer.columns[at], value])));
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
