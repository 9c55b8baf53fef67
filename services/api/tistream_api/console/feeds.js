// The changefeeds of a tenant: how each is and what holds it, and the calls that pause, resume and create one.

import { get, poll, post } from "./api.js";
import { fill, h } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { empty, pill, table, trouble } from "./parts.js";

const EVERY_MS = 2_000;
const TURNS = { running: "pause", retrying: "pause", paused: "resume", failed: "resume" };
const TITLES = { pause: "Pause", resume: "Resume" };
const WHAT_FOLLOWS = {
  pause: "Its changes stay in the pool until it is resumed, within the tenant's retention.",
  resume: "It goes on behind what its sink has. A feed that has failed fails again if the reason is still there.",
};

// Row events a second between two looks at a feed; null at the first one.
function rate(before, one, nowMs) {
  if (!before || before.epoch !== one.epoch || nowMs <= before.atMs) return null;
  return Math.max(0, (one.rows - before.rows) * 1000 / (nowMs - before.atMs));
}

const perSecond = (rows) => (rows === null ? "–" : `${rows < 10 ? rows.toFixed(rows ? 1 : 0) : count(Math.round(rows))}/s`);

const holdsOf = (one) => one.held_by.map((hold) => `${hold.stage}: ${hold.object}: ${hold.reason}`).join("; ");

function why(one) {
  const text = holdsOf(one) || one.error || "";
  const since = one.since_ms && text ? `since ${clock(Number(one.since_ms))}: ` : "";
  return h("td", { class: "why", title: text }, since, text);
}

// A question with two answers. `ask(title, children, label, act)`: `act` runs when the person agrees; what it throws is
// shown, and the question stays.
function question() {
  const node = h("dialog", { "aria-labelledby": "question-title" });
  const ask = (title, children, label, act) => {
    const problem = h("div");
    const agree = h("button", { type: "submit", class: "main" }, label);
    const form = h("form", {
      method: "dialog",
      onsubmit: async (event) => {
        event.preventDefault();
        agree.disabled = true;
        try {
          if (await act(agree) !== false) node.close();
          else trouble(problem, null);
        } catch (failed) {
          if (failed.name !== "AbortError") trouble(problem, failed);
        }
        agree.disabled = false;
      },
    }, h("h2", { id: "question-title" }, title), children, problem,
    h("p", { class: "tools" }, agree, h("button", { type: "button", class: "quiet", onclick: () => node.close() }, "Cancel")));
    node.replaceChildren(form);
    node.showModal();
  };
  return { node, ask };
}

// The form of a new feed. Its first answer is what the feed would do; the second one creates it.
function creation(path, signal) {
  const field = (id, label, more) => [h("label", { for: id }, label),
    h("input", { id, autocomplete: "off", spellcheck: "false", ...more })];
  const plan = h("div", { role: "status" });
  let checked = null;
  const children = [
    field("feed-id", "Id", { required: true, pattern: "[A-Za-z0-9][A-Za-z0-9\\-]{0,127}" }),
    field("feed-sink", "Sink URI", { required: true, placeholder: "kafka://broker:9092/topic?protocol=canal-json" }),
    field("feed-start", "Start ts, exclusive (empty: now)", { inputmode: "numeric", pattern: "[0-9]{1,19}" }),
    h("label", { for: "feed-config" }, "Configuration (TOML, may be empty)"),
    h("textarea", { id: "feed-config", rows: "5", maxlength: "65536", autocomplete: "off", spellcheck: "false", placeholder: "filter.rules = [\"shop.*\"]" }),
    plan];
  const value = (id) => document.getElementById(id).value.trim();
  async function act(agree) {
    const wanted = { changefeed_id: value("feed-id"), sink_uri: value("feed-sink") };
    if (value("feed-start")) wanted.start_ts = value("feed-start");
    if (value("feed-config")) wanted.config_toml = value("feed-config");
    const text = JSON.stringify(wanted);
    if (checked === text) { await post(`${path}/changefeeds`, wanted, signal); return true; }
    // What an earlier check has found is not true of other values
    checked = null;
    fill(plan, []);
    agree.textContent = "Check";
    const found = await post(`${path}/changefeeds?dry_run=true`, wanted, signal);
    checked = text;
    fill(plan, [
      h("p", {}, `${count(found.table_count)} ${found.table_count === 1 ? "table" : "tables"} now`),
      h("ul", {}, Object.entries(found.topics).map(([topic, partitions]) => h("li", {}, `topic ${topic}: ${partitions} partitions`))),
      found.warnings.length ? h("ul", { class: "note" }, found.warnings.map((warning) => h("li", {}, warning))) : null,
      found.left_out.length ? h("ul", { class: "note" }, found.left_out.map((one) => h("li", {}, `left out: ${one.database}.${one.table}: ${one.reason}`))) : null]);
    agree.textContent = "Create";
    return false;
  }
  return { children, act };
}

