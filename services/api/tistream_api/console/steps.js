// The next and the previous change of a table, or of one of its rows.

import { get, lines } from "./api.js";
import { lastEvents } from "./last.js";

const PAGES_MAX = 20;
const VERSIONS = 1_000; // of one answer

const history = (path, key, from, to, limit, signal) =>
  get(`${path}/history?key=${encodeURIComponent(key)}&from=${from}&to=${to}&limit=${limit}`, signal);

// The commit_ts of the newest change in [low, ts); null if there is none.
export async function changeBefore(path, key, low, ts, signal) {
  if (ts - 1n <= low) return null;
  if (key === null) return (await lastEvents(path, ts - 1n, signal, 1)).newest;
  return (await history(path, key, low, ts - 1n, 1, signal)).versions[0]?.commit_ts ?? null;
}

// The commit_ts of the oldest change in (ts, high]; null if there is none.
export async function changeAfter(path, key, ts, high, signal) {
  if (ts >= high) return null;
  let where = `start_ts=${ts}`;
  let to = high;
  let oldest = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    if (key === null) {
      const [first, last = first] = await lines(`${path}/changes?${where}&end_ts=${high}&limit=1`, signal);
      if (first.commit_ts) return first.commit_ts;
      if (last.type === "resolved") return null;
      where = `cursor=${encodeURIComponent(last.cursor)}`;
    } else {
      const found = await history(path, key, ts, to, VERSIONS, signal);
      oldest = found.versions.at(-1)?.commit_ts ?? oldest;
      if (found.next_to === null) return oldest;
      to = BigInt(found.next_to);
    }
  }
  return oldest;
}
