// Points in time, without the page: times as they are typed, the state of a view in its address, the slider, errors in words.

import { count, moment, msToTs, tsToMs } from "./format.js";

export const STEPS = 1_000; // of the slider
export const SPANS = [["", "all that is kept"], ["86400000", "1 day"], ["3600000", "1 hour"], ["300000", "5 min"], ["10000", "10 s"]];

const MAX_TS = (1n << 63n) - 1n;
const TIME = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$/;
const NO_ZONE = /^\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$/;
const AGO = /^(\d{1,9})([smhd])$/;
const UNIT_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

// A typed time: { ts }, { now: true }, or { wrong }, which says what is expected.
export function typedTime(typed, nowMs) {
  const text = typed.trim();
  if (text === "now") return { now: true };
  if (/^\d{1,19}$/.test(text)) {
    return BigInt(text) <= MAX_TS ? { ts: String(BigInt(text)) } : { wrong: `${text} is larger than any ts.` };
  }
  const ago = AGO.exec(text);
  if (ago) return { ts: msToTs(Math.max(0, nowMs - Number(ago[1]) * UNIT_MS[ago[2]])) };
  const [, date, seconds, rest = ".0", zone] = TIME.exec(text) ?? [];
  const ms = date ? Date.parse(`${date}T${seconds}${zone.toUpperCase()}`) : NaN;
  const there = date && new Date(`${date}T00:00:00Z`).getTime();
  if (ms >= 0 && there === there && new Date(there).toISOString().startsWith(date)) {
    return { ts: msToTs(ms + Number(`${rest.slice(1)}00`.slice(0, 3))) };
  }
  if (NO_ZONE.test(text)) return { wrong: `${text} lacks its zone, such as 2026-11-20T14:03:00Z or 2026-11-20T14:03:00+02:00.` };
  return { wrong: `"${text.slice(0, 40)}" is not a time: use a TSO, 2026-11-20T14:03:00Z, 15m (before now), or now.` };
}

// What the address of a view says: { ts, key, columns, cursor, span, from, to }; null where it says nothing.
export function stateOf(query) {
  const asked = new URLSearchParams(query);
  const columns = asked.getAll("column");
  const span = asked.get("span") ?? "";
  return {
    ts: asked.get("ts"), key: asked.get("key"), cursor: asked.get("cursor"), from: asked.get("from"), to: asked.get("to"),
    columns: columns.length ? columns : null, span: SPANS.some(([ms]) => ms === span) ? span : "",
  };
}

// The query of an address: what is null or empty is left out; `columns` are one parameter each, because names have commas.
export function addressOf({ columns, ...rest }) {
  const asked = new URLSearchParams(Object.entries(rest).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  for (const name of columns ?? []) asked.append("column", name);
  const text = asked.toString();
  return text ? `?${text}` : "";
}

// The key that a filter means: JSON as in events, or the bare value if the key has one column. { key } or { wrong }.
export function typedKey(typed, keyColumns) {
  const text = typed.trim();
  if (!text) return { key: null };
  if (text.startsWith("{")) {
    try { JSON.parse(text); return { key: text }; } catch { return { wrong: 'The key is not JSON, such as {"id":"1"}.' }; }
  }
  if (keyColumns.length === 1) return { key: JSON.stringify({ [keyColumns[0]]: text }) };
  const example = JSON.stringify(Object.fromEntries(keyColumns.map((name) => [name, "…"])));
  return { wrong: keyColumns.length ? `This key has ${keyColumns.length} columns: ${example}.` : 'Write the key as events show it, such as {"_tidb_rowid":"1"}.' };
}

// The JSON text of an object that is a member of a line, as the line has it: parsing would change numbers such as 1.0.
export function memberText(line, name) {
  let depth = 0;
  let start = null;
  for (const { 0: token, index } of line.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]]/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
    } else if (token === "}" || token === "]") {
      depth -= 1;
      if (start !== null && depth === 1) return line.slice(start, index + 1);
    } else if (depth === 1 && start === null && line[index + token.length] === ":" && token === JSON.stringify(name)) {
      start = index + token.length + 1;
    }
  }
  return null;
}

// ---- the slider. All timestamps are BigInt here.

// What it spans: everything, or `span` ms around `ts`.
export function spanned(low, high, ts, span) {
  if (high <= low) return { from: low, to: low };
  const width = span === "" ? high - low : BigInt(msToTs(Number(span)));
  if (width >= high - low) return { from: low, to: high };
  const from = ts - width / 2n;
  if (from < low) return { from: low, to: low + width };
  return from + width > high ? { from: high - width, to: high } : { from, to: from + width };
}

// The ts at a step. Between the ends it is the first ts of a millisecond.
export function tsAtStep({ from, to }, step) {
  if (step <= 0) return from;
  if (step >= STEPS) return to;
  const ts = from + (to - from) * BigInt(step) / BigInt(STEPS);
  const whole = BigInt(msToTs(tsToMs(ts)));
  return whole < from ? from : whole;
}

export function stepAtTs({ from, to }, ts) {
  if (to <= from) return STEPS;
  const step = Number((ts - from) * BigInt(STEPS) / (to - from));
  return Math.max(0, Math.min(STEPS, step));
}

// ---- errors in words: { title, text, ways }; a way is [what a button says, the ts it leads to, null for the newest]

const NEWEST = ["Newest time", null];

// `name` is the table's; null if it is not about a table at `ts`.
export function inWords({ status, message, more = {} }, name, ts) {
  const again = ["Try again", ts ?? null];
  const ways = name === null ? [] : [NEWEST];
  const earliest = more.earliest_ts;
  if (status === 410 && earliest) {
    return { title: "Earlier than what is kept", ways: name === null ? [] : [["Earliest time", earliest], NEWEST],
      text: `The earliest time that can be read is ${moment(tsToMs(earliest))} (ts ${earliest}).` };
  }
  if (status === 404 && name !== null) {
    const at = ts === null || ts === undefined ? "now" : `at ${moment(tsToMs(ts))}`;
    return { title: "Not there", ways, text: `No table has the name ${name} ${at}. The DDL history says when it came, and when it went.` };
  }
  if (status === 403) return { title: "Not granted", text: `This token may not see this: ${message}`, ways: [] };
  if (status === 0) return { title: "No answer", text: message, ways: [again] };
  const titles = { 404: "Not there", 409: "Not complete", 422: "A row cannot be decoded", 503: "Not readable yet" };
  return { title: titles[status] ?? "Refused", text: message.endsWith(".") ? message : `${message}.`, ways: status === 503 ? [again, ...ways] : ways };
}

export const rowsText = (number, more) => `${count(number)} row${number === 1 ? "" : "s"}${more ? ", more follow" : ""}`;
