// What can be read of a table: the timestamps from the earliest that is kept to the newest that is resolved.

import { Problem, get } from "./api.js";
import { msToTs } from "./format.js";

// The newest ts that can be read, as text.
export async function newest(path, tenant, signal) {
  try {
    return (await get(`${path}/schema`, signal)).ts; // a token for one table suffices
  } catch (failed) {
    if (!(failed instanceof Problem) || failed.status !== 404) throw failed;
  }
  try { // no table has the name now; one had it before
    return (await get(`${tenant}/status`, signal)).resolved_ts;
  } catch (failed) {
    if (!(failed instanceof Problem) || failed.status !== 403) throw failed;
    return msToTs(Date.now()); // the API refuses what is not resolved
  }
}

async function earliest(path, signal) {
  try {
    await get(`${path}/schema?ts=0`, signal);
  } catch (failed) {
    if (failed.status === 410 && failed.more.earliest_ts) return failed.more.earliest_ts;
    if (failed.status !== 404) throw failed;
  }
  return "0";
}

// { low, high } as BigInt.
export async function readable(path, tenant, signal) {
  const [low, high] = await Promise.all([earliest(path, signal), newest(path, tenant, signal)]);
  return { low: BigInt(low), high: BigInt(high) };
}
