// What differs in a table between two times: each key once.

import { lines, root, token, urlOf } from "./api.js";
import { readable } from "./bounds.js";
import { atTime, change, historyLink, keyMembers, kindOf, tableLink } from "./changes.js";
import { curlCommand, tableWord, tistream } from "./commands.js";
import { fill, h } from "./dom.js";
import { explained } from "./explained.js";
import { count, msToTs } from "./format.js";
import { copyButton, empty, trouble } from "./parts.js";
import { addressOf, stateOf, typedTime } from "./points.js";

const PAGE = 200;
const BACK_MS = 3_600_000; // without a time in the address: the last hour

const line = (named, event) => h("tr", { class: `is-${kindOf(event)}` },
  h("td", { class: "number" }, atTime(event.commit_ts)),
  h("td", {}, kindOf(event)),
  h("td", { class: "key" }, h("a", { href: historyLink(named, event), title: "History of this row" }, keyMembers(event.key))),
  h("td", {}, change(event)));

export function showDiff({ named, path, tenantPath, node, signal, query }) {
  const state = stateOf(query);
  let cursor = null;
  let total = 0;
  let reading = new AbortController();
  const field = (label) => h("input", { class: "typed", "aria-label": label, placeholder: "2026-11-20T14:03:00Z, a TSO, 15m, now", spellcheck: "false", autocomplete: "off" });
  const [from, to] = [field("From"), field("To")];
  const wrong = h("div");
  const number = h("p", { class: "note", role: "status" });
  const answer = h("div");
  const rest = h("div");
  const between = h("p", { class: "between note" });
  const compare = (event) => {
    event.preventDefault();
    const found = [from, to].map((one) => typedTime(one.value, Date.now()));
    const bad = found.find((one) => one.wrong);
    trouble(wrong, bad ? { status: 400, message: bad.wrong } : null);
    if (!bad) load(...found.map((one) => one.ts ?? null));
  };
  const word = tableWord(named.database, named.table);
  const copies = h("span", { class: "copies" },
    copyButton("Copy curl", "Copy a curl command that reads these differences",
      () => curlCommand(urlOf(`${path}/diff?${new URLSearchParams({ from: state.from, to: state.to })}`), token.get() !== null)),
    word === null ? null : copyButton("Copy command", "Copy a tistream command that reads these differences",
      () => tistream(["diff", word], { cluster: named.cluster, tenant: named.tenant, from: state.from, to: state.to }, root)));
  fill(node, [h("div", { class: "title" }, h("h3", {}, "Differences"), number, h("div", { class: "tools" }, copies)),
    h("form", { class: "tools", onsubmit: compare }, h("label", { class: "note" }, "From ", from), h("label", { class: "note" }, "to ", to),
      h("button", { type: "submit" }, "Compare")),
    wrong, between, answer, rest]);

  async function load(low, high) {
    reading.abort();
    reading = new AbortController();
    const own = AbortSignal.any([signal, reading.signal]);
    number.textContent = "reading";
    fill(answer, []);
    fill(rest, []);
    try {
      const bounds = await readable(path, tenantPath, own);
      state.to = high ?? String(bounds.high);
      const hour = BigInt(state.to) - BigInt(msToTs(BACK_MS));
      state.from = low ?? String(hour > bounds.low ? hour : bounds.low);
      [from.value, to.value] = [state.from, state.to];
      history.replaceState(null, "", tableLink(named.cluster, named.tenant, named.database, named.table, "diff", addressOf({ from: state.from, to: state.to })));
      fill(between, ["after ", atTime(state.from, "ts"), ", up to ", atTime(state.to, "ts")]);
      total = 0;
      await page(new URLSearchParams({ from: state.from, to: state.to, limit: PAGE }), own);
    } catch (failed) {
      refused(failed, own);
    }
  }
  async function page(asked, own) {
    const events = await lines(`${path}/diff?${asked}`, own);
    cursor = events.pop().cursor;
    total += events.length;
    number.textContent = `${count(total)} row${total === 1 ? "" : "s"} differ${total === 1 ? "s" : ""}${cursor === null ? "" : ", more follow"}`;
    if (!answer.firstChild) {
      fill(answer, [total ? h("div", { class: "table-frame tail" }, h("table", { "aria-label": `Differences of ${named.table}` },
        h("thead", {}, h("tr", {}, ["Newest change", "What", "Key", "Row"].map((title) => h("th", { scope: "col" }, title)))), h("tbody")))
        : empty("No differences", "Every row is the same at both times.")]);
    }
    answer.querySelector("tbody")?.append(...events.map((one) => line(named, one)));
    fill(rest, [cursor === null ? null : h("button", { type: "button", class: "quiet", onclick: () => next(own) }, "More differences")]);
  }
  async function next(own) {
    try { await page(new URLSearchParams({ cursor, limit: PAGE }), own); } catch (failed) { refused(failed, own); }
  }
  function refused(failed, own) {
    if (own.aborted) return;
    if (failed.status === undefined) throw failed;
    number.textContent = "";
    fill(rest, []);
    fill(answer, [explained(failed, named, null, (ts) => load(ts, null))]);
  }

  const linked = [state.from, state.to].map((text) => (text === null ? { now: true } : typedTime(text, Date.now())));
  const bad = linked.find((one) => one.wrong);
  if (bad) trouble(wrong, { status: 400, message: bad.wrong });
  load(...linked.map((one) => one.ts ?? null));
}
