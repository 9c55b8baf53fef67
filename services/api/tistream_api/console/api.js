// The API as the console asks it: a bearer token if there is one, problems as errors, streams as lines.

const ROOT = new URL("../", document.baseURI);
const KEPT = "tistream-token";

export class Problem extends Error {
  constructor(status, detail, more = {}) {
    super(detail);
    this.status = status;
    this.more = more; // the other members of the problem
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (text) => sessionStorage.setItem(KEPT, text),
  forget: () => sessionStorage.removeItem(KEPT),
};

// Called with what the API says when it wants a token, or another one.
let onUnauthorized = () => {};
export const whenUnauthorized = (call) => { onUnauthorized = call; };

export const tenantPath = (cluster, tenant) =>
  `v1/clusters/${encodeURIComponent(cluster)}/tenants/${encodeURIComponent(tenant)}`;

export const tablePath = (cluster, tenant, database, table) =>
  `${tenantPath(cluster, tenant)}/databases/${encodeURIComponent(database)}/tables/${encodeURIComponent(table)}`;

async function ask(path, signal, more = {}) {
  const kept = token.get();
  const headers = kept ? { Authorization: `Bearer ${kept}` } : {};
  let answer;
  try {
    answer = await fetch(new URL(path, ROOT), {
      ...more, headers: { ...headers, ...more.headers }, signal, credentials: "omit", cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The API does not answer.");
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  const detail = problem.detail ?? `status ${answer.status}`;
  if (answer.status === 401) onUnauthorized(detail);
  throw new Problem(answer.status, detail, problem);
}

export const urlOf = (path) => new URL(path, ROOT).href;
export const root = ROOT.href;

// A line of NDJSON. It keeps its text: parsed numbers do not say how they were written.
const parsed = (line) => ({ ...JSON.parse(line), line });

// Of the body of an answer: what was cut on its way is a problem too.
async function read(part) {
  try {
    return await part;
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0, "The answer was cut off.", { cut: true });
  }
}

// Every line of an NDJSON answer that ends.
export async function lines(path, signal) {
  const answer = await ask(path, signal);
  return (await read(answer.text())).split("\n").filter(Boolean).map(parsed);
}

export const get = async (path, signal) => (await ask(path, signal)).json();

// A call that changes something. `body` null: without a body.
export async function post(path, body, signal) {
  const sent = body === null ? {} : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (await ask(path, signal, { method: "POST", ...sent })).json();
}

// Calls `take` with the events of each piece of an NDJSON answer, until it ends, is aborted, or `take` returns false.
export async function follow(path, signal, take) {
  const answer = await ask(path, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await read(reader.read());
    if (done) return;
    const pieces = (rest + value).split("\n");
    rest = pieces.pop();
    const events = pieces.filter(Boolean).map(parsed);
    if (events.length && take(events) === false) { await reader.cancel(); return; }
  }
}

const pause = (ms, signal) => new Promise((resolve) => {
  if (signal.aborted) { resolve(); return; }
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

const seen = (signal) => new Promise((resolve) => {
  if (!document.hidden || signal.aborted) { resolve(); return; }
  const look = () => { if (!document.hidden) { document.removeEventListener("visibilitychange", look); resolve(); } };
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", resolve, { once: true });
});

// Runs `body(signal)` again and again while the page is seen; `failed(problem)` hears of each failure, null of each success.
export async function poll(everyMs, signal, body, failed) {
  for (let failures = 0; !signal.aborted;) {
    await seen(signal);
    try {
      await body(signal);
      failures = 0;
      failed(null);
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      failures += 1;
      failed(error);
      if (!(error instanceof Problem)) throw error;
    }
    await pause(Math.min(everyMs * 2 ** failures, 15_000), signal);
  }
}

export const after = pause;
