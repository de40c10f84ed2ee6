// What is remembered of jobs while the page is open: rates worked out from counts, and the history
// that charts show. Bounded: so many points of each series, so many jobs.

import { lagOf } from "./format.js";

const POINTS = 900;
const MOST_JOBS = 8;
const SPAN_MS = 6000; // reports come every half second: rates over less would flicker

export class Rate {
  #samples = [];

  // Per second, of a count that only grows; null until two moments are known. One that falls back
  // begins anew with a restart.
  at(now, n) {
    const samples = this.#samples;
    const last = samples.at(-1);
    if (last && (n < last.n || now < last.now)) samples.length = 0;
    if (!samples.length || now > samples.at(-1).now) samples.push({ now, n });
    while (samples.length > 2 && now - samples[1].now >= SPAN_MS) samples.shift();
    const first = samples[0];
    return now > first.now ? ((n - first.n) * 1000) / (now - first.now) : null;
  }
}

class History {
  constructor() {
    this.times = []; // in s, as the charts want them
    this.series = new Map();
  }

  add(now, values) {
    const at = now / 1000;
    if (this.times.length && at <= this.times.at(-1)) return;
    this.times.push(at);
    const size = this.times.length;
    for (const [name, value] of Object.entries(values)) {
      let line = this.series.get(name);
      if (!line) this.series.set(name, (line = []));
      while (line.length < size - 1) line.push(null);
      line.push(Number.isFinite(value) ? value : null);
    }
    if (size > POINTS) {
      this.times.shift();
      for (const line of this.series.values()) line.shift();
    }
  }

  // [times, ...one line per name], of equal length.
  lines(names) {
    const size = this.times.length;
    return [
      this.times.slice(),
      ...names.map((name) => {
        const line = (this.series.get(name) ?? []).slice();
        while (line.length < size) line.push(null);
        return line;
      }),
    ];
  }
}

const jobs = new Map();

function memoryOf(id) {
  let memory = jobs.get(id);
  if (memory) jobs.delete(id); // and behind the others: the oldest goes first
  else memory = { rates: new Map(), history: new History(), now: 0, vertices: new Map() };
  jobs.set(id, memory);
  if (jobs.size > MOST_JOBS) jobs.delete(jobs.keys().next().value);
  return memory;
}

function rateOf(memory, name, now, n) {
  let rate = memory.rates.get(name);
  if (!rate) memory.rates.set(name, (rate = new Rate()));
  return rate.at(now, n);
}

const most = (values) => values.reduce((a, b) => (b !== null && (a === null || b > a) ? b : a), null);

export const historyOf = (id) => memoryOf(id).history;

// The vertices of a job with their live figures, in the plan's order, and the job's own. `details`:
// of `jobs/<id>`; `figures`: of `jobs/<id>/figures`, or null.
export function merged(details, figures) {
  const memory = memoryOf(details.jid);
  const byId = new Map(figures?.vertices.map((one) => [one.id, one]) ?? []);
  const now = figures?.now ?? details.now;
  const running = details.state === "RUNNING";
  const read = new Set(details.plan.nodes.flatMap((node) => node.inputs.map((one) => one.id)));
  const nodes = new Map(details.plan.nodes.map((node) => [node.id, node]));
  const fresh = running && now > memory.now;
  const vertices = details.vertices.map((vertex) => {
    const found = byId.get(vertex.id) ?? {};
    if (fresh && figures) {
      const rates = {
        in: rateOf(memory, `${vertex.id}<`, now, found["read-records"]),
        out: rateOf(memory, `${vertex.id}>`, now, found["write-records"]),
      };
      memory.vertices.set(vertex.id, rates);
    }
    const rates = (running && memory.vertices.get(vertex.id)) || {};
    const node = nodes.get(vertex.id);
    return {
      id: vertex.id,
      name: vertex.name,
      status: vertex.status,
      parallelism: vertex.parallelism,
      inputs: node?.inputs ?? [],
      operators: node?.operators ?? [],
      isSource: (node?.inputs.length ?? 0) === 0,
      isSink: !read.has(vertex.id),
      tasks: vertex.tasks,
      recordsIn: found["read-records"] ?? null,
      recordsOut: found["write-records"] ?? null,
      inRate: rates.in ?? (running ? found["in-per-second"] : null) ?? null,
      outRate: rates.out ?? (running ? found["out-per-second"] : null) ?? null,
      busy: running ? (found.busy ?? null) : null,
      busyMost: running ? (found["busy-max"] ?? null) : null,
      held: running ? (found.backpressured ?? null) : null,
      heldMost: running ? (found["backpressured-max"] ?? null) : null,
      idle: running ? (found.idle ?? null) : null,
      watermark: found.watermark ?? null,
      lag: running ? lagOf(found.watermark, now) : null,
      skew: found.skew ?? null,
    };
  });
  const total = (list, figure) =>
    list.every((one) => one[figure] === null)
      ? null
      : list.reduce((sum, one) => sum + (one[figure] ?? 0), 0);
  const job = {
    in: total(vertices.filter((one) => one.isSource), "inRate"),
    out: total(vertices.filter((one) => one.isSink), "outRate"),
    lag: most(vertices.filter((one) => one.isSink).map((one) => one.lag)),
    busy: most(vertices.map((one) => one.busyMost)),
    held: most(vertices.map((one) => one.heldMost)),
    rss: figures?.memory.rss ?? null,
    inFlight: figures?.["in-flight-bytes"] ?? null,
    processes: figures?.memory.processes ?? null,
  };
  if (fresh && figures) {
    memory.now = now;
    const seen = {
      in: job.in, out: job.out, lag: job.lag, busy: job.busy, held: job.held,
      rss: job.rss, inFlight: job.inFlight,
    };
    for (const one of vertices) {
      seen[`${one.id}<`] = one.inRate;
      seen[`${one.id}>`] = one.outRate;
      seen[`${one.id} busy`] = one.busy;
      seen[`${one.id} held`] = one.held;
      seen[`${one.id} lag`] = one.lag;
    }
    memory.history.add(now, seen);
  }
  return { vertices, job, now };
}
