// One tenant: what holds its watermark, its lag by stage, its tables and their events, its DDL, who has what of it.

import { get, poll, tenantPath } from "./api.js";
import { lagChart, stacked } from "./chart.js";
import { showDdl } from "./ddl.js";
import { fill, h } from "./dom.js";
import { showFeeds } from "./feeds.js";
import { duration, shortKey, tsToMs } from "./format.js";
import { STAGES, STAGE_NAMES, copyButton, empty, lost, pill, table, tenantLink, time, trouble } from "./parts.js";
import { showTables } from "./tables.js";
import { showTxn } from "./txn.js";

const EVERY_MS = 2_000;
const SLICES_SHOWN = 20;
const SECTIONS = { overview: "Overview", tables: "Tables", ddl: "DDL history", feeds: "Changefeeds", placement: "Placement" };
const kept = { minutes: 5 };

export function showTenant(main, signal, told, cluster, tenant, section, rest, query) {
  document.title = `${cluster}/${tenant} · TiStream`;
  const path = tenantPath(cluster, tenant);
  const leave = new AbortController();
  signal = AbortSignal.any([signal, leave.signal]);
  const problem = h("div");
  const facts = h("p", { class: "note" });
  const content = h("div", { class: "section" });
  const heard = (failed) => {
    told(failed);
    if (failed?.status !== 404) { trouble(problem, failed); return; }
    leave.abort();
    fill(main, [h("div", { class: "page" }, h("h1", {}, `${cluster}/${tenant}`),
      lost("No such tenant", "No tenant is registered under this name.", "#/tenants", "All tenants"))]);
  };
  fill(main, [h("div", { class: "page" },
    h("nav", { class: "crumbs", "aria-label": "Where" }, h("a", { href: "#/tenants" }, "Tenants"), ` / ${cluster}`),
    h("div", { class: "title" }, h("h1", {}, tenant), facts),
    h("nav", { class: "tabs", "aria-label": "Sections", id: "sections" }, Object.entries(SECTIONS).map(([name, title]) =>
      h("a", { href: tenantLink(cluster, tenant, `/${name}`), "aria-current": section === name ? "page" : null }, title))),
    problem, content)]);
  let served = "0";
  const copy = copyButton("Copy ts", "Copy the ts that is served up to", () => served);
  const tell = async () => {
    let one;
    try {
      one = await get(`${path}/status`, signal);
    } catch (failed) { // a token for a part of the tenant: the rest of the page may do without
      if (failed.status !== 403 || !["tables", "txn"].includes(section)) throw failed;
      fill(facts, ["this token sees a part of the tenant"]);
      return null;
    }
    const stage = one.held_by?.stage;
    if (one.lag_seconds === null) { fill(facts, [pill("waiting"), h("span", {}, "its snapshot has not been taken yet")]); return one; }
    const late = one.lag_seconds > 5;
    const state = stage === "damaged" ? "damaged" : late ? "late" : "live";
    served = one.resolved_ts;
    fill(facts, [pill(state), h("span", {}, `${duration(one.lag_seconds)} behind`), h("span", {}, "served up to ", time(one.resolved_ts)), copy]);
    return one;
  };
  const context = { cluster, tenant, path, content, signal, heard, tell, rest, query };
  const views = { overview: showOverview, tables: showTables, ddl: showDdl, feeds: showFeeds, placement: showPlacement, txn: showTxn };
  if (views[section]) views[section](context);
  else fill(content, [lost("Nothing here", "A tenant has no such section.", tenantLink(cluster, tenant), `Overview of ${cluster}/${tenant}`)]);
}

// ---- overview

function holdCard(one) {
  const hold = one.held_by;
  if (!hold) {
    return h("section", { class: "hold hold-none", "aria-label": "What holds the watermark" },
      h("h2", {}, "Nothing holds the watermark"), h("p", {}, "Every stage keeps up, and nothing is damaged."));
  }
  const details = [["Store", hold.store_id], ["Region", hold.region_id], ["Object", hold.object]].filter(([, value]) => value);
  return h("section", { class: `hold hold-${hold.stage === "damaged" ? "damaged" : "late"}`, "aria-label": "What holds the watermark" },
    h("h2", {}, "Held at ", h("b", {}, STAGE_NAMES[hold.stage] ?? hold.stage)),
    h("p", {}, hold.reason),
    details.length ? h("dl", {}, details.map(([name, value]) => [h("dt", {}, name), h("dd", { class: "key" }, value)])) : null);
}

function pipeline(stages, hold) {
  const last = stages.push.length - 1;
  const lags = last < 0 ? STAGES.map(() => null) : stacked(stages, last);
  return h("ol", { class: "pipeline", "aria-label": "Stages, with what each adds to the lag" }, STAGES.map((stage, place) => {
    const below = lags.slice(0, place).findLast((lag) => lag !== null) ?? 0;
    const own = lags[place] === null ? null : Math.max(0, lags[place] - below);
    const held = hold?.stage === stage;
    return h("li", { class: held ? "held" : null },
      h("span", { class: "stage-name" }, h("i", { class: `swatch stage-${stage}` }), STAGE_NAMES[stage]),
      h("b", {}, own === null ? "–" : `+${duration(own)}`),
      h("span", { class: "note" }, held ? "holds the watermark" : lags[place] === null ? "not known" : `${duration(lags[place])} behind`));
  }));
}

