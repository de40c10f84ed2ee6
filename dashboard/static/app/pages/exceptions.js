// Why attempts failed, the newest first: what was raised, the user's own frames, then all of it.

import { Copy, Empty, Notice } from "../parts/basics.js";
import { count, moment } from "../format.js";
import { usePolled } from "../polling.js";
import { to } from "../route.js";
import { html, useMemo } from "../view.js";

const FRAME = /^\s*File "(.+)", line (\d+), in (.+)$/;
const LIBRARY = /[\\/](site-packages|dist-packages|lib[\\/]python3[.\d]*)[\\/]|^<frozen |^python[\\/]ray[\\/]/;
const MARKS = /^[\s~^]+$/; // under the code: which part of it

// { summary, frames: [{ file, line, name, code }] of the user's, innermost last }.
export function parse(text) {
  const lines = text.trim().split("\n");
  const frames = [];
  let frame = null;
  for (const line of lines) {
    const found = FRAME.exec(line);
    if (found) {
      frame = { file: found[1], line: found[2], name: found[3], code: [] };
      frames.push(frame);
    } else if (frame && /^\s{4}/.test(line)) {
      if (!MARKS.test(line)) frame.code.push(line.trim());
    } else {
      frame = null;
    }
  }
  return { summary: lines[0], frames: frames.filter((one) => !LIBRARY.test(one.file)) };
}

export function ExceptionsPage({ id, path }) {
  const { data, error } = usePolled(`${path}/exceptions`);
  if (!data) return html`<${Empty}>${error ? error.message : "Asking the server…"}<//>`;
  const { entries, truncated } = data.exceptionHistory;
  const root = data["root-exception"];
  if (!entries.length && !root) return html`<${Empty}>Nothing has failed.<//>`;
  return html`
    ${entries.length === 0 ? html`<${Entry} text=${root} when=${data.timestamp} />` : null}
    ${entries.map((entry, i) => {
      const task = entry.taskName?.replace(/ - execution #\d+$/, "");
      return html`<${Entry} key=${`${entry.timestamp} ${entry.attempt} ${i}`} text=${entry.stacktrace} when=${entry.timestamp} newest=${i === 0}
        where=${html`
          ${task ? html`<span>in ${entry.vertex
            ? html`<a href=${to("jobs", id, "vertices", entry.vertex)}>${task}</a>` : task}</span>` : null}
          ${entry.endpoint ? html`<span>on <code>${entry.endpoint}</code></span>` : null}
          <span>attempt ${count(entry.attempt + 1)}</span>`} />`;
    })}
    ${truncated ? html`<${Notice}>Older ones are not shown.<//>` : null}`;
}

function Entry({ text, when, where, newest = true }) {
  const { summary, frames } = useMemo(() => parse(text), [text]);
  const more = text.trim() !== summary;
  return html`
    <article class="exception ${newest ? "newest" : ""}">
      <h2>${summary}</h2>
      <p class="facts"><span>${moment(when)}</span>${where}</p>
      ${frames.length ? html`
        <h3 class="unseen">Your code</h3>
        <ol class="frames">
          ${frames.map((one, i) => html`
            <li key=${i} class=${i === frames.length - 1 ? "raised" : ""}>
              <span class="place"><b>${one.name}</b> <code>${one.file}:${one.line}</code></span>
              ${one.code.length ? html`<pre>${one.code.join("\n")}</pre>` : null}
            </li>`)}
        </ol>` : null}
      ${more ? html`
        <details open=${frames.length === 0}>
          <summary>All of it</summary>
          <div class="copied"><${Copy} text=${text} label="the traceback" /></div>
          <pre class="trace" tabindex="0">${text}</pre>
        </details>` : null}
    </article>`;
}
