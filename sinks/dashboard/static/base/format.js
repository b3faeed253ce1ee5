// Numbers and times as text, and the time by the server's clock.

let ahead = 0; // of this browser's clock, in milliseconds

export const now = () => Date.now() - ahead;
export const setNow = (seconds) => { ahead = Date.now() - seconds * 1000; };

export const percent = (ratio) => (ratio === null || ratio === undefined ? "–" : `${(100 * ratio).toFixed(ratio < 0.0995 ? 1 : 0)} %`);

export function amount(value, digits = 1) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Math.abs(value) >= 10000) return Math.round(value).toLocaleString("en-US").replaceAll(",", " ");
  if (Math.abs(value) >= 100) return value.toFixed(0);
  return value.toFixed(digits);
}

export const whole = (value) => (value === null || value === undefined ? "–" : Math.floor(value).toLocaleString("en-US").replaceAll(",", " "));

// A number with its noun: "1 node", "2 nodes".
export const counted = (number, noun) => `${whole(number)} ${number === 1 ? noun : `${noun}s`}`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${value.toFixed(at && Math.abs(value) < 100 ? 1 : 0)} ${units[at]}`;
}

export function age(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0) return "0 s";
  if (seconds < 99.5) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  if (seconds < 5940) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// A label of an axis without the zeros that say nothing: "0.200" is 0.2, "0.0 %" is 0 %.
export const trimmed = (text) => text.replace(/(\.\d*?)0+(?=\s|$)/, "$1").replace(/\.(?=\s|$)/, "");

// A name that fits on a screen: containers without a name are called by their id, which has 64 digits.
export const brief = (name) => (name?.length > 40 ? `${name.slice(0, 16)}…${name.slice(-8)}` : name);

// A class by name; "-" is that of pods whose class is not known.
export const workload = (name) => (name === "-" ? "unknown class" : name);

// A part of the processors' work in words: "outlook-4" makes the predictions of partition 4.
export function part(name) {
  const [kind, number] = name.split("-");
  if (/^\d+$/.test(name)) return `partition ${name}`;
  if (kind === "outlook") return `predictions ${number}`;
  return { aggregate: "global model", federation: "reject directions", forecast: "forecasts" }[name] ?? name;
}

// What runs out first, in words.
export const resource = (name) => ({ cpu: "CPU", memory: "memory", disk: "disk", pods: "pod limit" })[name] ?? name;

const clock = (us) => (us ? new Date(us / 1000).toLocaleTimeString("en-GB") : "–");
export const moment = (us) => (us ? new Date(us / 1000).toLocaleString("en-GB") : "–");

// What shows the times of a range, from and to in seconds: with the day, unless the whole range is on the given one.
export function stamp(from, to, day) {
  const date = (seconds) => new Date(seconds * 1000).toDateString();
  return date(from) === date(day) && date(to) === date(day) ? clock : moment;
}

export const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;
