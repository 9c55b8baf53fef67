// The OpenAPI document of this server as a page: nothing comes from anywhere else.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { table } from "./parts.js";

const main = document.getElementById("reference");

function kind(schema = {}) {
  if (schema.enum) return schema.enum.join(" | ");
  const type = [schema.type ?? "any"].flat().join(" or ");
  const low = schema.minimum === undefined ? "" : ` from ${schema.minimum}`;
  const high = schema.maximum === undefined ? "" : ` to ${schema.maximum}`;
  const usual = schema.default === undefined ? "" : `, default ${schema.default}`;
  return `${type}${low}${high}${usual}`;
}

function parameters(rows) {
  return table("Parameters", [["Name"], ["In"], ["Type"], ["What it is"]], rows.map(([name, place, schema, text, wanted]) =>
    h("tr", {}, h("td", { class: "key" }, name), h("td", {}, wanted ? `${place}, required` : place),
      h("td", {}, kind(schema)), h("td", {}, text ?? ""))));
}

function body(call) {
  const schema = call.requestBody?.content?.["application/json"]?.schema ?? {};
  const members = Object.entries(schema.properties ?? {});
  return members.map(([name, one]) => [name, "body", one, one.description, (schema.required ?? []).includes(name)]);
}

function operation(path, method, call) {
  const access = call["x-tistream-access"];
  const rows = [...(call.parameters ?? []).map((one) => [one.name, one.in, one.schema, one.description, one.required]), ...body(call)];
  const answers = Object.entries(call.responses ?? {});
  return h("details", {},
    h("summary", {}, h("b", {}, method.toUpperCase()), " ", h("code", {}, path), h("span", { class: "note" }, call.operationId ?? "")),
    h("p", {}, call.description ?? call.summary ?? ""),
    access ? h("p", { class: "note" }, `A token needs ${access.action.replaceAll("|", " or ")} of the ${access.scope}.`) : null,
    rows.length ? parameters(rows) : null,
    table("Answers", [["Status"], ["Media type"], ["What it is"]], answers.map(([status, one]) =>
      h("tr", {}, h("td", { class: "number" }, status), h("td", {}, Object.keys(one.content ?? {}).join(", ")), h("td", {}, one.description ?? "")))));
}

async function show() {
  const document_ = await get("openapi.json");
  const groups = new Map();
  for (const [path, calls] of Object.entries(document_.paths)) {
    for (const [method, call] of Object.entries(calls)) {
      const tag = call.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), operation(path, method, call)]);
    }
  }
  fill(main, [h("h1", {}, `${document_.info.title} ${document_.info.version}`),
    h("p", { class: "note" }, "Every call of this server, out of its OpenAPI document."),
    [...groups].map(([tag, found]) => [h("h2", {}, tag), found])]);
}

show().catch((failed) => fill(main, [h("p", { class: "trouble", role: "alert" }, failed.message)]));
