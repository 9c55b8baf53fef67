// Which view is shown: the address after # says so. One view lives at a time; leaving it ends all that it asked for.

import { token, whenUnauthorized } from "./api.js";
import { fill } from "./dom.js";
import { lost } from "./parts.js";
import { showPlatform } from "./platform.js";
import { showTenant } from "./tenant.js";
import { showTenants } from "./tenants.js";

const main = document.getElementById("main");
const ask = document.getElementById("ask");
const input = document.getElementById("token");
const forget = document.getElementById("forget");
const state = document.getElementById("link-state");
let leaving = new AbortController();
let shown = null;

// How the last question to the API ended, told in the bar.
function told(problem) {
  state.textContent = problem === null ? "live" : problem.status === 0 ? "no answer" : "live";
  state.dataset.state = problem?.status === 0 ? "away" : "live";
}

function show() {
  const [address, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = address.split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  const [view, cluster, tenant, section = "overview", ...rest] = parts;
  const name = view === "t" ? `${cluster}/${tenant}` : view;
  for (const link of document.querySelectorAll("#nav a")) {
    const own = link.hash === `#/${view}` || (link.hash === "#/tenants" && (view === "t" || view === ""));
    if (own) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leaving.abort();
  leaving = new AbortController();
  const before = shown;
  shown = name;
  fill(main, []);
  if (view === "t" && cluster && tenant) showTenant(main, leaving.signal, told, cluster, tenant, section, rest, query);
  else if (view === "platform") showPlatform(main, leaving.signal, told);
  else if (view === "" || view === "tenants") showTenants(main, leaving.signal, told);
  else fill(main, [lost("Nothing here", "No page of the console has this address.", "#/tenants", "All tenants")]);
  const tab = before === name ? document.querySelector("#sections [aria-current]") : null;
  if (tab) tab.focus();
  else if (before !== null) { window.scrollTo(0, 0); main.focus({ preventScroll: true }); }
}

function useToken() {
  if (!input.value.trim()) return;
  token.set(input.value.trim());
  input.value = "";
  ask.close();
  forget.hidden = false;
  shown = null;
  show();
}

whenUnauthorized((detail) => {
  document.getElementById("ask-why").textContent = detail;
  if (ask.open) return;
  leaving.abort();
  ask.showModal();
  input.focus();
});
document.getElementById("ask-form").addEventListener("submit", (event) => { event.preventDefault(); useToken(); });
forget.hidden = token.get() === null;
forget.addEventListener("click", () => { token.forget(); location.reload(); });
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  const search = document.querySelector("[data-search]");
  if (event.key === "/" && !typing && !ask.open && search) { event.preventDefault(); search.focus(); search.select(); }
});
window.addEventListener("hashchange", show);
show();
