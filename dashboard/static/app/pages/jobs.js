// All jobs: those that run, that wait and for what, and the last that are over.

import { Empty, Heading, Notice, State, Tile } from "../parts/basics.js";
import { Table } from "../parts/table.js";
import { count, duration, moment, NONE } from "../format.js";
import { usePolled } from "../polling.js";
import { to } from "../route.js";
import { html, useEffect } from "../view.js";

export const OVER = new Set(["FINISHED", "CANCELED", "FAILED"]);

const waits = (job) => !OVER.has(job.state) && Boolean(job["waits-for"]);

const NAME = {
  id: "name", title: "Job", value: (job) => job.name,
  show: (job) => html`<a href=${to("jobs", job.jid)}>${job.name || job.jid}</a> <code class="id">${job.jid}</code>`,
};
const STATE = { id: "state", title: "State", value: (job) => job.state, show: (job) => html`<${State} of=${job.state} />` };
const STARTED = {
  id: "start", title: "Started", number: true, value: (job) => job["start-time"], show: (job) => moment(job["start-time"]),
};
const RUNS = {
  id: "duration", title: "Duration", number: true, value: (job) => job.duration, show: (job) => duration(job.duration),
};
const TASKS = {
  id: "tasks", title: "Tasks", number: true, value: (job) => job.tasks.total, show: tasks,
  note: "running of all",
};

function tasks(job) {
  const { total, running, failed } = job.tasks;
  if (!total) return NONE;
  return html`${count(running)} / ${count(total)}${failed ? html` <b class="bad">${count(failed)} failed</b>` : null}`;
}

const RUNNING = [NAME, STATE, TASKS, STARTED, RUNS];
const WAITING = [
  NAME,
  { id: "why", title: "Waits for", value: (job) => job["waits-for"] },
  { ...STARTED, title: "Submitted" },
  { ...RUNS, title: "For" },
];
const ENDED = [
  NAME, STATE, STARTED,
  { id: "end", title: "Ended", number: true, value: (job) => job["end-time"], show: (job) => moment(job["end-time"]) },
  RUNS,
];

export function JobsPage() {
  const overview = usePolled("overview");
  const { data, error } = usePolled("jobs/overview");
  useEffect(() => {
    document.title = "Jobs · strom";
  }, []);
  const jobs = (data?.jobs ?? []).map((job) => ({ ...job, id: job.jid }));
  const waiting = jobs.filter(waits);
  const over = jobs.filter((job) => OVER.has(job.state));
  const running = jobs.filter((job) => !waits(job) && !OVER.has(job.state));
  const failed = over.filter((job) => job.state === "FAILED").length;
  return html`
    <${Heading} label="jobs">Jobs<//>
    ${error && error.status !== 401 && error.status !== 0 ? html`<${Notice} tone="error">${error.message}<//>` : null}
    <dl class="tiles">
      <${Tile} label="Running" value=${data ? count(running.length) : NONE} tone=${running.length ? "good" : ""} />
      <${Tile} label="Waiting" value=${data ? count(waiting.length) : NONE} tone=${waiting.length ? "warning" : ""} />
      <${Tile} label="Over" value=${data ? count(over.length) : NONE} />
      <${Tile} label="Failed" value=${data ? count(failed) : NONE} tone=${failed ? "bad" : ""} />
      ${overview.data?.["slots-total"] ? html`
        <${Tile} label="Slots free" value=${count(overview.data["slots-available"])} note=${`of ${count(overview.data["slots-total"])}`} />` : null}
    </dl>
    <section>
      <h2>Running</h2>
      <${Table} caption="Jobs that run" columns=${RUNNING} rows=${running} empty=${data ? "No job runs." : "…"} />
    </section>
    ${waiting.length ? html`
      <section>
        <h2>Waiting</h2>
        <${Table} caption="Jobs that wait" columns=${WAITING} rows=${waiting} />
      </section>` : null}
    ${over.length ? html`
      <section>
        <h2>Over</h2>
        <${Table} caption="Jobs that are over" columns=${ENDED} rows=${over} page=${20} />
      </section>` : data ? html`<${Empty}>No job is over yet.<//>` : null}`;
}
