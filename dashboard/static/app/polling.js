// Asks for what is on the screen again and again. All paths are asked for in one round, so that one
// page shows one moment. While the server is gone rounds become rare, and what was known stays.

import { ask } from "./server.js";
import { choices } from "./store.js";
import { useEffect, useState } from "./view.js";

const LONGEST_MS = 30_000;
export const INTERVALS = [1000, 2000, 5000, 10_000];

const watched = new Map(); // path -> { listeners, data, error, at }
const heard = new Set();

export const connection = {
  every: INTERVALS.find((ms) => String(ms) === choices.get("strom-interval")) ?? 2000,
  paused: false,
  okAt: null, // when a round last succeeded
  goneSince: null,
  failures: 0,
  nextAt: null,
  recoveries: 0, // how often what was refused or unanswered was answered again
  needsToken: false,
  tokenRefused: false,
  reason: "",
};

let timer = null;
let round = null;

function tell() {
  for (const listener of heard) listener({});
}

export function useConnection() {
  const [, set] = useState({});
  useEffect(() => {
    heard.add(set);
    return () => heard.delete(set);
  }, []);
  return connection;
}

async function fetchOne(path, entry) {
  try {
    const data = await ask(path);
    entry.data = data;
    entry.error = null;
    entry.at = Date.now();
    return null;
  } catch (error) {
    entry.error = error;
    return error;
  }
}

// A server that says no (404, 409) is there; one that cannot be reached, or cannot ask, is not.
const isGone = (error) => error !== null && (error.status === 0 || error.status >= 500);

function judge(errors) {
  const gone = errors.find(isGone);
  const locked = errors.find((error) => error?.status === 401);
  const wasOut = connection.needsToken || connection.goneSince !== null;
  connection.tokenRefused = locked !== undefined && connection.needsToken;
  connection.needsToken = locked !== undefined;
  if (gone) {
    connection.failures += 1;
    connection.goneSince ??= Date.now();
    connection.reason = gone.message;
  } else {
    connection.failures = 0;
    connection.goneSince = null;
    if (!locked) {
      connection.okAt = Date.now();
      if (wasOut) connection.recoveries += 1;
    }
  }
}

async function runRound() {
  clearTimeout(timer);
  timer = null;
  const entries = [...watched];
  if (entries.length) {
    judge(await Promise.all(entries.map(([path, entry]) => fetchOne(path, entry))));
    // All at once: the page is drawn once for a round.
    for (const [, entry] of entries) for (const listener of entry.listeners) listener({});
  }
}

function schedule() {
  clearTimeout(timer);
  timer = null;
  connection.nextAt = null;
  if (!connection.paused && !connection.needsToken && !document.hidden && watched.size) {
    const slow = Math.min(LONGEST_MS, connection.every * 2 ** connection.failures);
    connection.nextAt = Date.now() + slow;
    timer = setTimeout(refresh, slow);
  }
  tell();
}

// A round now, instead of when it is due.
export function refresh() {
  round ??= runRound().finally(() => {
    round = null;
    schedule();
  });
  return round;
}

// The next round after what has just been asked for: an action changes what is to be seen.
export async function refreshAfter() {
  if (round) await round;
  return refresh();
}

export function setPace(every) {
  connection.every = every;
  choices.set("strom-interval", String(every));
  schedule();
}

export function setPaused(paused) {
  connection.paused = paused;
  if (paused) schedule();
  else refresh();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !connection.paused) refresh();
});

let soon = null;

function watch(path, listener) {
  let entry = watched.get(path);
  if (!entry) {
    entry = { listeners: new Set(), data: null, error: null, at: null };
    watched.set(path, entry);
    // All that a page asks for at once is one round.
    soon ??= Promise.resolve().then(() => {
      soon = null;
      return refreshAfter();
    });
  }
  entry.listeners.add(listener);
  return () => {
    entry.listeners.delete(listener);
    if (!entry.listeners.size) watched.delete(path);
  };
}

const NOTHING = { data: null, error: null, at: null };

// What the server says of `path`: { data, error, at }. `path`: null for nothing.
export function usePolled(path) {
  const [, set] = useState({});
  useEffect(() => (path === null ? undefined : watch(path, set)), [path]);
  return (path !== null && watched.get(path)) || NOTHING;
}

// Asks once, for what changes seldom; and again when the server is back.
export function useAsked(path) {
  const [found, set] = useState({ path, ...NOTHING });
  const { recoveries } = useConnection();
  useEffect(() => {
    if (path === null) return undefined;
    let wanted = true;
    ask(path).then(
      (data) => wanted && set({ path, data, error: null, at: Date.now() }),
      (error) => wanted && set((before) => ({ path, data: before.path === path ? before.data : null, error, at: null })),
    );
    return () => {
      wanted = false;
    };
  }, [path, recoveries]);
  return found.path === path ? found : NOTHING;
}
