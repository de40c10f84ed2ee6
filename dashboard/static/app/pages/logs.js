// The job's log, as far as the server keeps one.

import { Empty, Notice } from "../parts/basics.js";
import { usePolled } from "../polling.js";
import { html, useState } from "../view.js";

const MOST = 500;

// A line: a record, or plain text.
function read(line) {
  if (typeof line === "string") return { text: line, level: "", error: "" };
  const where = [line.operator ?? line.task, line.subtask].filter((part) => part !== undefined).join("/");
  const text = [line.time, line.level, where || line.logger, line.message].filter(Boolean).join("  ");
  return { text, level: String(line.level ?? ""), error: line.error ? `\n${line.error}` : "" };
}

export function LogsPage({ path }) {
  const { data, error } = usePolled(`${path}/logs?tail=${MOST}`);
  const [wanted, want] = useState("");
  if (!data) return html`<${Empty}>${error ? error.message : "Asking the server…"}<//>`;
  const all = (data.entries ?? data.lines ?? []).map(read);
  const found = all.filter((line) => line.text.toLowerCase().includes(wanted.trim().toLowerCase()));
  return html`
    <form class="bar" onSubmit=${(event) => event.preventDefault()}>
      <label class="field inline">Find
        <input type="search" value=${wanted} onInput=${(event) => want(event.target.value)} /></label>
    </form>
    ${found.length > MOST ? html`<${Notice}>The last ${MOST} of ${found.length} lines.<//>` : null}
    <pre class="log" tabindex="0" aria-label="Log">${found.slice(-MOST).map((line, i) => html`
      <span key=${i} class="level-${line.level.toLowerCase()}">${`${line.text}${line.error}\n`}</span>`)}</pre>`;
}