// The history of a feed: what happened to it, when and why, newest first.
function history(path, signal) {
  const node = h("dialog", { "aria-labelledby": "history-title", class: "wide" });
  const row = (event) => h("tr", { key: event.seq },
    h("td", {}, clock(Number(event.at_ms))),
    h("td", {}, event.what),
    h("td", { class: "why", title: event.reason || "" }, event.reason || ""),
    h("td", {}, event.by || ""));
  return {
    node,
    async show(id) {
      const { events } = await get(`${path}/changefeeds/${encodeURIComponent(id)}/events`, signal);
      node.replaceChildren(h("h2", { id: "history-title" }, `History of ${id}`),
        table("History", [["Time"], ["Event"], ["Reason"], ["By"]], events.map(row)),
        h("p", { class: "tools" }, h("button", { type: "button", class: "quiet", onclick: () => node.close() }, "Close")));
      node.showModal();
    },
  };
}

export function showFeeds({ path, content, signal, heard, tell, cluster, tenant }) {
  const seen = new Map(); // by id: the rows at the last look, and when that was
  const list = h("div");
  const problem = h("div");
  const { node: dialog, ask } = question();
  const past = history(path, signal);

  function turn(one) {
    const call = TURNS[one.state];
    if (!call) return null;
    const act = async () => { await post(`${path}/changefeeds/${encodeURIComponent(one.changefeed_id)}/${call}`, null, signal); await look(); };
    return h("button", {
      type: "button", class: "quiet", "aria-label": `${TITLES[call]} ${one.changefeed_id}`,
      onclick: () => ask(`${TITLES[call]} ${one.changefeed_id}?`, h("p", {}, WHAT_FOLLOWS[call]), TITLES[call], act),
    }, TITLES[call]);
  }

  function create() {
    const { children, act } = creation(path, signal);
    ask(`New changefeed of ${cluster}/${tenant}`, children, "Check", async (agree) => {
      const made = await act(agree);
      if (made) await look();
      return made;
    });
  }

  async function look() {
    const feeds = (await get(`${path}/changefeeds`, signal)).changefeeds;
    const nowMs = performance.now();
    fill(list, [feeds.length
      ? table("Changefeeds", [["Id"], ["State"], ["Behind the pool", "number"], ["Rows", "number"], ["Rows in the sink", "number"], ["Sink"], ["Held by"], [""]],
        feeds.map((one) => h("tr", { key: one.changefeed_id },
          h("td", {}, one.changefeed_id),
          h("td", {}, pill(one.state)),
          h("td", { class: "number" }, duration(one.lag_seconds)),
          h("td", { class: "number" }, perSecond(rate(seen.get(one.changefeed_id), one, nowMs))),
          h("td", { class: "number" }, count(one.rows)),
          h("td", { class: "key", title: one.sink_uri }, one.sink_uri.split("?")[0]),
          why(one),
          h("td", { class: "tools" }, h("button", {
            type: "button", class: "quiet", "aria-label": `History of ${one.changefeed_id}`,
            onclick: () => past.show(one.changefeed_id).catch((failed) => trouble(problem, failed)),
          }, "History"), turn(one)))))
      : empty("No changefeeds", "A changefeed writes this tenant's changes into another system.")]);
    for (const one of feeds) seen.set(one.changefeed_id, { rows: one.rows, epoch: one.epoch, atMs: nowMs });
  }

  fill(content, [h("div", { class: "title" }, h("h2", {}, "Changefeeds"),
    h("button", { type: "button", class: "quiet", onclick: create }, "New changefeed")), problem, list, dialog, past.node]);
  poll(EVERY_MS, signal, async () => { await Promise.all([tell(), look()]); }, heard);
}
