// A whole transaction: what it changed in all tables, and the command that shows what an undo of it would change.

import { follow, lines, root, tablePath, token, urlOf } from "./api.js";
import { atTime, change, historyLink, keyMembers, kindOf, tableLink } from "./changes.js";
import { curlCommand, tistream } from "./commands.js";
import { fill, h } from "./dom.js";
import { explained } from "./explained.js";
import { count } from "./format.js";
import { copyButton, lost } from "./parts.js";

const SHOWN = 500;

const line = (named, event) => h("tr", { class: `is-${kindOf(event)}` },
  h("td", {}, h("a", { href: tableLink(named.cluster, named.tenant, event.database, event.table, "at", `?ts=${event.commit_ts}`) }, `${event.database}.${event.table}`)),
  h("td", {}, kindOf(event)),
  h("td", { class: "key" }, h("a", { href: historyLink(named, event), title: "History of this row" }, keyMembers(event.key))),
  h("td", {}, change(event)));

export function showTxn({ cluster, tenant, path, content, signal, heard, tell, rest: [startTs], query }) {
  const named = { cluster, tenant };
  if (!/^\d{1,19}$/.test(startTs ?? "")) {
    fill(content, [lost("No transaction", "A transaction is named by its start_ts, a decimal number.", "#/tenants", "All tenants")]);
    return;
  }
  const from = new URLSearchParams(query); // of which table's history or events the link was
  const part = { database: from.get("database"), table: from.get("table"), commit: from.get("commit_ts") };
  const facts = h("p", { class: "note", role: "status" }, "reading");
  const undo = h("div");
  const list = h("div");
  const note = h("div");
  const copies = h("span", { class: "copies" },
    copyButton("Copy start_ts", "Copy the start_ts of the transaction", () => startTs),
    copyButton("Copy curl", "Copy a curl command that reads the transaction", () => curlCommand(urlOf(`${path}/transactions/${startTs}`), token.get() !== null)),
    copyButton("Copy command", "Copy a tistream command that reads the transaction", () => tistream(["txn", startTs], named, root)));
  fill(content, [h("div", { class: "title" }, h("h2", {}, `Transaction ${startTs}`), facts, h("div", { class: "tools" }, copies)), note, undo, list]);

  async function ofTheTable() { // what a token that does not grant the tenant may see
    const after = BigInt(part.commit) - 1n;
    const found = await lines(`${tablePath(cluster, tenant, part.database, part.table)}/changes?start_ts=${after}&end_ts=${part.commit}&events=rows&limit=${SHOWN}`, signal);
    const mine = found.filter((one) => one.type === "row" && one.start_ts === startTs);
    fill(note, [h("p", { class: "note" }, `This token sees a part of the tenant: only rows of ${part.database}.${part.table} are shown, and an undo is not granted.`)]);
    draw(mine, found.at(-1).type !== "resolved", false);
  }

  async function read() {
    const events = [];
    let whole = false;
    try {
      await follow(`${path}/transactions/${startTs}`, signal, (more) => {
        for (const one of more) {
          if (one.type === "end") whole = true;
          else if (events.length < SHOWN) events.push(one);
          else return false;
        }
        return true;
      });
      draw(events, !whole, true);
    } catch (failed) {
      if (signal.aborted) return;
      if (failed.status === 403 && part.database && part.table && /^\d{1,19}$/.test(part.commit ?? "")) { await ofTheTable(); return; }
      throw failed;
    }
  }
  function draw(events, cut, whole) {
    if (!events.length) {
      facts.textContent = "";
      fill(list, [lost("No rows", "None of the rows that this transaction changed is shown here.", "#/tenants", "All tenants")]);
      return;
    }
    const tables = new Set(events.map((one) => `${one.database}.${one.table}`));
    const rows = `${cut ? `the first ${count(events.length)} rows` : `${count(events.length)} row${events.length === 1 ? "" : "s"}`} of ${count(tables.size)} table${tables.size === 1 ? "" : "s"}`;
    fill(facts, [h("span", {}, rows), h("span", {}, "started ", atTime(startTs, "start_ts")), h("span", {}, "committed ", atTime(events[0].commit_ts))]);
    const command = tistream(["undo"], { txn: startTs, ...named }, root);
    fill(undo, [whole ? h("section", { class: "panel undo", "aria-label": "Undo" },
      h("div", { class: "title" }, h("h3", {}, "Undo"), h("p", { class: "note" }, "This command shows what an undo would change, and changes nothing. It takes --apply to run it."),
        h("span", { class: "copies" }, copyButton("Copy undo", "Copy the undo command", () => command))),
      h("pre", {}, command)) : null]);
    fill(list, [h("div", { class: "table-frame txn" }, h("table", { "aria-label": "Rows of the transaction" },
      h("thead", {}, h("tr", {}, ["Table", "What", "Key", "Row"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, events.map((one) => line(named, one)))))]);
  }

  const start = () => read().catch((failed) => {
    if (signal.aborted) return;
    if (failed.status === undefined) throw failed;
    facts.textContent = "";
    fill(list, [explained(failed, named, null, () => { fill(list, []); start(); })]);
  });
  start();
  tell().then(() => heard(null), (failed) => { if (!signal.aborted) heard(failed); });
}
