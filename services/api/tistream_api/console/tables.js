// Databases and tables; of one of them its columns and its events as they come, its rows as they were, a row's history.

import { get, poll, tablePath } from "./api.js";
import { tableLink } from "./changes.js";
import { showDiff } from "./diff.js";
import { fill, h } from "./dom.js";
import { count, moment, tsToMs } from "./format.js";
import { empty, lost, pill, tenantLink, trouble } from "./parts.js";
import { addressOf } from "./points.js";
import { showRows } from "./rows.js";
import { showTail } from "./tail.js";
import { showVersions } from "./versions.js";

const EVERY_MS = 5_000;
const TABLES_SHOWN = 500;
const VIEWS = { at: showRows, row: showVersions, diff: showDiff }; // and the events

export function showTables(context) {
  const { cluster, tenant, path, content, signal, heard, tell, rest: [database, name, view] } = context;
  let databases = [];
  let text = "";
  // One stop of Tab, whatever the number of tables: arrows go through them.
  const step = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    const links = [...list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (!by || at < 0) return;
    event.preventDefault();
    const next = links[Math.max(0, Math.min(links.length - 1, at + by))];
    stop(next);
    next.focus();
  };
  const list = h("div", { class: "names", onkeydown: step });
  const stop = (link) => {
    for (const one of list.querySelectorAll("a")) one.tabIndex = one === link ? 0 : -1;
  };
  const detail = h("div", { class: "detail" });
  const search = h("input", {
    type: "search", placeholder: "Find a table", "aria-label": "Find a table", "data-search": true,
    oninput: () => { text = search.value.toLowerCase(); draw(); },
  });
  fill(content, [h("div", { class: "beside" }, h("div", { class: "chooser" }, search, list), detail)]);

  const link = (own, table) => h("li", { key: table.name },
    h("a", {
      href: `${tenantLink(cluster, tenant)}/tables/${encodeURIComponent(own)}/${encodeURIComponent(table.name)}`,
      "aria-current": own === database && table.name === name ? "true" : null,
      tabindex: -1,
    }, table.name));

  function draw() {
    let left = TABLES_SHOWN;
    fill(list, databases.map(({ own, tables }) => {
      const found = tables.filter((table) => `${own}.${table.name}`.toLowerCase().includes(text));
      const shown = found.slice(0, left);
      left -= shown.length;
      if (!found.length && text) return null;
      return h("section", { key: own, "aria-label": own }, h("h3", {}, own),
        shown.length ? h("ul", {}, shown.map((table) => link(own, table))) : h("p", { class: "note" }, "no tables"),
        shown.length < found.length ? h("p", { class: "note" }, `and ${count(found.length - shown.length)} more`) : null);
    }));
    const links = [...list.querySelectorAll("a")];
    stop(links.find((one) => one === document.activeElement) ?? links.find((one) => one.ariaCurrent) ?? links[0]);
    if (!databases.length) fill(list, [h("p", { class: "note" }, "no databases yet")]);
  }

  poll(EVERY_MS, signal, async () => {
    const [, { ts, databases: names }] = await Promise.all([tell(), get(`${path}/databases`, signal)]);
    databases = await Promise.all(names.map(async (own) => {
      const found = await get(`${path}/databases/${encodeURIComponent(own)}/tables?ts=${ts}`, signal);
      return { own, tables: found.tables };
    }));
    draw();
  }, heard);

  if (database === undefined || name === undefined) {
    fill(detail, [empty("Choose a table", "Its columns and its events are shown here.")]);
    return;
  }
  const named = { cluster, tenant, database, table: name };
  if (view === undefined) showEvents(context, detail, named);
  else if (VIEWS[view]) showPast(context, detail, named, view);
  else fill(detail, [lost("Nothing here", "A table has no such view.", tableLink(cluster, tenant, database, name), `Events of ${database}.${name}`)]);
}

// The views of a table; `ts` is the time that is shown, with which the others begin.
function viewTabs({ cluster, tenant, database, table }, view, ts = null) {
  const tab = (of, title, query) => h("a", {
    href: tableLink(cluster, tenant, database, table, of, addressOf(query)), "aria-current": of === view ? "page" : null,
  }, title);
  return h("nav", { class: "tabs", "aria-label": `Views of ${table}` },
    tab("", "Events", {}), tab("at", "As it was", { ts }), tab("diff", "Differences", { from: ts }));
}

function showPast({ path: tenantPath, signal, query }, detail, named, view) {
  const { cluster, tenant, database, table } = named;
  const tabs = h("div");
  const node = h("div");
  const moved = (ts) => fill(tabs, [viewTabs(named, view, ts)]);
  moved(null);
  fill(detail, [h("div", { class: "title" }, h("h2", {}, `${database}.${table}`)), tabs, node]);
  VIEWS[view]({ named, path: tablePath(cluster, tenant, database, table), tenantPath, node, signal, query, moved });
}

function showEvents(context, detail, named) {
  const { cluster, tenant, database, table: name } = named;
  const { signal } = context;
  const columns = h("div");
  const tail = h("div");
  const problem = h("div");
  const path = tablePath(cluster, tenant, database, name);
  fill(detail, [h("div", { class: "title" }, h("h2", {}, `${database}.${name}`)), viewTabs(named, ""), problem, columns, tail]);
  const leave = new AbortController();
  const own = AbortSignal.any([signal, leave.signal]);
  const gone = (failed) => {
    if (failed?.status !== 404) return false;
    leave.abort();
    fill(detail, [lost("No such table", `${database}.${name} is not there now.`, `${tenantLink(cluster, tenant)}/tables`, "The tables there are"),
      h("p", { class: "note" }, "It may have been there: ", h("a", { href: tableLink(cluster, tenant, database, name, "at") }, "as it was"))]);
    return true;
  };
  showTail({ path, node: tail, signal: own, named, gone });
  poll(EVERY_MS, own, async () => {
    const schema = await get(`${path}/schema`, own);
    fill(columns, [h("details", { "data-columns": true },
      h("summary", {}, `${schema.columns.length} columns`, h("span", { class: "note" },
        `table ${schema.table_id}, schema version ${schema.schema_version}, as of ${moment(tsToMs(schema.ts))}`)),
      h("ul", { class: "columns" }, schema.columns.map((column) => h("li", { key: column.name },
        h("b", {}, column.name), h("code", {}, column.sql_type),
        column.key ? pill("key", "plain") : null, column.nullable ? null : h("span", { class: "note" }, "not null")))))]);
  }, (failed) => { if (!gone(failed)) trouble(problem, failed); });
}
