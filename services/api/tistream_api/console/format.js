// Times, lags and numbers as people read them.

const LOGICAL_BITS = 18n;

export const tsToMs = (ts) => Number(BigInt(ts) >> LOGICAL_BITS);
export const msToTs = (ms) => String(BigInt(Math.floor(ms)) << LOGICAL_BITS);

const two = (number) => String(number).padStart(2, "0");

export function clock(ms, withMs = false) {
  const at = new Date(ms);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMs ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

export function day(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

// The zone of a time as this browser shows it: UTC, UTC+2, UTC-03:30. A zone changes with the season, so it is a time's.
export function zone(ms) {
  const minutes = -new Date(ms).getTimezoneOffset();
  if (!minutes) return "UTC";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? "-" : "+"}${rest ? `${two(hours)}:${two(rest)}` : hours}`;
}

export const moment = (ms) => `${day(ms) === day(Date.now()) ? "" : `${day(ms)} `}${clock(ms)} ${zone(ms)}`;

// Two parts at most: 0.84 s, 12 s, 3 min 5 s, 2 h 14 min, 45 d.
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.005) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const units = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  const [name, size] = units[first];
  const whole = Math.floor(seconds / size);
  const next = units[first + 1];
  const rest = next ? Math.floor((seconds - whole * size) / next[1]) : 0;
  return rest && whole < 100 ? `${whole} ${name} ${rest} ${next[0]}` : `${whole} ${name}`;
}

export function count(number) {
  return number.toLocaleString("en-US");
}

export function size(bytesPerSecond) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let at = 0;
  let value = bytesPerSecond;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${value.toFixed(value < 10 && at ? 1 : 0)} ${units[at]}`;
}


// A key range's end, short enough for a table; the whole of it is its title.
export const shortKey = (hex, empty) => (hex === "" ? empty : hex.length > 22 ? `${hex.slice(0, 20)}…` : hex);
