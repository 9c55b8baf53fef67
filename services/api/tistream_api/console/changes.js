// Changed rows as they are shown: in the events of a table, a history, a transaction and a diff.

import { h } from "./dom.js";
import { clock, day, tsToMs, zone } from "./format.js";
import { addressOf, memberText } from "./points.js";
import { tenantLink } from "./parts.js";

const CELL_CHARS = 120;
const KEPT_BEFORE = 20; // characters that two long values share, shown before where they differ

const textOf = (value) => (value === null || value === undefined ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value));

const cut = (text) => (text.length > CELL_CHARS ? `${text.slice(0, CELL_CHARS)}…` : text);

export const said = (value) => cut(textOf(value));

// Two values, cut so that the first difference is seen.
export function apart(one, other) {
  const [before, after] = [textOf(one), textOf(other)];
  let same = 0;
  while (same < before.length && before[same] === after[same]) same += 1;
  const skipped = Math.max(before.length, after.length) > CELL_CHARS ? Math.max(0, same - KEPT_BEFORE) : 0;
  return [before, after].map((text) => (skipped ? `…${cut(text.slice(skipped))}` : cut(text)));
}

const member = (name, ...values) => h("span", { class: "member" }, h("i", {}, name), ...values);
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
export const kindOf = (event) => (event.op === "delete" ? "delete" : event.old_row ? "update" : "put");

// The names of the columns that an update changed.
const changedColumns = ({ row, old_row: before }) => Object.keys(row).filter((name) => !same(row[name], before[name]));

const changedMember = (event, name) => {
  const [before, after] = apart(event.old_row[name] ?? null, event.row[name]);
  return member(name, h("s", {}, before), " → ", h("b", {}, after));
};

// Of an update what changed, of others the row without its key.
export function change(event, key = event.key) {
  if (kindOf(event) === "update") {
    const changed = changedColumns(event);
    if (!changed.length) return h("span", { class: "note" }, "nothing that is shown changed");
    return changed.map((name) => changedMember(event, name));
  }
  const others = Object.entries(event.row ?? event.old_row ?? {}).filter(([name]) => !(name in key));
  return others.map(([name, value]) => member(name, h(event.op === "delete" ? "s" : "b", {}, said(value))));
}

// The whole row of a version; what it changed is marked.
export function wholeRow(event) {
  if (kindOf(event) !== "update") return change(event, {});
  const changed = new Set(changedColumns(event));
  return Object.keys(event.row).map((name) => (changed.has(name)
    ? h("mark", {}, changedMember(event, name)) : member(name, said(event.row[name]))));
}

export const keyMembers = (key) => Object.entries(key).map(([name, value]) => member(name, h("b", {}, said(value))));

// ---- links

export const tableLink = (cluster, tenant, database, table, view = "", query = "") =>
  `${tenantLink(cluster, tenant)}/tables/${encodeURIComponent(database)}/${encodeURIComponent(table)}${view ? `/${view}` : ""}${query}`;

// The key of a line as the API wrote it.
const keyText = (event) => memberText(event.line, "key") ?? JSON.stringify(event.key);

// To the history of a row. `named`: { cluster, tenant, database, table }; of an event of any table, its own.
export const historyLink = (named, event) => tableLink(named.cluster, named.tenant, event.database ?? named.database,
  event.table ?? named.table, "row", addressOf({ key: keyText(event) }));

// To the transaction of an event or a version; with the table, because a token may grant that alone.
export const txnLink = (named, { start_ts: startTs, commit_ts: commitTs, database = named.database, table = named.table }) =>
  `${tenantLink(named.cluster, named.tenant)}/txn/${startTs}${addressOf({ database, table, commit_ts: commitTs })}`;

export const atTime = (ts, what = "commit_ts") => {
  const ms = tsToMs(ts);
  return h("time", { title: `${what} ${ts}` }, clock(ms, true), h("span", { class: "note" }, ` ${day(ms)} ${zone(ms)}`));
};