function showOverview({ path, content, signal, heard, tell, cluster, tenant }) {
  const card = h("div");
  const line = h("div");
  const chart = lagChart(`Lag of ${cluster}/${tenant} by stage over the last minutes`);
  const spans = h("div", { class: "filters", role: "group", "aria-label": "Time span" });
  const slices = h("div");
  let tick = new AbortController();
  const drawSpans = () => fill(spans, [5, 15, 60].map((minutes) => h("button", {
    type: "button", class: "filter", "aria-pressed": String(kept.minutes === minutes),
    onclick: () => { kept.minutes = minutes; drawSpans(); start(); },
  }, `${minutes} min`)));
  fill(content, [card, line,
    h("section", { class: "panel", "aria-label": "Lag over time" },
      h("div", { class: "title" }, h("h2", {}, "Lag by stage"), spans), chart.node),
    h("section", { class: "panel", "aria-label": "Key ranges" },
      h("div", { class: "title" }, h("h2", {}, "Key ranges that are furthest behind"),
        h("button", { type: "button", class: "quiet", onclick: () => showSlices(path, slices, signal, heard) }, "Look")),
      h("p", { class: "note" }, "Of each region's log: up to where it is covered, and what it waits for."), slices)]);
  drawSpans();
  function start() {
    tick.abort();
    tick = new AbortController();
    const own = AbortSignal.any([signal, tick.signal]);
    poll(EVERY_MS, own, async () => {
      const minutes = kept.minutes;
      const [one, lag] = await Promise.all([tell(), get(`${path}/lag?minutes=${minutes}`, own)]);
      fill(card, [holdCard(one)]);
      fill(line, [pipeline(lag.stages, one.held_by)]);
      chart.update(lag, minutes, Date.now());
    }, heard);
  }
  start();
}

async function showSlices(path, slices, signal, heard) {
  try {
    const found = (await get(`${path}/coverage`, signal)).slices;
    found.sort((one, other) => Number(BigInt(one.resolved_ts) - BigInt(other.resolved_ts)));
    fill(slices, [table("Key ranges", [["Keys"], ["Region", "number"], ["Resolved"], ["Waits for"]],
      found.slice(0, SLICES_SHOWN).map((one) => h("tr", {},
        h("td", { class: "key", title: `from ${one.start_key} to ${one.end_key}` },
          `${shortKey(one.start_key, "first key")} … ${shortKey(one.end_key, "last key")}`),
        h("td", { class: "number" }, one.region_id ?? ""),
        h("td", {}, time(one.resolved_ts)),
        h("td", { class: "why", title: waitsOf(one) }, waitsOf(one)))))]);
    heard(null);
  } catch (failed) {
    if (failed.name !== "AbortError") heard(failed);
  }
}

const waitsOf = (slice) => slice.waits_for ?? "";

// ---- placement

function showPlacement({ path, content, signal, heard, tell }) {
  const tasks = h("div");
  const stores = h("div");
  fill(content, [h("h2", {}, "Tasks"), tasks, h("h2", {}, "Stores"), stores]);
  poll(EVERY_MS, signal, async () => {
    const [, placed] = await Promise.all([tell(), get(`${path}/placement`, signal)]);
    const behind = (ts) => duration(ts && ts !== "0" ? Math.max(0, Date.now() - tsToMs(ts)) / 1000 : null);
    fill(tasks, [placed.tasks.length
      ? table("Tasks", [["Task", "number"], ["Keys"], ["Sorter"], ["Moves to"], ["Epoch", "number"], ["Behind", "number"], ["Waits for"]],
        placed.tasks.map((one) => h("tr", { key: one.task_id },
          h("td", { class: "number" }, one.task_id),
          h("td", { class: "key", title: `from ${one.start_key} to ${one.end_key}` },
            `${shortKey(one.start_key, "first key")} … ${shortKey(one.end_key, "last key")}`),
          h("td", {}, one.sorter ?? "nobody"),
          h("td", {}, one.next_sorter ?? ""),
          h("td", { class: "number" }, one.task_epoch),
          h("td", { class: "number" }, behind(one.resolved_ts)),
          h("td", { class: "why", title: one.waits }, one.waits ?? ""))))
      : empty("No tasks yet", "A tenant has tasks once its snapshot was read.")]);
    fill(stores, [placed.stores.length
      ? table("Stores", [["Store", "number"], ["Dispatcher"], ["Newest file"], ["Behind", "number"], ["Waits for"]],
        placed.stores.map((one) => h("tr", { key: one.store_id },
          h("td", { class: "number" }, one.store_id),
          h("td", {}, one.dispatcher ?? "nobody"),
          h("td", {}, one.last_file_ts && one.last_file_ts !== "0" ? time(one.last_file_ts) : "none"),
          h("td", { class: "number" }, behind(one.last_file_ts)),
          h("td", { class: "why", title: one.waits }, one.waits ?? ""))))
      : empty("No stores yet", "A store is found by the first file that it pushes.")]);
  }, heard);
}

