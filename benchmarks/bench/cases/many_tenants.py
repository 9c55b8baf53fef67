"""A thousand tenants on one node, nearly all of them idle."""

from __future__ import annotations

import statistics
import time

from bench.inputs.idle_tenant import IdleTenant
from bench.measure import Bench
from bench.up import Up, dollars
from tistream.model.ids import TenantKey

WHAT = (
    "`tistream up` with 1,000 tenants of one store each, whose files have been taken; then none comes: processor, "
    "requests and objects while they rest, beside the same with 10 tenants; and how soon a file of one of them, which "
    "is announced, can be read"
)
TENANTS = 1_000
FEW = 10
REST_S, MEASURED_S = 60, 60
WOKEN = 10


def run(bench: Bench) -> None:
    """See WHAT."""
    for count in (FEW, TENANTS):
        with Up(bench.tmp / str(count)) as up:
            _measure(bench, up, count)


def _measure(bench: Bench, up: Up, count: int) -> None:
    print(f"\n{count} tenants")
    tenants = [IdleTenant(TenantKey("many", f"t{number:04d}"), up.objects) for number in range(count)]
    began = time.perf_counter()
    for tenant in tenants:
        tenant.begin()
        up.create(tenant.key)
    for tenant in tenants:
        up.wait_resolved(tenant.key, tenant.resolved_ts, 600)
    bench.figure(
        f"{count} tenants: from the first registration until all can be read", time.perf_counter() - began, "s"
    )
    time.sleep(REST_S)
    before, cpu = up.requests(), up.cpu_seconds()
    time.sleep(MEASURED_S)
    done = up.requests() - before
    hours = MEASURED_S / 3_600
    bench.figure(f"{count} tenants: processor at rest", (up.cpu_seconds() - cpu) / MEASURED_S, "cores")
    asked = sum(done[kind] for kind in ("get", "head", "list", "put", "put_new", "put_if"))
    bench.figure(f"{count} tenants: requests at rest", asked / hours / count, "a tenant and hour", 0)
    bench.figure(f"{count} tenants: requests at rest", dollars(done) / hours / count * 720, "$ a tenant and month", 0)
    bench.figure(f"{count} tenants: objects written at rest", done["put"] + done["put_new"] + done["put_if"], "", 0)
    bench.figure(f"{count} tenants: memory of all processes", up.memory_bytes() / (1 << 20), "MiB")
    waits = []
    for tenant in tenants[:: max(1, count // WOKEN)]:
        ts = tenant.push()
        up.notify(tenant.key, 1, ts)
        waits.append(up.wait_resolved(tenant.key, tenant.resolved_ts))
    name = f"{count} tenants: a file of one that rested, from announced to readable"
    bench.figure(f"{name}, median", statistics.median(waits), "s")
    bench.figure(f"{name}, slowest of {len(waits)}", max(waits), "s", 5)
