// Asks for what is on the screen again and again. All paths are asked for in one round, so that one
// page shows one moment; but for those that take long, which are shown when they come. While the
// server is gone rounds become rare, and what was known stays.

import { ask } from "./server.js";
import { choices } from "./store.js";
import { useEffect, useState } from "./view.js";

const LONGEST_MS = 30_000;
const SLOW_MS = 1500; // so long a round waits for others once one path has answered
const ASK_AGAIN_MS = 5000;
export const INTERVALS = [1000, 2000, 5000, 10_000];

const watched = new Map(); // path -> { listeners, data, error, at, asking: the request that is on, late: its round is over }
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
  partly: "", // why some of what is shown is old, while the server answers
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
  } catch (error) {
    entry.error = error;
  }
  entry.asking = null;
  if (entry.late) draw(entry);
}

function draw(entry) {
  entry.late = false;
  for (const listener of entry.listeners) listener({});
}

// The server is gone when none of the paths is answered: one may ask somebody who hangs.
function judge(errors) {
  const failed = errors.filter((error) => error?.gone);
  const gone = failed.length === errors.length ? failed[0] : undefined;
  connection.partly = gone ? "" : failed[0]?.message ?? "";
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
  const entries = [...watched.values()];
  const asked = [];
  for (const [path, entry] of watched) {
    if (!entry.asking) asked.push((entry.asking = fetchOne(path, entry)));
  }
  if (asked.length) {
    const slow = Promise.race(asked).then(() => new Promise((resolve) => setTimeout(resolve, SLOW_MS)));
    await Promise.race([Promise.all(asked), slow]);
  } else if (entries.length) {
    await Promise.race(entries.map((entry) => entry.asking));
  } else {
    return;
  }
  const answered = entries.filter((entry) => !entry.asking);
  judge(answered.map((entry) => entry.error));
  // All at once: the page is drawn once for a round.
  answered.forEach(draw);
  for (const entry of entries) entry.late = entry.asking !== null;
}

// Nothing is asked for any more that has been.
export const answered = () => Promise.all([...watched.values()].map((entry) => entry.asking));

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
    entry = { listeners: new Set(), data: null, error: null, at: null, asking: null, late: false };
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

// Asks once, for what changes seldom; and again while nobody answers, and when the server is back.
export function useAsked(path) {
  const [found, set] = useState({ path, ...NOTHING });
  const { recoveries } = useConnection();
  const [tries, tryAgain] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    let wanted = true;
    let later = null;
    ask(path).then(
      (data) => wanted && set({ path, data, error: null, at: Date.now() }),
      (error) => {
        if (!wanted) return;
        set((before) => ({ path, data: before.path === path ? before.data : null, error, at: null }));
        if (error.gone) later = setTimeout(() => tryAgain((n) => n + 1), ASK_AGAIN_MS);
      },
    );
    return () => {
      wanted = false;
      clearTimeout(later);
    };
  }, [path, recoveries, tries]);
  return found.path === path ? found : NOTHING;
}
