// Processes and tasks: who is there, who decides, who holds what.

import { get, poll } from "./api.js";
import { fill, h } from "./dom.js";
import { count, shortKey, size } from "./format.js";
import { empty, pill, table, tenantLink, trouble } from "./parts.js";

const EVERY_MS = 3_000;
const TASKS_SHOWN = 200;
const ROLES = ["api", "dispatcher", "sorter", "schema", "changefeed", "agent", "meta"];
const kept = { text: "" };

const node = (one) => h("li", { key: one.node_id, class: `node node-${one.state}` },
  h("div", { class: "node-name" }, h("b", {}, one.node_id), pill(one.state)),
  h("p", {}, one.url),
  one.role === "sorter" ? h("p", {}, `${count(one.tasks)} tasks`) : null,
  one.role === "dispatcher" ? h("p", {}, `${count(one.stores)} stores`) : null);

const task = (one) => h("tr", { key: one.task_id },
  h("td", { class: "number" }, one.task_id),
  h("td", {}, h("a", { href: tenantLink(one.cluster_id, one.tenant_id, "/placement") }, `${one.cluster_id}/${one.tenant_id}`)),
  h("td", { class: "key", title: `from ${one.start_key || "the first key"} to ${one.end_key || "the last key"}` },
    `${shortKey(one.start_key, "first key")} … ${shortKey(one.end_key, "last key")}`),
  h("td", {}, one.sorter_node ?? "nobody"),
  h("td", {}, pill(one.phase)),
  h("td", {}, one.next_node ?? ""),
  h("td", { class: "number" }, one.load === null ? "" : `${size(one.load)}/s`));

const territory = (one) => h("tr", { key: `${one.cluster_id}/${one.tenant_id}/${one.territory}` },
  h("td", {}, h("a", { href: tenantLink(one.cluster_id, one.tenant_id, "/placement") }, `${one.cluster_id}/${one.tenant_id}`)),
  h("td", { class: "number" }, one.territory),
  h("td", {}, one.node_id ?? "no agent"),
  h("td", {}, pill(one.said?.state ?? "unknown")),
  h("td", { class: "number" }, one.said && one.said.resolved_ts !== "0" ? `${(one.said.lag_ms / 1000).toFixed(1)} s` : ""),
  h("td", {}, one.said?.reason ?? "no agent has reported it yet"));

const says = (one) => `${one.task_id} ${one.cluster_id}/${one.tenant_id} ${one.sorter_node ?? ""} ${one.phase}`.toLowerCase();

export function showPlatform(main, signal, told) {
  document.title = "Platform · TiStream";
  let tasks = [];
  const problem = h("div");
  const owner = h("p", { class: "note" });
  const nodes = h("div", { class: "roles" });
  const list = h("div");
  const agents = h("div");
  const search = h("input", {
    type: "search", placeholder: "Find a task by tenant, sorter or phase", "aria-label": "Find a task", "data-search": true,
    value: kept.text, oninput: () => { kept.text = search.value; draw(); },
  });
  const found = h("p", { class: "note", role: "status" });
  fill(main, [h("div", { class: "page" }, h("div", { class: "title" }, h("h1", {}, "Platform"), owner), problem, nodes, agents,
    h("div", { class: "title" }, h("h2", {}, "Tasks"), found),
    h("div", { class: "tools" }, search, h("kbd", { "aria-hidden": true }, "/")), list)]);

  function draw() {
    const text = kept.text.toLowerCase();
    const rows = tasks.filter((one) => says(one).includes(text));
    found.textContent = rows.length > TASKS_SHOWN
      ? `the first ${TASKS_SHOWN} of ${count(rows.length)}` : `${count(rows.length)} of ${count(tasks.length)}`;
    fill(list, [rows.length
      ? table("Tasks", [["Task", "number"], ["Tenant"], ["Keys"], ["Sorter"], ["Phase"], ["Moves to"], ["Load", "number"]],
        rows.slice(0, TASKS_SHOWN).map(task))
      : empty("No tasks", tasks.length ? "None is like that." : "A tenant has tasks once its snapshot was read.")]);
  }

  poll(EVERY_MS, signal, async () => {
    const [decides, all, held, given] = await Promise.all(
      ["owner", "nodes", "tasks", "territories"].map((what) => get(`v1/${what}`, signal)));
    owner.textContent = `${decides.node_id} decides, election ${decides.owner_rev}`;
    fill(nodes, ROLES.map((role) => {
      const own = all.nodes.filter((one) => one.role === role);
      return own.length ? h("section", { key: role, "aria-label": role }, h("h2", {}, role), h("ul", {}, own.map(node))) : null;
    }));
    fill(agents, given.territories.length ? [h("div", { class: "title" }, h("h2", {}, "Territories of agents")),
      table("Territories", [["Tenant"], ["Territory", "number"], ["Agent"], ["State"], ["Lag", "number"], ["Waits for"]],
        given.territories.map(territory))] : []);
    tasks = held.tasks;
    draw();
  }, (failed) => { trouble(problem, failed); told(failed); });
}
