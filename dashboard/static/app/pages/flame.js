// What a running task spends its time with: samples of its process's stacks, taken when asked for.

import { announce, Empty, Notice } from "../parts/basics.js";
import { Table } from "../parts/table.js";
import { count, moment, percent } from "../format.js";
import { to } from "../route.js";
import { ask } from "../server.js";
import { html, useMemo, useState } from "../view.js";

const THINNEST = 0.002; // of what is shown: less cannot be seen
const DEEPEST = 120;

export function FlamePage({ id, path, now, vertex: wanted }) {
  const vertex = now.vertices.find((one) => one.id === wanted) ?? busiest(now.vertices);
  const [subtask, setSubtask] = useState("");
  const [kind, setKind] = useState("ON_CPU");
  const [state, set] = useState({ busy: false, error: null, found: null });
  if (!vertex) return html`<${Empty}>The job has no tasks yet.<//>`;

  const sample = async (event) => {
    event.preventDefault();
    set({ busy: true, error: null, found: null });
    announce("taking samples");
    const query = new URLSearchParams({ type: kind, ...(subtask === "" ? {} : { subtaskindex: subtask }) });
    try {
      const found = await ask(`${path}/vertices/${encodeURIComponent(vertex.id)}/flamegraph?${query}`);
      set({ busy: false, error: null, found: { ...found, name: vertex.name } });
      announce("the flame graph is there");
    } catch (error) {
      set({ busy: false, error, found: null });
    }
  };
  return html`
    <form class="bar" onSubmit=${sample}>
      <label class="field inline">Vertex
        <select value=${vertex.id} onChange=${(event) => { location.hash = to("jobs", id, "flamegraph", event.target.value); }}>
          ${now.vertices.map((one) => html`<option key=${one.id} value=${one.id}>${one.name}</option>`)}
        </select></label>
      <label class="field inline">Subtask
        <select value=${subtask} onChange=${(event) => setSubtask(event.target.value)}>
          <option value="">all</option>
          ${Array.from({ length: vertex.parallelism }, (_, i) => html`<option key=${i} value=${String(i)}>${i}</option>`)}
        </select></label>
      <label class="field inline">Threads
        <select value=${kind} onChange=${(event) => setKind(event.target.value)}>
          <option value="ON_CPU">that run</option><option value="FULL">all</option>
        </select></label>
      <button class="primary" disabled=${state.busy}>${state.busy ? "Taking samples…" : "Take samples"}</button>
    </form>
    ${state.error ? html`<${Notice} tone="error">${state.error.message}<//>` : null}
    ${state.found ? html`<${Result} found=${state.found} />` : state.busy || state.error ? null :
      html`<${Empty}>Samples are taken for two seconds of the processes that run it. They go on meanwhile.<//>`}`;
}

const busiest = (vertices) => vertices.reduce((best, one) => (!best || (one.busy ?? 0) > (best.busy ?? 0) ? one : best), null);

function Result({ found }) {
  const root = found.data;
  const [path, setPath] = useState([]);
  const zoomed = path.at(-1) ?? root;
  const hot = useMemo(() => hottest(root), [root]);
  if (!root?.value) return html`<${Empty}>No thread of this kind was seen.<//>`;
  const rows = rowsOf(zoomed);
  return html`
    <section class="panel">
      <div class="panel-head"><h2>${found.name}</h2>
        <span class="quiet">${count(root.value)} samples, ${moment(found.endTimestamp)}</span></div>
      <nav class="crumbs" aria-label="Chosen frames">
        <button type="button" class="link" onClick=${() => setPath([])}>all</button>
        ${path.map((one, i) => html`<button key=${i} type="button" class="link" onClick=${() => setPath(path.slice(0, i + 1))}>${one.name}</button>`)}
      </nav>
      <div class="flame" role="group" aria-label="Flame graph: the outermost frame on top. The table below has the same functions.">
        ${rows.map((row, depth) => html`
          <div class="level" key=${depth}>
            ${row.map((one, i) => html`
              <button type="button" key=${i} class="frame tone-${tone(one.node.name)}" tabindex=${depth === 0 && i === 0 ? 0 : -1}
                style=${{ left: `${one.at * 100}%`, width: `${one.share * 100}%` }}
                title=${`${one.node.name}: ${percent(one.node.value / root.value)} of all, ${count(one.node.value)} samples`}
                onClick=${() => setPath([...path, ...one.above, one.node].filter((n, at, all) => n !== root && all.indexOf(n) === at))}>
                ${one.share > 0.02 ? one.node.name : ""}</button>`)}
          </div>`)}
      </div>
    </section>
    <section>
      <h2>Where the time goes</h2>
      <${Table} caption="Functions by their own samples" columns=${HOT} rows=${hot} initial=${{ id: "self", down: true }} page=${20} />
    </section>`;
}

const HOT = [
  { id: "name", title: "Function", value: (row) => row.name, kind: "mono" },
  { id: "self", title: "Itself", number: true, value: (row) => row.self, show: (row) => percent(row.self), note: "it was the innermost frame" },
  { id: "total", title: "With what it calls", number: true, value: (row) => row.total, show: (row) => percent(row.total) },
];

// Level by level: which frames are wide enough to be seen, and where; the widest first.
function rowsOf(zoomed) {
  const rows = [[{ node: zoomed, at: 0, share: 1, above: [] }]];
  while (rows.length < DEEPEST) {
    const next = [];
    for (const { node, at, above } of rows.at(-1)) {
      let left = at;
      for (const child of [...(node.children ?? [])].sort((a, b) => b.value - a.value)) {
        const share = child.value / zoomed.value;
        if (share >= THINNEST) next.push({ node: child, at: left, share, above: [...above, node] });
        left += share;
      }
    }
    if (!next.length) break;
    rows.push(next);
  }
  return rows;
}

function hottest(root) {
  const found = new Map();
  const visit = (node, open) => {
    const inside = (node.children ?? []).reduce((sum, child) => sum + child.value, 0);
    let mine = found.get(node.name);
    if (!mine) found.set(node.name, (mine = { id: node.name, name: node.name, self: 0, total: 0 }));
    mine.self += node.value - inside;
    const again = open.has(node.name); // a function that calls itself is counted once
    if (!again) mine.total += node.value;
    if (!again) open.add(node.name);
    for (const child of node.children ?? []) visit(child, open);
    if (!again) open.delete(node.name);
  };
  for (const child of root?.children ?? []) visit(child, new Set());
  return [...found.values()].map((one) => ({ ...one, self: one.self / root.value, total: one.total / root.value }));
}

function tone(name) {
  let sum = 0;
  for (let i = 0; i < name.length; i += 1) sum = (sum * 31 + name.charCodeAt(i)) >>> 0;
  return sum % 6;
}
