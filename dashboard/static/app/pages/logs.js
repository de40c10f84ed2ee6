// What the job's processes say: the last lines, and then, with each round of the page, those that
// have come since. Where there are too many at once the next rounds bring the rest.

import { Empty, Notice } from "../parts/basics.js";
import { useConnection } from "../polling.js";
import { ask } from "../server.js";
import { html, useEffect, useRef, useState } from "../view.js";

const MOST = 500;
const KEPT = 2000;

const EMPTY = { lines: null, first: 0, cursor: null, error: null, missing: {} };

function read(entry) {
  const where = [entry.operator ?? entry.task, entry.subtask].filter((part) => part !== undefined).join("/");
  const text = [entry.time, entry.level, where || entry.logger, entry.message].filter(Boolean).join("  ");
  return { text, level: String(entry.level ?? ""), error: entry.error ? `\n${entry.error}` : "" };
}

function grown(known, page) {
  const all = [...(known.lines ?? []), ...page.entries.map(read)];
  const lines = all.slice(-KEPT);
  const first = known.first + all.length - lines.length;
  return { lines, first, cursor: page.cursor, error: null, missing: page.missing ?? {} };
}

// The lines so far; asks whenever a round of the page has succeeded, and at once.
function useLines(path) {
  const { okAt } = useConnection();
  const [known, set] = useState({ path, ...EMPTY });
  const asking = useRef(null);
  const mine = known.path === path ? known : EMPTY;
  useEffect(() => {
    if (asking.current === path) return;
    asking.current = path;
    const from = mine.cursor === null ? `tail=${MOST}` : `cursor=${encodeURIComponent(mine.cursor)}&limit=${KEPT}`;
    ask(`${path}/logs?${from}`)
      .then(
        (page) => set((before) => ({ path, ...grown(before.path === path ? before : EMPTY, page) })),
        (error) => set((before) => ({ ...(before.path === path ? before : EMPTY), path, error })),
      )
      .finally(() => {
        if (asking.current === path) asking.current = null;
      });
  }, [path, okAt]);
  return mine;
}

export function LogsPage({ path }) {
  const { lines, first, error, missing } = useLines(path);
  const [wanted, want] = useState("");
  if (!lines) return html`<${Empty}>${error ? error.message : "Asking the server…"}<//>`;
  const numbered = lines.map((line, i) => ({ ...line, number: first + i }));
  const found = numbered.filter((line) => line.text.toLowerCase().includes(wanted.trim().toLowerCase()));
  return html`
    <form class="bar" onSubmit=${(event) => event.preventDefault()}>
      <label class="field inline">Find
        <input type="search" value=${wanted} onInput=${(event) => want(event.target.value)} /></label>
    </form>
    ${error ? html`<${Notice} tone="warning">No more lines: ${error.message}<//>` : null}
    ${Object.entries(missing).map(([node, why]) => html`
      <${Notice} key=${node} tone="warning">Without the lines of ${node}: ${why}<//>`)}
    ${found.length > MOST ? html`<${Notice}>The last ${MOST} of ${found.length} lines.<//>` : null}
    ${lines.length ? null : html`<${Empty}>No lines. On the local host they are kept where <code>strom.logging.dir</code> says.<//>`}
    <pre class="log" tabindex="0" aria-label="Log">${found.slice(-MOST).map((line) => html`
      <span key=${line.number} class="level-${line.level.toLowerCase()}">${`${line.text}${line.error}\n`}</span>`)}</pre>`;
}
