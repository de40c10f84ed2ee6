// What can be done to a job: savepoint, stop, rescale, cancel. Each asks first, and says how it went.

import { announce, Copy, Dialog, Notice } from "../parts/basics.js";
import { OVER } from "./jobs.js";
import { to } from "../route.js";
import { refreshAfter, useAsked } from "../polling.js";
import { ask } from "../server.js";
import { html, useEffect, useRef, useState } from "../view.js";

const LOOK_AGAIN_MS = 700;

export function Actions({ job, path }) {
  const config = useAsked("config");
  const [open, setOpen] = useState(null);
  const [said, say] = useState(null); // { tone, text, location, jobid }
  const alive = useRef(true);
  useEffect(() => () => {
    alive.current = false;
  }, []);
  const over = OVER.has(job.state);
  const features = config.data?.features;
  if (!features || features["web-history"]) return null;

  const tell = (found) => {
    if (!alive.current) return;
    say(found);
    announce(found.text);
  };
  // `begin`: the request; `done`: what to say of what came of it.
  const run = async (begin, going, done) => {
    setOpen(null);
    tell({ tone: "info", text: going });
    try {
      tell({ tone: "good", ...(await done(await begin())) });
    } catch (error) {
      tell({ tone: "error", text: error.message });
    }
    refreshAfter();
  };
  // Looks until the server knows how it ended. One look that fails says nothing of it.
  const outcome = async (at) => {
    for (;;) {
      const { status, operation } = await ask(at).catch((error) => {
        if (!error.gone) throw error;
        return {};
      });
      if (status?.id === "COMPLETED") {
        const cause = operation?.["failure-cause"];
        if (cause) throw new Error(cause["stack-trace"] || cause.class);
        return operation ?? {};
      }
      if (!alive.current) return {};
      await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
    }
  };
  const saved = (what) => async (triggered) => {
    const { location } = await outcome(`${path}/savepoints/${triggered["request-id"]}`);
    return { text: what, location };
  };

  const savepoint = (form) => run(
    () => ask(`${path}/savepoints`, { method: "POST", body: place(form, "target-directory") }),
    "A savepoint is being taken…", saved("The savepoint is taken:"),
  );
  const stop = (form) => run(
    () => ask(`${path}/stop`, { method: "POST", body: { ...place(form, "targetDirectory"), drain: form.get("drain") === "on" } }),
    "The job is being stopped with a savepoint…", saved("The job has stopped with a savepoint:"),
  );
  const cancel = () => run(
    () => ask(`${path}?mode=cancel`, { method: "PATCH" }),
    "The job is told to cancel…", async () => ({ text: "The job is told to cancel." }),
  );
  const rescale = (form) => run(
    () => ask(`${path}/rescaling?parallelism=${encodeURIComponent(form.get("parallelism"))}`, { method: "PATCH" }),
    "The job is being rescaled…",
    async (triggered) => {
      const { jobid, location } = await outcome(`${path}/rescaling/${triggered["request-id"]}`);
      return { text: `The job goes on at parallelism ${form.get("parallelism")}, from the savepoint`, location, jobid };
    },
  );
  const close = () => setOpen(null);
  return html`
    <div class="actions" role="group" aria-label="Actions">
      <button type="button" disabled=${over} onClick=${() => setOpen("savepoint")}>Savepoint…</button>
      <button type="button" disabled=${over} onClick=${() => setOpen("stop")}>Stop…</button>
      ${features["web-rescale"] ? html`<button type="button" disabled=${over} onClick=${() => setOpen("rescale")}>Rescale…</button>` : null}
      <button type="button" class="danger" disabled=${over} onClick=${() => setOpen("cancel")}>Cancel job…</button>
    </div>
    ${said ? html`
      <${Notice} tone=${said.tone} role="status"><span class="pre">${said.text}</span>
        ${said.location ? html` <code>${said.location}</code> <${Copy} text=${said.location} label="its path" />` : null}
        ${said.jobid ? html` <a href=${to("jobs", said.jobid)}>as job ${said.jobid}</a>` : null}
        <button type="button" class="quiet small close" onClick=${() => say(null)} aria-label="Close this message">✕</button><//>` : null}
    ${open === "savepoint" ? html`
      <${Ask} title="Take a savepoint" go="Take it" send=${savepoint} close=${close}>
        <p>The job goes on. A savepoint is kept until you delete it.</p><${Directory} /><//>` : null}
    ${open === "stop" ? html`
      <${Ask} title="Stop with a savepoint" go="Stop the job" send=${stop} close=${close}>
        <p>The job writes a savepoint and ends. It can go on from there.</p><${Directory} />
        <label class="check"><input type="checkbox" name="drain" /> Drain: end the sources first, and let all windows fire.
          <small>A job that goes on from this savepoint gets no more of these windows.</small></label><//>` : null}
    ${open === "rescale" ? html`
      <${Ask} title="Rescale" go="Rescale" send=${rescale} close=${close}>
        <p>The job stops with a savepoint, and starts again from it under another id.</p>
        <label class="field">Parallelism
          <input name="parallelism" type="number" min="1" max=${job.maxParallelism > 0 ? job.maxParallelism : undefined} required
            value=${Math.max(1, ...job.vertices.map((one) => one.parallelism))} /></label><//>` : null}
    ${open === "cancel" ? html`
      <${Ask} title="Cancel the job?" go="Cancel the job" danger keep="Keep it running" send=${cancel} close=${close}>
        <p><b>${job.name}</b> ends at once, without a savepoint. What it has done since its last checkpoint may be lost.</p><//>` : null}`;
}

const place = (form, key) => {
  const directory = form.get("directory").trim();
  return directory ? { [key]: directory } : {};
};

const Directory = () => html`
  <label class="field">Folder <small>a URL or path that the job can write to; none: the job's default</small>
    <input name="directory" type="text" maxlength="4096" spellcheck=${false} autocomplete="off" /></label>`;

function Ask({ title, go, keep = "Not now", danger = false, send, close, children }) {
  const submit = (event) => {
    event.preventDefault();
    send(new FormData(event.target));
  };
  return html`
    <${Dialog} title=${title} onClose=${close}>
      <form onSubmit=${submit}>
        ${children}
        <div class="buttons">
          <button type="button" onClick=${close} autofocus=${danger}>${keep}</button>
          <button class=${danger ? "danger" : "primary"}>${go}</button>
        </div>
      </form>
    <//>`;
}
