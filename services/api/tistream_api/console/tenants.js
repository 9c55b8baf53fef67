// Every tenant: found by name, filtered by state, worst first. Only the rows in sight are elements.

import { get, poll } from "./api.js";
import { fill, h } from "./dom.js";
import { count, duration } from "./format.js";
import { STAGE_NAMES, STATES, empty, pill, tenantLink, time, trouble } from "./parts.js";

const ROW_PX = 44;
const BEYOND = 6; // rows kept above and below what is in sight
const EVERY_MS = 3_000;
const kept = { text: "", states: new Set(), by: "state" }; // as the user left it

const ORDER = {
  state: (one) => [STATES.indexOf(one.state), -(one.lag_seconds ?? 0)],
  name: () => [0, 0],
  lag: (one) => [-(one.lag_seconds ?? Number.MAX_SAFE_INTEGER), 0],
};
const nameOf = (one) => `${one.cluster_id}/${one.tenant_id}`;

function chosen(tenants) {
  const text = kept.text.toLowerCase();
  const rank = ORDER[kept.by];
  return tenants
    .filter((one) => (!text || nameOf(one).toLowerCase().includes(text)) && (!kept.states.size || kept.states.has(one.state)))
    .map((one) => [rank(one), nameOf(one), one])
    .sort(([[a, b], name], [[c, d], other]) => a - c || b - d || name.localeCompare(other, "en", { numeric: true }))
    .map(([, , one]) => one);
}

function why(one) {
  if (one.waits) return one.waits;
  if (!one.held_by) return "";
  return h("span", {}, h("b", {}, STAGE_NAMES[one.held_by.stage] ?? one.held_by.stage), ` ${one.held_by.reason}`);
}

const row = (one, place) => h("tr", { key: nameOf(one), "aria-rowindex": place + 2 },
  h("td", { class: "name" },
    h("a", { href: tenantLink(one.cluster_id, one.tenant_id) }, h("span", { class: "of" }, `${one.cluster_id}/`), one.tenant_id)),
  h("td", {}, pill(one.state)),
  h("td", { class: "number" }, duration(one.lag_seconds)),
  h("td", { class: "wide-only" }, one.resolved_ts ? time(one.resolved_ts) : "–"),
  h("td", { class: "why", title: one.waits ?? one.held_by?.reason }, why(one)),
  h("td", { class: "number wide-only" }, one.tasks),
  h("td", { class: "number wide-only" }, one.stores));

const partLink = (one) => `${tenantLink(one.cluster_id, one.tenant_id)}/tables/${encodeURIComponent(one.database)}${
  one.table === null ? "" : `/${encodeURIComponent(one.table)}`}`;

export function showTenants(main, signal, told) {
  let tenants = [];
  let parts = [];
  document.title = "Tenants · TiStream";
  const problem = h("div");
  const filters = h("div", { class: "filters", role: "group", "aria-label": "Show only" });
  const body = h("tbody");
  const head = h("tr");
  const sheet = h("table", { class: "tenants", "aria-label": "Tenants" }, h("thead", {}, head), body);
  const found = h("p", { class: "note", role: "status" });
  const search = h("input", {
    type: "search", placeholder: "Find a tenant", "aria-label": "Find a tenant", "data-search": true, value: kept.text,
    oninput: () => { kept.text = search.value; draw(); },
    onkeydown: (event) => {
      const first = body.querySelector("a");
      if (event.key === "Enter" && first) location.hash = first.getAttribute("href");
    },
  });
  const list = h("div", {});
  fill(main, [h("div", { class: "page" },
    h("div", { class: "title" }, h("h1", {}, "Tenants"), found),
    problem,
    h("div", { class: "tools" }, search, h("kbd", { "aria-hidden": true }, "/"), filters),
    list)]);

  function headCell(title, by, kind) {
    if (!by) return h("th", { scope: "col", class: kind }, title);
    const own = kept.by === by;
    return h("th", { scope: "col", class: kind, "aria-sort": own ? "ascending" : "none" },
      h("button", { type: "button", class: "sort", onclick: () => { kept.by = by; draw(); } }, title));
  }

  function draw() {
    const rows = chosen(tenants);
    fill(head, [headCell("Tenant", "name"), headCell("State", "state"), headCell("Lag", "lag", "number"),
      headCell("Served up to", null, "wide-only"), headCell("Held by", null, "why"), headCell("Tasks", null, "number wide-only"),
      headCell("Stores", null, "number wide-only")]);
    fill(filters, STATES.map((state) => {
      const number = tenants.filter((one) => one.state === state).length;
      return h("button", {
        type: "button", class: `filter pill-${state}`, "aria-pressed": String(kept.states.has(state)),
        onclick: () => { if (!kept.states.delete(state)) kept.states.add(state); draw(); },
      }, state, h("b", {}, count(number)));
    }));
    const all = rows.length === tenants.length;
    found.textContent = all ? `${count(tenants.length)} tenants` : `${count(rows.length)} of ${count(tenants.length)} tenants`;
    if (!tenants.length && parts.length) {
      found.textContent = "this token sees parts of tenants";
      fill(list, [h("ul", { class: "parts", "aria-label": "What this token may read" }, parts.map((one) =>
        h("li", {}, h("a", { href: partLink(one) }, `${one.cluster_id}/${one.tenant_id}: ${one.table === null ? `every table of ${one.database}` : `${one.database}.${one.table}`}`))))]);
      return;
    }
    if (!tenants.length) {
      fill(list, [empty("No tenants", "None is registered yet (tistream tenant create --cluster 7 --tenant acme), or this token sees none.")]);
      return;
    }
    fill(list, [rows.length ? sheet : empty("None of them", "No tenant is of this name and state.")]);
    sheet.setAttribute("aria-rowcount", String(rows.length + 1));
    const above = Math.max(0, -sheet.getBoundingClientRect().top);
    const first = Math.max(0, Math.min(Math.floor(above / ROW_PX) - BEYOND, rows.length));
    const last = Math.min(rows.length, first + Math.ceil(window.innerHeight / ROW_PX) + 2 * BEYOND);
    const columns = Math.max(1, [...head.children].filter((one) => one.checkVisibility()).length);
    const space = (number, key) => h("tr", { key, "aria-hidden": true, class: "space" },
      h("td", { colspan: columns, style: { height: `${number * ROW_PX}px` } }));
    fill(body, [space(first, "above"), ...rows.slice(first, last).map((one, at) => row(one, first + at)),
      space(rows.length - last, "below")]);
  }

  let asked = false;
  const moved = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
  window.addEventListener("scroll", moved, { signal, passive: true });
  window.addEventListener("resize", moved, { signal });
  poll(EVERY_MS, signal, async () => {
    ({ tenants, parts } = await get("v1/tenants", signal));
    if (!tenants.length && parts.length === 1) { location.replace(partLink(parts[0])); return; }
    draw();
  }, (failed) => { trouble(problem, failed); told(failed); });
}
