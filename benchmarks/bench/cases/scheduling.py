"""What a meta server has to do for a thousand nodes, and how long tasks are without a sorter."""

from __future__ import annotations

from bench.contenders.scheduling import STEP_MS, ManyNodes
from bench.measure import Bench
from tistream_meta.decide.balance import UNEVEN

WHAT = (
    "one meta server (SQLite on local disk), 1,000 simulated sorters and 100,000 tasks of 1,000 tenants on a virtual "
    "clock: processor seconds for a second of the platform while nothing happens, while 1 % of the sorters are lost, "
    "and while 10 % more join; heartbeats and route tables as JSON, without the HTTP around them. Regions are inside "
    "of tasks: the owner holds nothing of them"
)
NODES, TASKS = 1_000, 100_000
USUAL = 16
QUIET_S = 20
PATIENCE_S = 600


def run(bench: Bench) -> None:
    """See WHAT."""
    for scale in bench.scales:
        _measure(bench, bench.sized(NODES, scale), bench.sized(TASKS, scale), scale)


def _measure(bench: Bench, nodes: int, tasks: int, scale: int) -> None:
    world = ManyNodes(bench.tmp / f"nodes-{scale}", nodes, tasks)
    _until(world, lambda: world.unheld() == 0 and not world.moving())
    _until(world, lambda: world.unevenness() <= UNEVEN and not world.moving())
    _costs(bench, world, "while nothing happens", QUIET_S, scale)
    world.leave(max(1, nodes // 100))
    took = _until(world, lambda: world.unheld() == 0)
    bench.figure("1 % of the sorters lost: until all tasks are held again", took, "s", scale=scale)
    _report(bench, world, "meanwhile", took, scale)
    _until(world, lambda: not world.moving() and world.unevenness() <= UNEVEN)
    for _ in range(max(1, nodes // 10)):
        world.join()
    world.cost.clear()
    took = _until(world, lambda: world.unevenness() <= UNEVEN and not world.moving())
    bench.figure("10 % more sorters: until all are within 1.2 times of the mean load", took, "s", scale=scale)
    _report(bench, world, "meanwhile, with 10 % more", took, scale)


def _until(world: ManyNodes, reached) -> float:  # type: ignore[no-untyped-def]
    """Steps until then; virtual seconds."""
    world.cost.clear()
    for steps in range(1, PATIENCE_S * 1_000 // STEP_MS):
        world.step()
        if reached():
            return steps * STEP_MS / 1_000
    raise AssertionError(
        f"not within {PATIENCE_S} s: {world.unheld()} not held, {world.unevenness():.2f} times the mean"
    )


def _costs(bench: Bench, world: ManyNodes, when: str, seconds: int, scale: int) -> None:
    world.cost.clear()
    for _ in range(seconds * 1_000 // STEP_MS):
        world.step()
    _report(bench, world, when, seconds, scale)


def _report(bench: Bench, world: ManyNodes, when: str, seconds: float, scale: int) -> None:
    for what in ("heartbeats", "scheduling", "routes"):
        bench.figure(f"{when}: {what}", world.cost[what] / seconds, "cores", scale=scale)
