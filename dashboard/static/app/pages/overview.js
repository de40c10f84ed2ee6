// The job at a glance: its graph, what flows through it, and its vertices as a table.

import { Empty, Legend, Notice, Shares, State, Tile } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";
import { Graph } from "../parts/graph.js";
import { Table } from "../parts/table.js";
import { bytes, count, duration, percent, rate, watermark } from "../format.js";
import { to } from "../route.js";
import { historyOf } from "../series.js";
import { html, useMemo } from "../view.js";

export function OverviewPage({ id, job, now }) {
  const { vertices, job: figures } = now;
  const hrefOf = useMemo(() => (vertex) => to("jobs", id, "vertices", vertex.id), [id]);
  const columns = useMemo(() => columnsOf(hrefOf), [hrefOf]);
  if (!vertices.length) return html`<${Empty}>The job has no tasks yet.<//>`;
  return html`
    <dl class="tiles">
      <${Tile} label="Records in" value=${rate(figures.in)} />
      <${Tile} label="Records out" value=${rate(figures.out)} />
      <${Tile} label="Lag of event time" value=${duration(figures.lag)} />
      <${Tile} label="Busiest subtask" value=${percent(figures.busy)} tone=${figures.busy >= 0.8 ? "bad" : ""} />
      <${Tile} label="Most backpressured" value=${percent(figures.held)} tone=${figures.held >= 0.5 ? "warning" : ""} />
      <${Tile} label="Memory" value=${bytes(figures.rss)}
        note=${figures.processes ? `${count(figures.processes)} ${figures.processes === 1 ? "process" : "processes"}` : null} />
    </dl>
    <section class="panel">
      <${Graph} vertices=${vertices} hrefOf=${hrefOf}>
        <h2>Job graph</h2><${Legend} />
      <//>
      <${Bottleneck} vertices=${vertices} hrefOf=${hrefOf} />
    </section>
    <section aria-label="Over time">
      <${Charts} id=${id} now=${now.now} />
    </section>
    <section>
      <h2>Vertices</h2>
      <${Table} caption="Vertices of the job" columns=${columns} rows=${vertices} />
    </section>`;
}

// Where to look first: what is held up waits for the busiest of the vertices behind it.
function Bottleneck({ vertices, hrefOf }) {
  const held = new Set(vertices.filter((one) => one.heldMost >= 0.5).map((one) => one.id));
  const hot = vertices
    .filter((one) => !held.has(one.id) && one.inputs.some((input) => held.has(input.id)))
    .sort((a, b) => b.busyMost - a.busyMost)[0];
  if (!hot || hot.busyMost < 0.5) return null;
  return html`
    <${Notice} tone="warning">
      Records wait for <a href=${hrefOf(hot)}>${hot.name}</a>: its busiest subtask works ${percent(hot.busyMost)} of the time.
    <//>`;
}

const LINES = {
  throughput: [
    { title: "in", color: "series-1" }, { title: "out", color: "series-2" },
  ],
  lag: [{ title: "event-time lag", color: "series-3" }],
  load: [{ title: "busiest", color: "busy" }, { title: "backpressured", color: "held", dash: [5, 3] }],
  memory: [{ title: "RSS", color: "series-4" }, { title: "in flight", color: "series-5", dash: [5, 3] }],
};

function Charts({ id, now }) {
  const history = historyOf(id);
  const data = useMemo(() => ({
    throughput: history.lines(["in", "out"]),
    lag: history.lines(["lag"]),
    load: history.lines(["busy", "held"]),
    memory: history.lines(["rss", "inFlight"]),
  }), [id, now]);
  return html`
    <div class="charts">
      <${Chart} title="Throughput" lines=${LINES.throughput} data=${data.throughput} format=${rate} />
      <${Chart} title="Latency" lines=${LINES.lag} data=${data.lag} format=${duration} />
      <${Chart} title="Load" lines=${LINES.load} data=${data.load} format=${percent} />
      <${Chart} title="Memory" lines=${LINES.memory} data=${data.memory} format=${bytes} binary />
    </div>`;
}

const columnsOf = (hrefOf) => [
  { id: "name", title: "Vertex", value: (one) => one.name, kind: "name", show: (one) => html`<a href=${hrefOf(one)}>${one.name}</a>` },
  { id: "status", title: "Status", value: (one) => one.status, show: (one) => html`<${State} of=${one.status} />` },
  { id: "parallelism", title: "Subtasks", number: true, value: (one) => one.parallelism, show: (one) => count(one.parallelism) },
  { id: "in", title: "In", number: true, value: (one) => one.inRate, show: (one) => rate(one.inRate) },
  { id: "out", title: "Out", number: true, value: (one) => one.outRate, show: (one) => rate(one.outRate) },
  { id: "records", title: "Records in", number: true, value: (one) => one.recordsIn, show: (one) => count(one.recordsIn) },
  {
    id: "busy", title: "Load", value: (one) => one.busy, number: true, note: "mean of the subtasks, and the busiest",
    show: (one) => html`<span class="withbar"><${Shares} ...${one} /> <span class="share">${percent(one.busy)}</span>
      <small>${one.busyMost === null || one.parallelism === 1 ? "" : `max ${percent(one.busyMost)}`}</small></span>`,
  },
  { id: "held", title: "Backpressured", number: true, value: (one) => one.held, show: (one) => percent(one.held) },
  { id: "watermark", title: "Watermark (UTC)", number: true, value: (one) => one.watermark, show: (one) => watermark(one.watermark) },
  { id: "lag", title: "Lag", number: true, value: (one) => one.lag, show: (one) => duration(one.lag) },
  {
    id: "skew", title: "Skew", number: true, value: (one) => one.skew, note: "how far subtasks' records are from their mean",
    show: (one) => (one.parallelism > 1 ? percent(one.skew) : "–"),
  },
];
