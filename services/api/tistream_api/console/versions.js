// The history of a row: its versions, newest first, page by page.

import { get, root, token, urlOf } from "./api.js";
import { atTime, keyMembers, kindOf, tableLink, txnLink, wholeRow } from "./changes.js";
import { curlCommand, tableWord, tistream } from "./commands.js";
import { fill, h } from "./dom.js";
import { explained } from "./explained.js";
import { count } from "./format.js";
import { copyButton, empty, lost, trouble } from "./parts.js";
import { addressOf, stateOf } from "./points.js";

const PAGE = 100;

function keyOf(text) {
  try {
    const key = JSON.parse(text);
    return key !== null && typeof key === "object" ? key : null;
  } catch { return null; }
}

function version(named, text, one) {
  const kind = kindOf(one);
  const there = tableLink(named.cluster, named.tenant, named.database, named.table, "at", addressOf({ ts: one.commit_ts, key: text }));
  return h("tr", { class: `is-${kind}` },
    h("td", { class: "number" }, h("a", { href: there, "aria-label": `The table as of ${one.commit_ts}` }, atTime(one.commit_ts))),
    h("td", {}, kind),
    h("td", {}, h("a", { class: "key", href: txnLink(named, one), "aria-label": `Transaction ${one.start_ts}` }, one.start_ts),
      one.txn_source === null ? null : h("p", { class: "note" }, `txn_source ${one.txn_source}`)),
    h("td", {}, wholeRow(one)));
}

export function showVersions({ named, path, node, signal, query }) {
  const { key: text, to } = stateOf(query);
  const key = keyOf(text);
  if (key === null) {
    fill(node, [lost("No row", "This address does not say of which row.",
      tableLink(named.cluster, named.tenant, named.database, named.table, "at"), "Rows of the table")]);
    return;
  }
  let versions = [];
  let next = to;
  const number = h("p", { class: "note", role: "status" });
  const problem = h("div");
  const body = h("tbody");
  const list = h("div", { class: "table-frame tail", hidden: true }, h("table", { "aria-label": "Versions of the row, newest first" },
    h("thead", {}, h("tr", {}, ["Committed", "What", "Transaction", "Row"].map((title) => h("th", { scope: "col" }, title)))), body));
  const rest = h("div");
  const asked = (until) => `${path}/history?key=${encodeURIComponent(text)}&limit=${PAGE}${until === null ? "" : `&to=${encodeURIComponent(until)}`}`;
  const word = tableWord(named.database, named.table);
  const copies = h("span", { class: "copies" },
    copyButton("Copy key", "Copy the key of the row", () => text),
    copyButton("Copy curl", "Copy a curl command that reads this history", () => curlCommand(urlOf(asked(to)), token.get() !== null)),
    word === null ? null : copyButton("Copy command", "Copy a tistream command that reads this history",
      () => tistream(["history", word, text], { cluster: named.cluster, tenant: named.tenant, to }, root)));
  fill(node, [h("div", { class: "title" }, h("h3", {}, "History of the row ", keyMembers(key)), number, h("div", { class: "tools" }, copies)),
    problem, list, rest]);

  async function more() {
    number.textContent = "reading";
    try {
      const found = await get(asked(next), signal);
      versions = [...versions, ...found.versions];
      next = found.next_to;
      fill(problem, []);
      number.textContent = `${count(versions.length)} version${versions.length === 1 ? "" : "s"}${next === null ? "" : ", older ones follow"}`;
      list.hidden = !versions.length;
      body.append(...found.versions.map((one) => version(named, text, one)));
      fill(rest, [versions.length || next !== null ? null : empty("No versions", "Nothing that is kept has changed this row."),
        next === null ? null : h("button", { type: "button", class: "quiet", onclick: more }, "Older versions")]);
    } catch (failed) {
      if (signal.aborted) return;
      if (failed.status === undefined) throw failed;
      number.textContent = "";
      if (versions.length) trouble(problem, failed);
      else fill(problem, [explained(failed, named, null, (ts) => { next = ts; more(); })]);
    }
  }
  more();
}
