// Figures as people read them. Everything takes null and undefined for "not known".

export const NONE = "–";
const MAX_WATERMARK = 2 ** 63;
const MIN_WATERMARK = -(2 ** 63);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const timeOfDay = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const dayAndTime = new Intl.DateTimeFormat("en-CA", {
  year: "numeric", month: "2-digit", day: "2-digit",
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});

const unknown = (value) => value === null || value === undefined || Number.isNaN(value);

export const count = (n) => (unknown(n) ? NONE : whole.format(n));

function scaled(n, step, units, glue) {
  let at = 0;
  let value = Math.abs(n);
  while (value >= step * 0.9995 && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  const digits = at === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${n < 0 ? "-" : ""}${value.toFixed(digits)}${glue}${units[at]}`;
}

// 1.23 M, for where space is short.
export const short = (n) => (unknown(n) ? NONE : scaled(n, 1000, ["", "K", "M", "G", "T"], "\u202f").trim());

export const bytes = (n) =>
  unknown(n) || n < 0 ? NONE : scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"], "\u202f");

export function rate(perSecond) {
  if (unknown(perSecond)) return NONE;
  if (perSecond > 0 && perSecond < 9.95) return `${perSecond.toFixed(1)}/s`;
  return `${short(Math.round(perSecond))}/s`;
}

export const percent = (share) => (unknown(share) ? NONE : `${Math.round(share * 100)}%`);

export function duration(ms) {
  if (unknown(ms) || ms === -1) return NONE;
  const sign = ms < 0 ? "-" : "";
  const size = Math.abs(ms);
  if (size < 1000) return `${sign}${Math.round(size)} ms`;
  if (size < 10_000) return `${sign}${(size / 1000).toFixed(1)} s`;
  const seconds = Math.round(size / 1000);
  if (seconds < 60) return `${sign}${seconds} s`;
  if (seconds < 3600) return `${sign}${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1440) return `${sign}${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${sign}${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

const known = (ms) => !unknown(ms) && ms > 0;

export const moment = (ms) => (known(ms) ? dayAndTime.format(ms).replace(",", "") : NONE);
export const clock = (ms) => (known(ms) ? timeOfDay.format(ms) : NONE);

// Event time. The last watermark of a stream that is over is the largest number there is.
export function watermark(value) {
  if (unknown(value) || value <= MIN_WATERMARK) return NONE;
  if (value >= MAX_WATERMARK) return "end";
  return new Date(value).toISOString().replace("T", " ").replace("Z", "");
}

// How far a watermark is behind the clock, in ms; null where it says nothing.
export function lagOf(value, now) {
  return unknown(value) || value <= MIN_WATERMARK || value >= MAX_WATERMARK ? null : now - value;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
