// The history of DDL, newest first, page by page.

import { get, poll } from "./api.js";
import { fill, h } from "./dom.js";
import { clock, day, tsToMs, zone } from "./format.js";
import { copyButton, empty, pill, trouble } from "./parts.js";

const PAGE = 50;
const EVERY_MS = 3_000;

const nameOf = (one) => (one.table ? `${one.database}.${one.table}` : one.database);

function event(one) {
  const ms = tsToMs(one.commit_ts);
  const others = one.involved.map(nameOf).filter((name) => name !== nameOf(one));
  return h("li", { key: `${one.commit_ts} ${one.schema_version}`, class: "ddl" },
    h("time", { title: `ts ${one.commit_ts}` }, clock(ms, true), h("span", {}, `${day(ms)} ${zone(ms)}`)),
    h("div", {},
      h("p", { class: "ddl-head" }, h("b", {}, nameOf(one)), pill(one.action, "plain"),
        h("span", { class: "note" }, `schema version ${one.schema_version}`),
        copyButton("Copy ts", `Copy the commit_ts of ${one.action} of ${nameOf(one)}`, () => one.commit_ts)),
      one.query ? h("pre", {}, one.query) : null,
      others.length ? h("p", { class: "note" }, `also ${others.join(", ")}`) : null));
}

export function showDdl({ path, content, signal, heard, tell }) {
  let newest = [];
  let older = [];
  let more = false;
  let text = "";
  const list = h("ol", { class: "ddls", "aria-label": "DDL events, newest first" });
  const rest = h("div");
  const problem = h("div");
  const search = h("input", {
    type: "search", placeholder: "Find in names and statements", "aria-label": "Find in DDL", "data-search": true,
    oninput: () => { text = search.value.toLowerCase(); draw(); },
  });
  fill(content, [h("div", { class: "tools" }, search, h("kbd", { "aria-hidden": true }, "/")), problem, list, rest]);

  function draw() {
    const every = [...newest, ...older];
    const shown = every.filter((one) => `${nameOf(one)} ${one.action} ${one.query}`.toLowerCase().includes(text));
    fill(list, shown.map(event));
    fill(rest, [
      shown.length ? null : empty("No DDL", every.length ? "None of what is loaded reads like that." : "None that is kept."),
      more ? h("button", { type: "button", class: "quiet", onclick: next }, "Older ones") : null]);
  }

  async function next() {
    const last = [...newest, ...older].at(-1);
    try {
      const page = await get(`${path}/ddl?limit=${PAGE}&before_ts=${last.commit_ts}`, signal);
      older.push(...page.events);
      more = page.more;
      trouble(problem, null);
      draw();
    } catch (failed) {
      if (failed.name !== "AbortError") trouble(problem, failed);
    }
  }

  poll(EVERY_MS, signal, async () => {
    const [, page] = await Promise.all([tell(), get(`${path}/ddl?limit=${PAGE}`, signal)]);
    // What has gone from the newest page since is one of the older ones now.
    const has = new Set(page.events.map((one) => one.commit_ts));
    if (newest.length) older = [...newest.filter((one) => !has.has(one.commit_ts)), ...older];
    else more = page.more;
    newest = page.events;
    draw();
  }, heard);
}
