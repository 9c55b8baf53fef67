// A table as it was: its rows at a ts, which a slider, a typed time, or a step to a change chooses. The address has it all.

import { get, lines, poll, root, token, urlOf } from "./api.js";
import { newest, readable } from "./bounds.js";
import { atTime, historyLink, said, tableLink } from "./changes.js";
import { curlCommand, tableWord, tistream } from "./commands.js";
import { fill, h } from "./dom.js";
import { explained } from "./explained.js";
import { moment, tsToMs } from "./format.js";
import { copyButton, empty, trouble } from "./parts.js";
import { SPANS, STEPS, addressOf, rowsText, spanned, stateOf, stepAtTs, tsAtStep, typedKey, typedTime } from "./points.js";
import { changeAfter, changeBefore } from "./steps.js";

const EVERY_MS = 5_000;
const PAGE = 100;
const WIDE = 30; // characters: a longer value may be cut by its column

const row = (named, one, names, ts) => h("tr", { class: one.commit_ts === ts ? "is-fresh" : null },
  h("td", {}, h("a", { href: historyLink(named, one), "aria-label": `History of the row ${JSON.stringify(one.key)}` }, "History")),
  h("td", {}, atTime(one.commit_ts)),
  names.map((name) => {
    const value = name in one.row ? one.row[name] : one.key[name];
    const text = said(value);
    return h("td", { class: value === null ? "value note" : "value", title: text.length > WIDE ? text : null }, text);
  }));

