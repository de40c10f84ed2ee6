// One job: its head with what can be done, and the view that was chosen.

import { Actions } from "./actions.js";
import { CheckpointPage } from "./checkpoint.js";
import { CheckpointsPage } from "./checkpoints.js";
import { ConfigurationPage } from "./configuration.js";
import { ExceptionsPage } from "./exceptions.js";
import { FlamePage } from "./flame.js";
import { OVER } from "./jobs.js";
import { LogsPage } from "./logs.js";
import { OverviewPage } from "./overview.js";
import { VertexPage } from "./vertex.js";
import { announce, Copy, Heading, Notice, State } from "../parts/basics.js";
import { duration, moment } from "../format.js";
import { usePolled } from "../polling.js";
import { to } from "../route.js";
import { merged } from "../series.js";
import { html, useEffect, useMemo, useRef } from "../view.js";

const TABS = [
  ["overview", "Overview"],
  ["checkpoints", "Checkpoints"],
  ["exceptions", "Exceptions"],
  ["flamegraph", "Flame graph"],
  ["logs", "Logs"],
  ["configuration", "Configuration"],
];

export function JobPage({ id, parts }) {
  const path = `jobs/${encodeURIComponent(id)}`;
  const details = usePolled(path);
  const figures = usePolled(`${path}/figures`);
  const job = details.data;
  const now = useMemo(() => (job ? merged(job, figures.data) : null), [job, figures.data]);
  useAnnounced(job);

  const [tab = "overview", part] = parts;
  useEffect(() => {
    document.title = `${job ? `${job.name} – ${job.state.toLowerCase()}` : id} · strom`;
  }, [job?.name, job?.state]);

  const error = details.error;
  if (!job) {
    const missing = error?.status === 404;
    return html`
      <${Crumbs} />
      <${Heading} label=${id}>Job <code>${id}</code><//>
      ${missing ? html`<${Notice} tone="error">The server does not know this job: ${error.message}<//>` :
        error && error.status !== 401 ? html`<${Notice} tone="error">${error.message}<//>` :
        html`<p class="empty">Asking the server…</p>`}`;
  }
  const inside = tab === "vertices" ? "overview" : tab;
  return html`
    <${Crumbs} />
    <header class="job">
      <div class="title">
        <${Heading} label=${`${id} ${tab} ${part ?? ""}`}>${job.name || id}<//>
        <${State} of=${job.state} />
      </div>
      <${Actions} job=${job} path=${path} />
      <p class="facts">
        <span><code>${job.jid}</code> <${Copy} text=${job.jid} label="the job's id" /></span>
        <span>started ${moment(job["start-time"])}</span>
        <span>${OVER.has(job.state) ? "ran" : "runs"} ${duration(job.duration)}</span>
        <span>attempt ${job.attempt + 1}</span>
        ${job.restarts ? html`<span class="warn">${job.restarts} ${job.restarts === 1 ? "restart" : "restarts"}</span>` : null}
      </p>
    </header>
    ${error?.status === 404 ? html`<${Notice} tone="warning">The server no longer knows this job: what is shown is what was last known.<//>` : null}
    ${job["waits-for"] && !OVER.has(job.state) ? html`<${Notice} tone="warning"><b>Waits:</b> ${job["waits-for"]}<//>` : null}
    <${Failure} job=${job} path=${path} />
    <nav class="tabs" aria-label="Views of the job">
      ${TABS.map(([name, title]) => html`
        <a key=${name} href=${name === "overview" ? to("jobs", id) : to("jobs", id, name)}
          aria-current=${name === inside ? "page" : undefined}>${title}</a>`)}
    </nav>
    ${view({ tab, part, id, path, job, now })}`;
}

function view({ tab, part, id, path, job, now }) {
  const shared = { id, path, job, now };
  if (tab === "overview") return html`<${OverviewPage} ...${shared} />`;
  if (tab === "vertices") return html`<${VertexPage} key=${part} ...${shared} vertex=${part} />`;
  if (tab === "checkpoints" && part) return html`<${CheckpointPage} key=${part} ...${shared} number=${part} />`;
  if (tab === "checkpoints") return html`<${CheckpointsPage} ...${shared} />`;
  if (tab === "exceptions") return html`<${ExceptionsPage} ...${shared} />`;
  if (tab === "configuration") return html`<${ConfigurationPage} ...${shared} />`;
  if (tab === "flamegraph") return html`<${FlamePage} ...${shared} vertex=${part} />`;
  if (tab === "logs") return html`<${LogsPage} ...${shared} />`;
  return html`<${Notice} tone="warning">There is no such view of a job.<//>`;
}

const Crumbs = () => html`
  <nav class="crumbs" aria-label="Where this is"><a href=${to("jobs")}>Jobs</a></nav>`;

// A job that failed says why on every page.
function Failure({ job, path }) {
  const failing = ["FAILED", "FAILING", "RESTARTING"].includes(job.state);
  const { data } = usePolled(failing ? `${path}/exceptions` : null);
  const cause = data?.["root-exception"];
  if (!failing || !cause) return null;
  const line = cause.trim().split("\n")[0];
  return html`
    <${Notice} tone="error" role="status">
      <b>${job.state === "FAILED" ? "Failed" : "The last attempt failed"}:</b> ${line}
      ${" "}<a href=${to("jobs", job.jid, "exceptions")}>Traceback</a>
    <//>`;
}

function useAnnounced(job) {
  const before = useRef(null);
  useEffect(() => {
    if (!job) return;
    if (before.current !== null && before.current !== job.state) {
      announce(`Job ${job.name} is now ${job.state.toLowerCase()}`);
    }
    before.current = job.state;
  }, [job?.state]);
}
