// Small pieces that several views use.

import { fill, h } from "./dom.js";
import { moment, tsToMs } from "./format.js";

export const STAGES = ["push", "dispatch", "sort", "schema", "serve"];
export const STAGE_NAMES = { push: "Push", dispatch: "Dispatch", sort: "Sort", schema: "Schema", serve: "Serve" };
export const STATES = ["damaged", "late", "waiting", "live"];

export const pill = (text, kind = text) => h("span", { class: `pill pill-${kind}` }, text);

export const time = (ts) => h("time", { title: `ts ${ts}` }, moment(tsToMs(ts)));

export const empty = (title, text) => h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text));

export const tenantLink = (cluster, tenant, part = "") =>
  `#/t/${encodeURIComponent(cluster)}/${encodeURIComponent(tenant)}${part}`;

// A table whose rows are elements; `columns` are [title, class].
export function table(label, columns, rows) {
  return h("div", { class: "table-frame" },
    h("table", { "aria-label": label },
      h("thead", {}, h("tr", {}, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", {}, rows)));
}

// What went wrong with a view, above it; what was shown stays.
export function trouble(node, problem) {
  if (problem === null) { fill(node, []); return; }
  const text = problem.status === 403 ? `This token may not see this: ${problem.message}` : problem.message;
  fill(node, [h("p", { class: "trouble", role: "alert" }, text)]);
}