export function showRows({ named, path, tenantPath, node, signal, query, moved }) {
  const state = stateOf(query);
  let bounds = null;
  let within = null;   // what the slider spans
  let schema = null;   // at the ts
  let shown = null;    // { rows, cursor }
  let pages = [];      // the cursors of the pages before
  let reading = new AbortController();
  const name = `${named.database}.${named.table}`;

  const typed = h("input", { class: "typed", "aria-label": "Time", placeholder: "2026-11-20T14:03:00Z, a TSO, 15m, now", spellcheck: "false", autocomplete: "off" });
  const output = h("output", { class: "at" });
  const slider = h("input", { type: "range", min: 0, max: STEPS, step: 1, "aria-label": "Time between the earliest and the newest that can be read",
    oninput: () => { slider.dataset.moving = "true"; tell(tsAtStep(within, Number(slider.value))); },
    onchange: () => { delete slider.dataset.moving; if (within) goTo(String(tsAtStep(within, Number(slider.value)))); } });
  const [first, last] = [h("time"), h("time")];
  const span = h("select", { "aria-label": "What the slider spans", onchange: () => { state.span = span.value; within = null; drawTime(); keep(); } },
    SPANS.map(([ms, title]) => h("option", { value: ms }, title)));
  span.value = state.span;
  const wrong = h("div");
  const key = h("input", { class: "typed", "aria-label": "Key", placeholder: 'Key: 1, or {"id":"1"}', spellcheck: "false", autocomplete: "off" });
  const choice = h("details", { class: "choice", hidden: true });
  const number = h("p", { class: "note", role: "status" });
  const answer = h("div");
  const pager = h("div", { class: "tools" });
  const go = (event) => {
    event.preventDefault();
    const found = typedTime(typed.value, Date.now());
    refuse(found.wrong ?? null);
    if (found.wrong) return;
    typed.value = "";
    goTo(found.ts ?? null);
  };
  const find = (event) => {
    event.preventDefault();
    const found = typedKey(key.value, (schema?.columns ?? []).filter((one) => one.key).map((one) => one.name));
    refuse(found.wrong ?? null);
    if (!found.wrong) change({ key: found.key });
  };
  const button = (title, press, more = {}) => h("button", { type: "button", onclick: press, ...more }, title);
  const copies = h("span", { class: "copies" },
    copyButton("Copy ts", "Copy the ts that is shown", () => state.ts ?? ""),
    copyButton("Copy curl", "Copy a curl command that reads these rows", () => curlCommand(urlOf(`${path}/rows?${asked()}`), token.get() !== null)),
    tableWord(named.database, named.table) === null ? null
      : copyButton("Copy command", "Copy a tistream command that reads these rows", command));
  fill(node, [h("section", { class: "panel past", "aria-label": "Which time" },
    h("div", { class: "title" }, h("h3", {}, "Rows as of"), output, copies),
    slider, h("div", { class: "ends note" }, first, h("label", {}, "Slider spans ", span), last),
    h("div", { class: "tools" },
      button("‹ Previous change", () => step(changeBefore, "low")), button("Next change ›", () => step(changeAfter, "high")),
      button("Newest", () => goTo(null)),
      h("form", { class: "tools", onsubmit: go }, typed, h("button", { type: "submit" }, "Go"))),
    wrong),
  h("div", { class: "tools" }, h("form", { class: "tools", onsubmit: find }, key, h("button", { type: "submit" }, "Find")), number), choice, answer, pager]);
  key.value = state.key ?? "";

  const refuse = (text) => trouble(wrong, text === null ? null : { status: 400, message: text });

  // ---- what is asked

  const chosen = () => {
    const there = (schema?.columns ?? []).map((one) => one.name);
    const kept = state.columns?.filter((one) => there.includes(one)) ?? [];
    return kept.length ? kept : null;
  };
  const columnsAsked = () => { // the parameter has commas between names
    const names = chosen();
    return names === null || names.some((one) => one.includes(",")) ? null : names.join(",");
  };
  const asked = () => {
    const where = state.cursor ? { cursor: state.cursor } : { ts: state.ts };
    return addressOf({ ...where, key: state.key, limit: PAGE }).slice(1) + (columnsAsked() === null ? "" : `&columns=${encodeURIComponent(columnsAsked())}`);
  };
  function command() {
    const where = state.cursor ? { cursor: state.cursor } : { at: state.ts };
    const { cluster, tenant } = named;
    return tistream(["rows", tableWord(named.database, named.table)],
      { cluster, tenant, ...where, key: state.key, columns: columnsAsked(), limit: String(PAGE) }, root);
  }
  function keep() { // the address shows the same again
    const { ts, key: of, columns, cursor, span: ms } = state;
    history.replaceState(null, "", tableLink(named.cluster, named.tenant, named.database, named.table, "at", addressOf({ ts, key: of, columns, cursor, span: ms })));
    moved(state.ts);
  }

  // ---- reading

  function begin() {
    reading.abort();
    reading = new AbortController();
    node.dataset.reading = "true";
    return AbortSignal.any([signal, reading.signal]);
  }
  const goTo = (ts) => change({ ts });
  function change(what) {
    pages = [];
    return load({ ...what, cursor: null });
  }
  async function load(what) {
    Object.assign(state, what);
    const own = begin();
    shown = null;
    number.textContent = "reading";
    drawTime();
    try {
      schema = await get(`${path}/schema${state.ts === null ? "" : `?ts=${state.ts}`}`, own);
      state.ts = schema.ts;
      keep();
      drawTime();
      const rows = await lines(`${path}/rows?${asked()}`, own);
      shown = { rows, cursor: rows.pop().cursor };
      draw();
    } catch (failed) {
      if (own.aborted) return;
      if (state.ts !== null) keep();
      refused(failed);
    }
    node.dataset.reading = "false";
  }
  function refused(failed) {
    if (failed.status === undefined) throw failed;
    const earliest = failed.more?.earliest_ts;
    if (earliest && bounds && BigInt(earliest) > bounds.low) bounds.low = BigInt(earliest);
    within = null;
    drawTime();
    number.textContent = "";
    fill(choice, []);
    choice.hidden = true;
    fill(pager, []);
    fill(answer, [explained(failed, named, state.ts, goTo)]);
  }
  async function step(search, end) {
    const own = begin();
    number.textContent = "looking for a change";
    try {
      bounds ??= await readable(path, tenantPath, own);
      const at = state.ts === null ? bounds.high : BigInt(state.ts);
      const found = end === "low" ? await search(path, state.key, bounds.low, at, own) : await search(path, state.key, at, bounds.high, own);
      if (found !== null) { await goTo(found); return; }
      if (shown === null) await load({});
      number.textContent = `no ${end === "low" ? "earlier" : "later"} change is kept`;
    } catch (failed) {
      if (own.aborted) return;
      refused(failed);
    }
    node.dataset.reading = "false";
  }

  // ---- drawing

  function tell(ts) {
    fill(output, [atTime(String(ts), "ts")]);
    slider.setAttribute("aria-valuetext", output.textContent);
  }
  function drawTime() {
    if (state.ts !== null && !slider.dataset.moving) tell(state.ts);
    slider.disabled = bounds === null;
    if (bounds === null) return;
    const at = state.ts === null ? bounds.high : BigInt(state.ts);
    if (within === null || state.span === "" || at < within.from || at > within.to) within = spanned(bounds.low, bounds.high, at, state.span);
    if (!slider.dataset.moving) slider.value = String(stepAtTs(within, at));
    for (const [one, ts] of [[first, within.from], [last, within.to]]) {
      one.title = `ts ${ts}`;
      one.textContent = moment(tsToMs(ts));
    }
  }
  function draw() {
    const { rows, cursor } = shown;
    const all = schema.columns.map((one) => one.name);
    const hidden = rows.length ? Object.keys(rows[0].key).filter((one) => !all.includes(one)) : []; // such as _tidb_rowid
    const names = [...hidden, ...(chosen() ?? all)];
    number.textContent = rowsText(rows.length, cursor !== null);
    fill(answer, [rows.length
      ? h("div", { class: "table-frame sheet" }, h("table", { "aria-label": `Rows of ${name}` },
        h("thead", {}, h("tr", {}, ["Row", "Changed", ...names].map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", {}, rows.map((one) => row(named, one, names, state.ts)))))
      : empty("No rows", state.key === null ? "The table has none at this time." : "No row has this key at this time.")]);
    fill(pager, [
      state.cursor === null ? null : button("First page", () => { pages = []; load({ cursor: null }); }),
      pages.length ? button("Previous page", () => load({ cursor: pages.pop() })) : null,
      cursor === null ? null : button("Next page", () => { pages.push(state.cursor); load({ cursor }); })]);
    drawChoice(all);
  }
  function drawChoice(all) {
    const names = chosen() ?? all;
    choice.hidden = false;
    const pick = () => {
      const picked = [...choice.querySelectorAll("input")].filter((one) => one.checked).map((one) => one.value);
      state.columns = picked.length === all.length || !picked.length ? null : picked;
      load({});
    };
    fill(choice, [h("summary", {}, `${names.length} of ${all.length} columns`, h("span", { class: "note" }, `schema version ${schema.schema_version}`)),
      h("ul", { class: "columns" }, all.map((one) => h("li", { key: one },
        h("label", {}, h("input", { type: "checkbox", value: one, onchange: pick }), ` ${one}`))))]);
    for (const box of choice.querySelectorAll("input")) box.checked = names.includes(box.value);
  }

  const linked = state.ts === null ? { now: true } : typedTime(state.ts, Date.now());
  refuse(linked.wrong ?? null);
  state.ts = linked.ts ?? null;
  const cursor = linked.ts ? state.cursor : null;
  load({ cursor });
  poll(EVERY_MS, signal, async () => {
    if (bounds === null) bounds = await readable(path, tenantPath, signal);
    else bounds.high = BigInt(await newest(path, tenantPath, signal)); // the other end moves with retention: a refusal says so
    drawTime();
  }, () => {}); // the list of tables beside says when the API does not answer
}
