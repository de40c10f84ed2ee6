// The page: its frame, and which view is in it.

import { Announcer, Dialog, Heading, Notice } from "./parts/basics.js";
import { duration } from "./format.js";
import { JobPage } from "./pages/job.js";
import { JobsPage } from "./pages/jobs.js";
import { connection, INTERVALS, refresh, setPace, setPaused, useConnection } from "./polling.js";
import { to, useRoute } from "./route.js";
import { setToken, takeTokenFromAddress } from "./server.js";
import { currentTheme, setTheme, THEMES, useTheme } from "./theme.js";
import { html, render, useEffect, useState } from "./view.js";

function App() {
  const [first, ...rest] = useRoute();
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Top} />
    <main id="main" tabindex="-1">
      <${Gone} />
      ${page(first, rest)}
    </main>
    <${Announcer} />
    <${Token} />`;
}

function page(first, rest) {
  if (first === undefined || (first === "jobs" && !rest.length)) return html`<${JobsPage} />`;
  if (first === "jobs") return html`<${JobPage} key=${rest[0]} id=${rest[0]} parts=${rest.slice(1)} />`;
  return html`<${Heading} label="nothing">There is no such page<//><p><a href=${to("jobs")}>All jobs</a></p>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Top() {
  useTheme();
  return html`
    <header class="top">
      <a class="brand" href=${to("jobs")}>
        <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
          <path d="M4 12c4-4.5 8-4.5 12 0s8 4.5 12 0M4 21c4-4.5 8-4.5 12 0s8 4.5 12 0" />
        </svg>strom</a>
      <span class="space"></span>
      <${Live} />
      <label class="pick"><span class="unseen">Look</span>
        <select onChange=${(event) => setTheme(event.target.value)} value=${currentTheme()}>
          ${THEMES.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
        </select>
      </label>
    </header>`;
}

// Whether what is seen is of now, and how often it is asked for.
function Live() {
  const now = useConnection();
  const gone = now.goneSince !== null;
  const word = now.paused ? "paused" : gone ? "no answer" : now.okAt ? "live" : "connecting";
  return html`
    <span class="live ${now.paused ? "paused" : gone ? "gone" : now.okAt ? "ok" : ""}" role="status">
      <i aria-hidden="true"></i>${word}</span>
    <label class="pick"><span class="unseen">Refresh</span>
      <select value=${now.paused ? "paused" : String(now.every)} onChange=${(event) => pace(event.target.value)}>
        ${INTERVALS.map((ms) => html`<option key=${ms} value=${String(ms)}>every ${ms / 1000} s</option>`)}
        <option value="paused">paused</option>
      </select>
    </label>`;
}

function pace(value) {
  if (value === "paused") {
    setPaused(true);
  } else {
    setPace(Number(value));
    if (connection.paused) setPaused(false);
  }
}

// What is seen is old, says since when, and that it is tried again.
function Gone() {
  const { goneSince, okAt, nextAt, reason, partly } = useConnection();
  const [, tick] = useState(0);
  useEffect(() => {
    document.body.classList.toggle("stale", goneSince !== null && okAt !== null);
    if (goneSince === null) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [goneSince, okAt]);
  if (goneSince === null) return partly && html`<${Notice} tone="warning">Some of what is shown is old: ${partly}.<//>`;
  const wait = nextAt === null ? null : Math.max(0, Math.ceil((nextAt - Date.now()) / 1000));
  return html`
    <div class="notice warning gone">
      <p role="alert"><b>No answer: ${reason}.</b>
        ${okAt === null ? "" : ` What is shown is as of ${new Date(okAt).toLocaleTimeString("en-GB")}.`}</p>
      <p><span>${okAt === null ? "" : `${duration(Date.now() - okAt)} old. `}${wait === null ? "" : `Next try in ${wait} s.`}</span>
        <button type="button" class="small" onClick=${refresh}>Try now</button></p>
    </div>`;
}

function Token() {
  const { needsToken, tokenRefused } = useConnection();
  if (!needsToken) return null;
  const enter = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token").trim());
    refresh();
  };
  return html`
    <${Dialog} title="This server asks for a token" closable=${false}>
      <form onSubmit=${enter}>
        <p>It is kept in this tab, until you close it.</p>
        ${tokenRefused ? html`<${Notice} tone="error">The server does not take this token.<//>` : null}
        <label class="field">Token
          <input name="token" type="password" autocomplete="off" required autofocus />
        </label>
        <div class="buttons"><button class="primary">Go on</button></div>
      </form>
    <//>`;
}

takeTokenFromAddress();
render(html`<${App} />`, document.getElementById("app"));
