// Small pieces that several views use.

import { fill, h } from "./dom.js";
import { moment, tsToMs } from "./format.js";

export const STAGES = ["push", "dispatch", "sort", "schema", "serve"];
export const STAGE_NAMES = { push: "Push", dispatch: "Dispatch", sort: "Sort", schema: "Schema", serve: "Serve" };
export const STATES = ["damaged", "late", "waiting", "live"];

export const pill = (text, kind = text) => h("span", { class: `pill pill-${kind}` }, text);

export const time = (ts) => h("time", { title: `ts ${ts}` }, moment(tsToMs(ts)));

export const empty = (title, text) => h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text));

// The one message where an address names nothing, with a way back.
export const lost = (title, text, href, way) => h("div", { class: "empty lost", role: "alert" },
  h("h2", {}, title), h("p", {}, text), h("p", {}, h("a", { href }, way)));

async function copied(text) {
  if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
  const area = h("textarea", { class: "aside", "aria-hidden": true }); // a page that is not served by TLS has no clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// A button that copies what `text()` is when it is pressed.
export function copyButton(title, label, text) {
  const press = async (event) => {
    const button = event.currentTarget; // the one that is shown: a fresh one may only have lent it its handler
    try { await copied(text()); button.textContent = "Copied"; } catch { button.textContent = "Not copied"; }
    setTimeout(() => { button.textContent = title; }, 1_500);
  };
  return h("button", { type: "button", class: "quiet copy", "aria-label": label, "data-own": true, onclick: press }, title);
}

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
