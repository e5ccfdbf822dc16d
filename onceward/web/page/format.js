// Formats of numbers, times and values.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A count: 12,345, and 1.2M when it is long. */
export const count = (value) => (value < 100000 ? whole.format(value) : short.format(value));

/** A rate per second. */
export function rate(value) {
  if (!Number.isFinite(value) || value < 0) return "–";
  return value >= 100 || Number.isInteger(value) ? count(Math.round(value)) : value.toFixed(1);
}

/** A duration, in a suitable unit. */
export function span(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  if (ms < 1) return ms <= 0 ? "0 ms" : `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

/** A countdown: 1:05, 2:03:09, 4 d 02:00. */
export function left(ms) {
  if (ms <= 0) return "now";
  const s = Math.ceil(ms / 1000);
  const two = (n) => String(n).padStart(2, "0");
  const [d, hours, minutes, seconds] =
    [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60, s % 60];
  if (d) return `${d} d ${two(hours)}:${two(minutes)}`;
  return hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric",
  hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A time of day, with the date if it is another day. */
export function time(ms, now = Date.now()) {
  if (!ms || ms > 8.6e15) return "–";
  const then = new Date(ms);
  const same = then.toDateString() === new Date(now).toDateString();
  return same ? clock.format(then) : `${day.format(then)} ${clock.format(then).slice(0, 5)}`;
}

/** A time with its date, and milliseconds. */
export function exactly(ms) {
  if (!ms || ms > 8.6e15) return "–";
  return `${date.format(new Date(ms))}.${String(ms % 1000).padStart(3, "0")}`;
}

/** The time since then. */
export function ago(ms, now) {
  return ms ? (now - ms < 1000 ? "just now" : `${span(now - ms)} ago`) : "–";
}

/** A value in one line. */
export function brief(value, most = 120) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** A value with line breaks and indentation. */
export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
