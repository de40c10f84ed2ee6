// Small things that every page has.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../view.js";
import { percent } from "../format.js";

const MARKS = {
  RUNNING: "▶", FINISHED: "✓", FAILED: "✕", FAILING: "✕", CANCELED: "■", CANCELLING: "■",
  CANCELING: "■", RESTARTING: "↻", CREATED: "○", INITIALIZING: "○", DEPLOYING: "◔",
  SCHEDULED: "○", COMPLETED: "✓", IN_PROGRESS: "◔", WAITING: "⏸", SUSPENDED: "⏸",
};

// A state is told by a word, a mark and a colour.
export const State = ({ of }) => html`
  <span class="state state-${String(of).toLowerCase().replace(/[^a-z]/g, "-")}">
    <span class="mark" aria-hidden="true">${MARKS[of] ?? "•"}</span>${String(of).replace(/_/g, " ").toLowerCase()}
  </span>`;

export const Tile = ({ label, value, note, tone }) => html`
  <div class="tile ${tone ? `tone-${tone}` : ""}">
    <dt>${label}</dt>
    <dd>${value}${note ? html`<small>${note}</small>` : null}</dd>
  </div>`;

// What a task does with its time, as one bar. The shares are in its name, too.
export function Shares({ busy, held, idle, label }) {
  if (busy === null || busy === undefined) return html`<span class="shares none" aria-hidden="true"></span>`;
  const name = `${label ? `${label}: ` : ""}busy ${percent(busy)}, backpressured ${percent(held)}, idle ${percent(idle)}`;
  const width = (share) => ({ width: `${Math.min(100, Math.max(0, share * 100))}%` });
  return html`
    <span class="shares" role="img" aria-label=${name} title=${name}>
      <span class="busy ${busy >= 0.8 ? "hot" : ""}" style=${width(busy)}></span>
      <span class="held" style=${width(held)}></span>
    </span>`;
}

export const Legend = () => html`
  <ul class="legend" aria-label="What the bars mean">
    <li><i class="swatch busy"></i>busy</li>
    <li><i class="swatch hot"></i>busy, 80% and more</li>
    <li><i class="swatch held"></i>backpressured</li>
    <li><i class="swatch idle"></i>idle</li>
  </ul>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Notice = ({ tone = "info", children, role }) => html`
  <div class="notice ${tone}" role=${role ?? (tone === "error" ? "alert" : "status")}>${children}</div>`;

// The heading of a page: what has the focus once another page is shown.
export function Heading({ children, label }) {
  const place = useRef(null);
  useEffect(() => {
    if (document.body.dataset.moved) {
      place.current?.focus({ preventScroll: true });
      window.scrollTo(0, 0);
    }
  }, [label]);
  return html`<h1 tabindex="-1" ref=${place}>${children}</h1>`;
}

// A dialog of the browser's own: it keeps the focus, and Escape closes it.
export function Dialog({ title, onClose, children, closable = true }) {
  const place = useRef(null);
  useLayoutEffect(() => {
    const dialog = place.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      if (dialog.open) dialog.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  const cancelled = (event) => {
    event.preventDefault();
    if (closable) onClose();
  };
  return html`
    <dialog ref=${place} aria-labelledby="dialog-title" onCancel=${cancelled}>
      <h2 id="dialog-title">${title}</h2>
      ${children}
    </dialog>`;
}

// What changed, for who does not see it. One region for all, as long as the page is open.
let announcer = null;
export const announce = (text) => announcer?.(text);

export function Announcer() {
  const [text, set] = useState("");
  useEffect(() => {
    announcer = set;
    return () => {
      announcer = null;
    };
  }, []);
  return html`<div class="unseen" role="status" aria-live="polite">${text}</div>`;
}

export function Copy({ text, label }) {
  const [done, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set(true);
      announce(`${label} is copied`);
      setTimeout(() => set(false), 1500);
    } catch {
      announce(`${label} cannot be copied here`);
    }
  };
  return html`<button type="button" class="quiet small" onClick=${copy} aria-label="Copy ${label}">
    ${done ? "copied" : "copy"}</button>`;
}
