// An answer of the API that is none: what it means in words, and the ways on.

import { h } from "./dom.js";
import { tenantLink } from "./parts.js";
import { inWords } from "./points.js";

// `named` is a table, or a tenant alone; `go(ts)` is called with the ts of the way that is chosen, null for the newest.
export function explained(problem, { cluster, tenant, database, table }, ts, go) {
  const { title, text, ways } = inWords(problem, table === undefined ? null : `${database}.${table}`, ts);
  const buttons = ways.map(([label, to]) => h("button", { type: "button", onclick: () => go(to) }, label));
  const home = problem.status === 404 ? [["/tables", "The tables there are"], ["/ddl", "DDL history"]] : [];
  return h("div", { class: "empty lost", role: "alert" }, h("h2", {}, title), h("p", {}, text),
    h("p", { class: "ways" }, buttons, home.map(([part, label]) => h("a", { href: tenantLink(cluster, tenant, part) }, label))));
}
