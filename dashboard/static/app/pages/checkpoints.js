// Checkpoints: how many, how long they took and how large they were, over time and as a table.

import { Copy, Empty, State, Tile } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";
import { Table } from "../parts/table.js";
import { bytes, clock, count, duration, moment, NONE } from "../format.js";
import { usePolled, useAsked } from "../polling.js";
import { to } from "../route.js";
import { html, useMemo } from "../view.js";

const DURATION = [
  { title: "completed", color: "series-2", bars: true },
  { title: "failed", color: "bad", bars: true },
  { title: "alignment", color: "series-5" },
];
const SIZE = [{ title: "all state", color: "series-4" }, { title: "written anew", color: "series-1", fill: true }];

export function CheckpointsPage({ id, path }) {
  const { data, error } = usePolled(`${path}/checkpoints`);
  const config = useAsked(`${path}/checkpoints/config`);
  const columns = useMemo(() => columnsOf(id), [id]);
  const drawn = useMemo(() => timeline(data?.history ?? []), [data]);
  if (!data) return html`<${Empty}>${error ? error.message : "Asking the server…"}<//>`;
  const { counts, latest, summary } = data;
  const aligned = data.history.find((one) => one.status === "COMPLETED");
  const open = (at) => {
    if (at !== null && at !== undefined && drawn.ids[at] !== undefined) location.hash = to("jobs", id, "checkpoints", String(drawn.ids[at]));
  };
  return html`
    <dl class="tiles">
      <${Tile} label="Completed" value=${count(counts.completed)} tone="good" />
      <${Tile} label="Under way" value=${count(counts.in_progress)} />
      <${Tile} label="Failed" value=${count(counts.failed)} tone=${counts.failed ? "bad" : ""} />
      <${Tile} label="Restored" value=${count(counts.restored)} note=${latest.restored ? `from #${latest.restored.id}` : null} />
      <${Tile} label="Last took" value=${latest.completed ? duration(latest.completed.end_to_end_duration) : NONE}
        note=${latest.completed ? clock(latest.completed.trigger_timestamp) : null} />
      <${Tile} label="Took, 99%" value=${data.history.length ? duration(summary.end_to_end_duration.p99) : NONE} />
      <${Tile} label="State" value=${latest.completed ? bytes(latest.completed.state_size) : NONE} />
    </dl>
    ${config.data ? html`<${Told} config=${config.data} />` : config.error ? html`<p class="quiet">${config.error.message}</p>` : null}
    ${data.history.length ? html`
      <h2 class="unseen">Over time</h2>
      <div class="charts two">
        <${Chart} title="Duration by start" lines=${DURATION} data=${drawn.duration} format=${duration} span gaps=${false} onPick=${open}
          last=${[count(counts.completed), count(counts.failed), duration(aligned?.alignment_duration)]} />
        <${Chart} title="Size by start" lines=${SIZE} data=${drawn.size} format=${bytes} span binary gaps=${false}
          last=${[bytes(latest.completed?.state_size), bytes(latest.completed?.checkpointed_size)]} />
      </div>` : null}
    <section>
      <h2>History</h2>
      <${Table} caption="Checkpoints, the newest first" columns=${columns} rows=${data.history} page=${20}
        empty="No checkpoint has been taken." />
    </section>`;
}

const Told = ({ config }) => html`
  <p class="facts">
    <span>every <b>${duration(config.interval)}</b></span>
    <span>given up after <b>${duration(config.timeout)}</b></span>
    <span>state backend <b>${config.state_backend}</b></span>
    ${config.incremental ? html`<span>incremental</span>` : null}
    <span>kept in <code>${config.checkpoint_storage}</code></span>
  </p>`;

// Points of the charts, the oldest first, and the checkpoint that each is of.
function timeline(history) {
  const known = [...history].sort((a, b) => a.trigger_timestamp - b.trigger_timestamp);
  const times = [];
  for (const one of known) times.push(Math.max(one.trigger_timestamp / 1000, (times.at(-1) ?? 0) + 0.001));
  const of = (take) => known.map(take);
  return {
    ids: of((one) => one.id),
    duration: [
      times,
      of((one) => (one.status === "FAILED" ? null : one.end_to_end_duration)),
      of((one) => (one.status === "FAILED" ? Math.max(1, one.end_to_end_duration) : null)),
      of((one) => (one.status === "COMPLETED" ? one.alignment_duration : null)),
    ],
    size: [
      times,
      of((one) => (one.status === "COMPLETED" ? one.state_size : null)),
      of((one) => (one.status === "COMPLETED" ? one.checkpointed_size : null)),
    ],
  };
}

const columnsOf = (job) => [
  {
    id: "id", title: "Checkpoint", number: true, value: (one) => one.id,
    show: (one) => html`<a href=${to("jobs", job, "checkpoints", String(one.id))}>#${one.id}</a>`,
  },
  { id: "status", title: "Status", value: (one) => one.status, show: (one) => html`<${State} of=${one.status} />` },
  { id: "kind", title: "Kind", value: (one) => one.checkpoint_type, show: (one) => one.checkpoint_type.toLowerCase() },
  { id: "trigger", title: "Started", number: true, value: (one) => one.trigger_timestamp, show: (one) => moment(one.trigger_timestamp) },
  { id: "duration", title: "Took", number: true, value: (one) => one.end_to_end_duration, show: (one) => duration(one.end_to_end_duration) },
  {
    id: "alignment", title: "Alignment", number: true, value: (one) => one.alignment_duration, note: "of the subtask that took longest: from its first barrier to its last",
    show: (one) => duration(one.alignment_duration),
  },
  {
    id: "acknowledged", title: "Subtasks", number: true, value: (one) => one.num_acknowledged_subtasks, note: "that have answered, of all",
    show: (one) => `${count(one.num_acknowledged_subtasks)} / ${count(one.num_subtasks)}`,
  },
  { id: "new", title: "Written", number: true, value: (one) => one.checkpointed_size, show: (one) => bytes(one.checkpointed_size) },
  { id: "size", title: "State", number: true, value: (one) => one.state_size, show: (one) => bytes(one.state_size) },
  { id: "why", title: "Remarks", sort: false, value: (one) => one.failure_message ?? "", kind: "why", show: why },
];

function why(one) {
  if (one.failure_message) return html`<span class="bad">${one.failure_message.split("\n")[0]}</span>`;
  if (one.is_savepoint && one.external_path) {
    return html`<code>${one.external_path}</code> <${Copy} text=${one.external_path} label="its path" />`;
  }
  return null;
}
