// One vertex: its operators, its history, and its subtasks with what they do and how even they are.

import { Legend, Notice, Shares, State, Tile } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";
import { Table } from "../parts/table.js";
import { bytes, count, duration, lagOf, percent, rate, watermark } from "../format.js";
import { usePolled } from "../polling.js";
import { to } from "../route.js";
import { historyOf, Rate } from "../series.js";
import { html, useMemo, useRef } from "../view.js";

const UNEVEN = 2; // times the mean: from there on a subtask is marked

export function VertexPage({ id, path, job, now, vertex: wanted }) {
  const vertex = now.vertices.find((one) => one.id === wanted);
  const at = `${path}/vertices/${encodeURIComponent(wanted)}`;
  const details = usePolled(vertex ? at : null);
  const pressure = usePolled(vertex ? `${at}/backpressure` : null);
  const marks = usePolled(vertex ? `${at}/watermarks` : null);
  const rates = useRef(new Map());
  const rows = useMemo(
    () => rowsOf(details.data, pressure.data, marks.data, job.state === "RUNNING", rates.current),
    [details.data, pressure.data, marks.data, job.state],
  );
  const columns = useMemo(() => columnsOf(rows), [rows]);
  if (!vertex) return html`<${Notice} tone="warning">The job has no vertex <code>${wanted}</code>.<//>`;
  const [, day, time] = /^(\S+) (\S+)\./.exec(watermark(vertex.watermark)) ?? [];
  const uneven = rows.filter((row) => row.uneven);
  return html`
    <nav class="crumbs" aria-label="Where in the job this is"><a href=${to("jobs", id)}>Job graph</a></nav>
    <div class="title"><h2 class="vertex-name">${vertex.name}</h2><${State} of=${vertex.status} />
      <a class="button small" href=${to("jobs", id, "flamegraph", vertex.id)}>Flame graph</a></div>
    <dl class="tiles">
      <${Tile} label="Subtasks" value=${count(vertex.parallelism)} />
      <${Tile} label="Records in" value=${rate(vertex.inRate)} note=${`${count(vertex.recordsIn)} in all`} />
      <${Tile} label="Records out" value=${rate(vertex.outRate)} note=${`${count(vertex.recordsOut)} in all`} />
      <${Tile} label="Busy" value=${percent(vertex.busy)} note=${`at most ${percent(vertex.busyMost)}`}
        tone=${vertex.busyMost >= 0.8 ? "bad" : ""} />
      <${Tile} label="Backpressured" value=${percent(vertex.held)} note=${`at most ${percent(vertex.heldMost)}`}
        tone=${vertex.heldMost >= 0.5 ? "warning" : ""} />
      <${Tile} label="Watermark (UTC)" value=${day ? time : watermark(vertex.watermark)} note=${day} />
      <${Tile} label="Lag" value=${duration(vertex.lag)} />
      <${Tile} label="Skew" value=${vertex.parallelism > 1 ? percent(vertex.skew) : "–"} tone=${vertex.skew >= 0.5 ? "warning" : ""} />
    </dl>
    <${Charts} id=${id} vertex=${vertex} now=${now.now} />
    ${uneven.length && uneven.length < rows.length ? html`
      <${Notice} tone="warning">
        ${count(uneven.length)} of ${count(rows.length)} subtasks ${uneven.length === 1 ? "gets" : "get"} more than twice the mean of records${
          uneven.length <= 5 ? `: ${uneven.map((row) => row.subtask).join(", ")}` : ""}. A key that many records share goes to one subtask.
      <//>` : null}
    <section>
      <div class="panel-head"><h2>Subtasks</h2><${Legend} /></div>
      <${Table} caption="Subtasks of ${vertex.name}" columns=${columns} rows=${rows} marked=${(row) => row.uneven}
        empty=${details.error ? details.error.message : "…"} />
    </section>
    <${Operators} operators=${vertex.operators} />`;
}

function rowsOf(details, pressure, marks, running, rates) {
  if (!details) return [];
  const load = new Map((pressure?.subtasks ?? []).map((one) => [one.subtask, one]));
  const mark = new Map((marks ?? []).map((one) => [Number.parseInt(one.id, 10), Number(one.value)]));
  const reads = details.subtasks.map((one) => one.metrics["read-records"]);
  const inputs = reads.some((n) => n > 0) ? reads : details.subtasks.map((one) => one.metrics["write-records"]);
  const mean = inputs.reduce((sum, n) => sum + n, 0) / Math.max(1, inputs.length);
  const largest = Math.max(1, ...inputs);
  return details.subtasks.map((one, i) => {
    let known = rates.get(one.subtask);
    if (!known) rates.set(one.subtask, (known = { in: new Rate(), out: new Rate() }));
    const found = load.get(one.subtask);
    return {
      id: one.subtask,
      subtask: one.subtask,
      status: one.status,
      host: one["taskmanager-id"],
      recordsIn: one.metrics["read-records"],
      recordsOut: one.metrics["write-records"],
      bytesOut: one.metrics["write-bytes"],
      inRate: running ? known.in.at(details.now, one.metrics["read-records"]) : null,
      outRate: running ? known.out.at(details.now, one.metrics["write-records"]) : null,
      busy: running && found ? found.busyRatio : null,
      held: running && found ? found.ratio : null,
      idle: running && found ? found.idleRatio : null,
      watermark: mark.get(one.subtask) ?? null,
      lag: running ? lagOf(mark.get(one.subtask), details.now) : null,
      share: inputs[i] / largest,
      uneven: details.subtasks.length > 1 && mean > 0 && inputs[i] > UNEVEN * mean,
      since: one.duration,
    };
  });
}

// The day is that of the vertex's watermark, or said in the title.
function timeOf(mark) {
  const text = watermark(mark);
  const [day, time] = text.split(" ");
  return time ? html`<span title=${`${day} UTC`}>${time}</span>` : text;
}

const columnsOf = (rows) => {
  const columns = [
    { id: "subtask", title: "Subtask", number: true, value: (row) => row.subtask },
    { id: "status", title: "Status", value: (row) => row.status, show: (row) => html`<${State} of=${row.status} />` },
    {
      id: "in", title: "Records in", number: true, value: (row) => row.recordsIn, note: "the bar: of the subtask with the most",
      show: (row) => html`<span class="withbar">${row.uneven ? html`<span class="flag" title="more than twice the mean">▲<span class="unseen">uneven</span></span>` : null}
        <span class="amount" aria-hidden="true"><i style=${{ width: `${row.share * 100}%` }}></i></span>
        <span>${count(row.recordsIn)}</span></span>`,
    },
    { id: "inRate", title: "In", number: true, value: (row) => row.inRate, show: (row) => rate(row.inRate) },
    { id: "out", title: "Records out", number: true, value: (row) => row.recordsOut, show: (row) => count(row.recordsOut) },
    { id: "bytes", title: "Sent", number: true, value: (row) => row.bytesOut, show: (row) => bytes(row.bytesOut) },
    {
      id: "busy", title: "Load", number: true, value: (row) => row.busy,
      show: (row) => html`<span class="withbar"><${Shares} ...${row} /> <span class="share">${percent(row.busy)}</span></span>`,
    },
    { id: "held", title: "Backpressured", number: true, value: (row) => row.held, show: (row) => percent(row.held) },
    { id: "watermark", title: "Watermark (UTC)", number: true, value: (row) => row.watermark, show: (row) => timeOf(row.watermark) },
    { id: "lag", title: "Lag", number: true, value: (row) => row.lag, show: (row) => duration(row.lag) },
    { id: "since", title: "Runs", number: true, value: (row) => row.since, show: (row) => duration(row.since) },
    { id: "host", title: "Process", value: (row) => row.host, kind: "nowrap" },
  ];
  const said = rows.some((row) => row.watermark !== null);
  return columns.filter((one) => said || (one.id !== "watermark" && one.id !== "lag"));
};

const LINES = {
  flow: [{ title: "in", color: "series-1" }, { title: "out", color: "series-2" }],
  load: [{ title: "busy", color: "busy" }, { title: "backpressured", color: "held", dash: [5, 3] }],
  lag: [{ title: "lag", color: "series-3" }],
};

function Charts({ id, vertex, now }) {
  const history = historyOf(id);
  const data = useMemo(() => ({
    flow: history.lines([`${vertex.id}<`, `${vertex.id}>`]),
    load: history.lines([`${vertex.id} busy`, `${vertex.id} held`]),
    lag: history.lines([`${vertex.id} lag`]),
  }), [id, vertex.id, now]);
  return html`
    <div class="charts">
      <${Chart} title="Throughput" lines=${LINES.flow} data=${data.flow} format=${rate} />
      <${Chart} title="Load" lines=${LINES.load} data=${data.load} format=${percent} />
      <${Chart} title="Event time behind the clock" lines=${LINES.lag} data=${data.lag} format=${duration} />
    </div>`;
}

const Operators = ({ operators }) => html`
  <section>
    <h2>Operators</h2>
    <ol class="operators">
      ${operators.map((one) => html`
        <li key=${one.id}><b>${one.name}</b>
          ${one.implementation ? html` <span class="tag">${one.implementation}</span>` : null}
          <code class="id">${one.uid ? `uid ${one.uid}` : one.id}</code>
          ${one.description && one.description !== one.name ? html`<p>${one.description}</p>` : null}</li>`)}
    </ol>
  </section>`;
