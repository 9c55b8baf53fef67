// The newest events of a table. A pull goes forward: so windows that end now are widened until enough of them lie in
// one, and halved where too many do. Each look at a window answers few events, whatever the table holds.

import { lines } from "./api.js";
import { msToTs } from "./format.js";

const WANTED = 50;
const MOST = 200;
const LOOKS_MAX = 60;
const WIDER = 30;

// Events behind `start` up to `end`, and the cursor at `end`; null if there are more than MOST.
async function window_(path, start, end, signal) {
  const found = await lines(`${path}/changes?start_ts=${start}&end_ts=${end}&limit=${MOST}`, signal);
  const last = found.pop();
  return last.type === "resolved" && BigInt(last.resolved_ts) >= end ? { events: found, cursor: last.cursor } : null;
}

// { events, cursor, newest }: at least the newest `wanted` up to `end`, or all that are kept. `newest` is the commit_ts of
// the newest one, also where it is of more events than are shown; null if none is kept.
export async function lastEvents(path, end, signal, wanted = WANTED) {
  let few = end;      // behind it there are too few
  let many = null;    // behind it there are too many
  let earliest = 0n;
  let best = null;
  let ms = 1_000;
  for (let looks = 0; looks < LOOKS_MAX; looks += 1) {
    let start = many === null ? end - BigInt(msToTs(ms)) : (few + many) / 2n;
    if (start < earliest) start = earliest;
    let found;
    try {
      found = await window_(path, start, end, signal);
    } catch (failed) {
      if (failed.status !== 410 || !failed.more.earliest_ts) throw failed;
      earliest = BigInt(failed.more.earliest_ts); // what lies below is not kept
      continue;
    }
    if (found === null) {
      many = start;
    } else {
      best = found;
      few = start;
      if (found.events.length >= wanted || start === earliest) break;
    }
    if (many === null) ms *= WIDER;
    else if (few - many <= 1n) break; // one commit_ts has more than are shown
  }
  best ??= await window_(path, end, end, signal);
  const last = best.events.at(-1)?.commit_ts ?? (many === null ? null : String(few));
  return { ...best, newest: last };
}
