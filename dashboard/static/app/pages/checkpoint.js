// One checkpoint: its vertices, and of the one that is chosen each subtask.

import { Copy, Empty, Notice, State, Tile } from "../parts/basics.js";
import { Table } from "../parts/table.js";
import { bytes, clock, count, duration, moment } from "../format.js";
import { usePolled } from "../polling.js";
import { to } from "../route.js";
import { html, useMemo, useState } from "../view.js";

export function CheckpointPage({ id, path, now, number }) {
  const at = `${path}/checkpoints/details/${encodeURIComponent(number)}`;
  const { data, error } = usePolled(at);
  const [chosen, choose] = useState(null);
  const vertices = now.vertices;
  const rows = useMemo(() => vertices.flatMap((vertex) => {
    const part = data?.tasks[vertex.id];
    return part ? [{ ...part, id: vertex.id, name: vertex.name }] : [];
  }), [data, vertices]);
  const vertex = chosen ?? slowest(rows);
  const columns = useMemo(() => columnsOf(vertex, choose), [vertex]);
  const back = html`<nav class="crumbs" aria-label="Where in the job this is"><a href=${to("jobs", id, "checkpoints")}>Checkpoints</a></nav>`;
  if (!data) return html`${back}<${Empty}>${error ? error.message : "Asking the server…"}<//>`;
  return html`
    ${back}
    <div class="title"><h2>${data.is_savepoint ? "Savepoint" : "Checkpoint"} #${data.id}</h2><${State} of=${data.status} /></div>
    ${data.failure_message ? html`<${Notice} tone="error" role="status"><pre class="plain">${data.failure_message}</pre><//>` : null}
    <dl class="tiles">
      <${Tile} label="Started" value=${clock(data.trigger_timestamp)} note=${moment(data.trigger_timestamp).slice(0, 10)} />
      <${Tile} label="Took" value=${duration(data.end_to_end_duration)} />
      <${Tile} label="Subtasks" value=${`${count(data.num_acknowledged_subtasks)} / ${count(data.num_subtasks)}`} />
      <${Tile} label="Written" value=${bytes(data.checkpointed_size)} />
      <${Tile} label="State" value=${bytes(data.state_size)} />
    </dl>
    ${data.external_path?.startsWith("<") === false ? html`
      <p class="facts"><span>in <code>${data.external_path}</code> <${Copy} text=${data.external_path} label="its path" /></span></p>` : null}
    <section>
      <h3>By vertex</h3>
      <${Table} caption="Vertices in checkpoint ${data.id}" columns=${columns} rows=${rows} marked=${(row) => row.id === vertex} />
    </section>
    ${vertex ? html`<${Subtasks} key=${vertex} path=${`${at}/subtasks/${encodeURIComponent(vertex)}`}
      name=${rows.find((row) => row.id === vertex)?.name} />` : null}`;
}

const slowest = (rows) =>
  rows.reduce((best, row) => (best === null || row.end_to_end_duration > best.end_to_end_duration ? row : best), null)?.id ?? null;

const columnsOf = (chosen, choose) => [
  {
    id: "name", title: "Vertex", value: (row) => row.name, kind: "name",
    show: (row) => html`<button type="button" class="link" aria-pressed=${String(row.id === chosen)} onClick=${() => choose(row.id)}>${row.name}</button>`,
  },
  {
    id: "acknowledged", title: "Subtasks", number: true, value: (row) => row.num_acknowledged_subtasks,
    show: (row) => `${count(row.num_acknowledged_subtasks)} / ${count(row.num_subtasks)}`,
  },
  { id: "latest", title: "Last answer", number: true, value: (row) => row.latest_ack_timestamp, show: (row) => clock(row.latest_ack_timestamp) },
  { id: "took", title: "Took", number: true, value: (row) => row.end_to_end_duration, show: (row) => duration(row.end_to_end_duration) },
  { id: "new", title: "Written", number: true, value: (row) => row.checkpointed_size, show: (row) => bytes(row.checkpointed_size) },
  { id: "size", title: "State", number: true, value: (row) => row.state_size, show: (row) => bytes(row.state_size) },
];

const SUBTASKS = [
  { id: "index", title: "Subtask", number: true, value: (row) => row.index },
  { id: "status", title: "Status", value: (row) => row.status, show: (row) => html`<${State} of=${row.status === "completed" ? "COMPLETED" : "WAITING"} />` },
  { id: "ack", title: "Answered", number: true, value: (row) => row.ack_timestamp, show: (row) => clock(row.ack_timestamp) },
  { id: "took", title: "Took", number: true, value: (row) => row.end_to_end_duration, show: (row) => duration(row.end_to_end_duration) },
  { id: "alignment", title: "Alignment", number: true, value: (row) => row.alignment?.duration, show: (row) => duration(row.alignment?.duration), note: "from its first barrier to its last" },
  { id: "sync", title: "Frozen in", number: true, value: (row) => row.checkpoint?.sync, show: (row) => duration(row.checkpoint?.sync), note: "the task stood still" },
  { id: "async", title: "Written in", number: true, value: (row) => row.checkpoint?.async, show: (row) => duration(row.checkpoint?.async), note: "beside the task" },
  { id: "new", title: "Written", number: true, value: (row) => row.checkpointed_size, show: (row) => bytes(row.checkpointed_size) },
  { id: "size", title: "State", number: true, value: (row) => row.state_size, show: (row) => bytes(row.state_size) },
];

function Subtasks({ path, name }) {
  const { data, error } = usePolled(path);
  const rows = useMemo(() => (data?.subtasks ?? []).map((one) => ({ ...one, id: one.index })), [data]);
  const summary = data?.summary;
  return html`
    <section>
      <h3>Subtasks of ${name}</h3>
      ${summary && rows.length > 1 ? html`
        <p class="facts">
          <span>took <b>${duration(summary.end_to_end_duration.p50)}</b> (median), <b>${duration(summary.end_to_end_duration.max)}</b> at most</span>
          <span>alignment at most <b>${duration(summary.alignment.duration.max)}</b></span>
          <span>state <b>${bytes(summary.state_size.min)}</b> to <b>${bytes(summary.state_size.max)}</b></span>
        </p>` : null}
      <${Table} caption="Subtasks of ${name} in the checkpoint" columns=${SUBTASKS} rows=${rows} empty=${error ? error.message : "…"} />
    </section>`;
}
