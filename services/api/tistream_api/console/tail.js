// Events of a table as they come: one endless pull. Pausing ends it; going on begins at the cursor, so nothing is missed.

import { Problem, after, follow, get, token, urlOf } from "./api.js";
import { change, historyLink, keyMembers, kindOf } from "./changes.js";
import { curlCommand } from "./commands.js";
import { fill, h } from "./dom.js";
import { clock, count, msToTs, tsToMs, zone } from "./format.js";
import { lastEvents } from "./last.js";
import { copyButton, trouble } from "./parts.js";

const SHOWN = 200;
const FROM = [ // pairs: an object would put its numbers first
  ["last", "the newest 50, and on"], ["now", "from now on"], ["60", "from a minute ago"],
  ["3600", "from an hour ago"], ["all", "from the beginning"],
];

function line(event, named) {
  const at = h("td", { class: "number" }, h("time", { title: `commit_ts ${event.commit_ts}` }, clock(tsToMs(event.commit_ts), true)));
  if (event.type === "ddl") {
    return h("tr", { class: "is-ddl" }, at, h("td", {}, "ddl"), h("td", { colspan: 2 }, h("code", {}, event.query || event.action)));
  }
  const kind = kindOf(event);
  return h("tr", { class: `is-${kind}` }, at, h("td", {}, kind),
    h("td", { class: "key" }, h("a", { href: historyLink(named, event), title: "History of this row" }, keyMembers(event.key))),
    h("td", {}, change(event)));
}

const commandFor = (path, cursor) =>
  curlCommand(urlOf(`${path}/changes?cursor=${encodeURIComponent(cursor)}&limit=1000`), token.get() !== null);

export function showTail({ path, node, signal, named, gone }) {
  let from = "last";
  let cursor = null;
  let earliest = 0n;
  let running = null;
  let total = 0;
  let waiting = [];
  let lines = [];
  let drawing = false;
  const problem = h("div");
  const number = h("p", { class: "note", role: "status", "aria-live": "off" });
  const body = h("tbody");
  const go = h("button", { type: "button", class: "main", onclick: () => (running ? stop() : start()) });
  const begin = h("select", { "aria-label": "Where to begin", onchange: () => { from = begin.value; restart(); } },
    FROM.map(([value, title]) => h("option", { value }, title)));
  const nothing = h("div");
  const copies = h("span", { class: "copies" },
    copyButton("Copy cursor", "Copy the cursor behind the newest event", () => cursor ?? ""),
    copyButton("Copy curl", "Copy a command that goes on behind the newest event", () => commandFor(path, cursor)));
  fill(node, [h("div", { class: "title" }, h("h3", {}, "Events"), number, h("div", { class: "tools" }, begin, go, copies)), problem, nothing,
    h("div", { class: "table-frame tail" }, h("table", { "aria-label": `Events of ${named.table}, newest first` },
      h("thead", {}, h("tr", {}, [`Committed (${zone(Date.now())})`, "What", "Key", "Row"].map((title) => h("th", { scope: "col" }, title)))), body))]);

  function draw() {
    drawing = false;
    if (waiting.length) {
      const fresh = waiting.slice(-SHOWN).map((event) => line(event, named)).reverse();
      waiting = [];
      lines = [...fresh, ...lines];
      body.prepend(...fresh);
      for (const old of lines.splice(SHOWN)) old.remove();
    }
    const shown = total > SHOWN ? `, the newest ${SHOWN} shown` : "";
    for (const one of copies.children) one.disabled = cursor === null;
    fill(nothing, [total || cursor === null || from === "all" ? null : h("div", { class: "empty" },
      h("h2", {}, "No events here"), h("p", {}, from === "last" ? "None is kept of this table." : "None has come since."),
      h("button", { type: "button", onclick: () => { begin.value = from = "all"; restart(); } }, "From the beginning"))]);
    number.textContent = total ? `${count(total)} events${shown}` : running ? "waiting for the next event" : "paused";
    go.textContent = running ? "Pause" : "Go on";
    node.dataset.running = String(running !== null);
  }
  const soon = () => { if (!drawing) { drawing = true; requestAnimationFrame(draw); } };

  function take(events) {
    for (const event of events) {
      if ("cursor" in event) {
        cursor = event.cursor;
      } else {
        total += 1;
        waiting.push(event);
      }
    }
    if (waiting.length > 2 * SHOWN) waiting = waiting.slice(-SHOWN); // more than anybody can read: counted, not shown
    soon();
  }

  async function where(own) {
    if (cursor !== null) return `cursor=${encodeURIComponent(cursor)}`;
    const { ts: resolved } = await get(`${path}/schema`, own); // a token for one table suffices
    if (from === "last") {
      const found = await lastEvents(path, BigInt(resolved), own);
      take(found.events);
      take([{ cursor: found.cursor }]);
      return `cursor=${encodeURIComponent(cursor)}`;
    }
    if (from === "now") return `start_ts=${resolved}`;
    const back = from === "all" ? 0n : BigInt(msToTs(tsToMs(resolved) - Number(from) * 1000));
    return `start_ts=${back > earliest ? back : earliest}`;
  }

  async function start() {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const own = AbortSignal.any([signal, mine.signal]);
    soon();
    while (!own.aborted) {
      try {
        await follow(`${path}/changes?follow=true&${await where(own)}`, own, (events) => { trouble(problem, null); take(events); });
      } catch (failed) {
        if (own.aborted || gone(failed)) return;
        if (failed.status === 410 && cursor === null && failed.more.earliest_ts) {
          earliest = BigInt(failed.more.earliest_ts); // what lies below is not kept
          continue;
        }
        if (!(failed instanceof Problem)) throw failed;
        trouble(problem, failed.more.cut ? { message: "The stream was cut; it goes on at its cursor.", status: 0 } : failed);
        if ([401, 403].includes(failed.status)) { stop(); return; }
      }
      await after(1_000, own);
    }
  }
  function stop() { running?.abort(); running = null; soon(); }
  function restart() {
    stop();
    cursor = null;
    total = 0;
    waiting = [];
    for (const old of lines.splice(0)) old.remove();
    start();
  }
  start();
}
