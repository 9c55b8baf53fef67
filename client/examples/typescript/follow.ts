// Writes a table's changes to a file, each once and in order, with types that openapi-typescript makes from TiStream's
// OpenAPI document:
//
//   node follow.js URL CLUSTER TENANT DATABASE TABLE START_TS FILE
//
// Each answer is appended with its last line, which has the cursor of the next request. So events and cursor are stored
// by one write, and a start after a crash discards what was appended after the last cursor.

import { appendFileSync, existsSync, readFileSync, truncateSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import createClient from "openapi-fetch";

import type { components, paths } from "./tistream.js";

type Last = components["schemas"]["Resolved"] | components["schemas"]["Continue"];

const [url, cluster_id, tenant_id, db, table, start_ts, file] = process.argv.slice(2);
if (!url || !cluster_id || !tenant_id || !db || !table || !start_ts || !file) {
  throw new Error("usage: node follow.js URL CLUSTER TENANT DATABASE TABLE START_TS FILE");
}
const client = createClient<paths>({ baseUrl: url });

/** The cursor in the last line of an answer; undefined if that line is incomplete or an event. */
function cursorOf(page: string): string | undefined {
  const last = page.slice(page.lastIndexOf("\n", page.length - 2) + 1);
  if (!/^\{"type":"(resolved|continue)".*\}\n$/.test(last)) return undefined;
  return (JSON.parse(last) as Last).cursor;
}

/** The last cursor of the file, which is truncated after it. */
function resume(path: string): string | undefined {
  let stored = existsSync(path) ? readFileSync(path, "utf8") : "";
  let cursor: string | undefined;
  for (; stored && !(cursor = cursorOf(stored)); stored = stored.slice(0, stored.lastIndexOf("\n", stored.length - 2) + 1));
  if (existsSync(path)) truncateSync(path, Buffer.byteLength(stored));
  return cursor;
}

/** An answer and its cursor; no cursor if the same request has to be sent again. */
async function pull(cursor: string | undefined): Promise<{ page: string; next: string | undefined }> {
  try {
    const { data, error, response } = await client.GET(
      "/v1/clusters/{cluster_id}/tenants/{tenant_id}/databases/{db}/tables/{table}/changes",
      {
        params: {
          path: { cluster_id: cluster_id!, tenant_id: tenant_id!, db: db!, table: table! },
          query: { wait_ms: 10_000, ...(cursor ? { cursor } : { start_ts: start_ts! }) },
        },
        parseAs: "text",
      },
    );
    if (data !== undefined) return { page: data, next: cursorOf(data) };
    if (response.status !== 429 && response.status !== 503) throw new Error(JSON.stringify(error));
    await sleep(1000 * Number(response.headers.get("retry-after")));
  } catch (failed) {
    if (!(failed instanceof TypeError)) throw failed; // fetch: no connection, or it was cut
    console.error(failed.message);
  }
  return { page: "", next: undefined };
}

for (let cursor = resume(file); ; ) {
  const { page, next } = await pull(cursor);
  if (next === undefined) {
    await sleep(1000); // the answer was cut off, or the server is away
    continue;
  }
  appendFileSync(file, page);
  cursor = next;
}
