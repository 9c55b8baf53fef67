"""What the platform asks of its object store, and the dollars that it makes."""

from __future__ import annotations

import time
from collections import Counter

from bench.inputs.changes import TENANT, Load, seconds, snapshot_ts
from bench.measure import Bench
from bench.up import Up, dollars, put, put_snapshot
from tistream.storage import layout

WHAT = (
    "`tistream up` with one tenant, three stores that push a file each second and announce it, values of 1,000 random "
    "bytes, a client that asks for the tenant's status three times a second: requests and bytes as the object-store "
    "wrapper of every process counts them, dollars at S3's list prices; the upstream's own PUTs beside them. Nobody "
    "pulls: a consumer's GETs come on top, about one a segment and consumer"
)
STORES = 3
WARM_S, MEASURED_S = 15, 60
RATES = {"10 MiB/s": 9_700, "100 KiB/s": 95}  # transactions a second
AIM = 0.01
VALUE_BYTES = 1_000
IDLE_AFTER_S = 60


def run(bench: Bench) -> None:
    """See WHAT."""
    for name, transactions in RATES.items():
        with Up(bench.tmp / name.replace("/", "-").replace(" ", "-")) as up:
            print(f"\n{name}")
            pushed, done, files, last_ts = _push(up, transactions)
            _tell(bench, name, pushed, done, files)
            up.wait_resolved(TENANT, last_ts)
            if name == min(RATES, key=lambda rate: RATES[rate]):
                _idle(bench, up)


def _push(up: Up, transactions: int) -> tuple[int, Counter[str], int, int]:
    """(bytes pushed, requests made, files pushed) in the measured time, and the last resolved_ts."""
    put_snapshot(up.objects, TENANT, snapshot_ts())
    up.create(TENANT)
    total = WARM_S + MEASURED_S
    load = Load(
        transactions * total, seconds=total, stores=STORES, regions=4 * STORES, tables=4, value_bytes=VALUE_BYTES
    )
    pushed = files = last_ts = 0
    before: Counter[str] = Counter()
    began = time.perf_counter()
    for number, second in enumerate(seconds(load)):
        if number == WARM_S:
            before, pushed, files = up.requests(), 0, 0
        for at, (key, body) in enumerate(second.files):
            due = began + number + at / STORES
            time.sleep(max(0.0, due - time.perf_counter()))
            put(up.objects, key, body)
            named = layout.parse_change_file(key)
            assert named is not None
            up.notify(TENANT, named[1], named[2])
            pushed, files = pushed + len(body), files + 1
            up.status(TENANT)
        last_ts = second.resolved_ts
    took = time.perf_counter() - began
    if took > total + 2:
        raise RuntimeError(f"pushed too slowly: {took:.0f} s for {total} s")
    return pushed, up.requests() - before, files, last_ts


def _tell(bench: Bench, name: str, pushed: int, done: Counter[str], files: int) -> None:
    gib = pushed / (1 << 30)
    for kind in ("put", "put_new", "put_if", "list", "get", "head"):
        bench.figure(f"{name}: {kind} per pushed GiB", done[kind] / gib, "requests")
    for kind in sorted(done):
        print(f"    {kind}: {done[kind] / MEASURED_S:.2f}/s")
    bench.figure(f"{name}: bytes read per pushed byte", done["read bytes"] / pushed, "")
    bench.figure(f"{name}: bytes written per pushed byte", done["written bytes"] / pushed, "", 1.3)
    bench.figure(f"{name}: rate", pushed / MEASURED_S / (1 << 20), "MiB/s", better="more")
    bench.figure(f"{name}: requests of the platform per pushed GiB", dollars(done) / gib, "$", AIM)
    bench.figure(f"{name}: the upstream's PUTs per pushed GiB", dollars({"put": files}) / gib, "$")
    bench.figure(f"{name}: requests of the platform", dollars(done) / MEASURED_S * 86_400 * 30, "$ a month")


def _idle(bench: Bench, up: Up) -> None:
    time.sleep(IDLE_AFTER_S)
    before, cpu = up.requests(), up.cpu_seconds()
    objects = sum(1 for path in up.objects.rglob("*") if path.is_file())
    time.sleep(MEASURED_S)
    done = up.requests() - before
    hour = 3_600 / MEASURED_S
    bench.figure(
        f"idle after {IDLE_AFTER_S} s: requests",
        sum(done[kind] for kind in ("get", "head", "put", "list", "put_new", "put_if")) * hour,
        "an hour",
        0,
    )
    bench.figure(f"idle after {IDLE_AFTER_S} s: requests", dollars(done) * hour * 24 * 30, "$ a month", 0)
    bench.figure(
        "idle: objects written", sum(1 for path in up.objects.rglob("*") if path.is_file()) - objects, "objects", 0
    )
    bench.figure("idle: processor, the whole platform", (up.cpu_seconds() - cpu) / MEASURED_S, "cores")
