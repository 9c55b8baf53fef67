"""One run: phases of a hostile tenant's doings, and what the other tenant notices of them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from support.compare import shown, tenant_differences
from support.golden import Delivery
from support.hostile import table, unread
from support.hostile.attacker import Orders
from support.hostile.burner import burning
from support.hostile.files import Junk, ended_children_s, hostile_stores, mending
from support.hostile.good import Watch
from support.hostile.table import Phase
from support.hostile.world import CLUSTER, Attack, Bad, Load, World, idle_seconds, running, token_id
from support.waiting import PATIENCE_S, awaited, eventually
from tistream.model.ts import from_physical_ms
from tistream.storage import layout
from tistream_api.request.params import FORMATS

PULLS_S = 12.0
LATE_S = 5.0  # design.md 5: from there on status has to say what holds a tenant
CONTROL = "as busy with others: "  # before the name of the attack whose clients' work it stands for
CONTROLLED = 0.02  # processors: an attack that took less needs no control
PHASES = ("flood", "unread", "names", "damage", "revoked", "all_at_once")
KINDS = ("routes", "lists", "idle", "notifications", "bodies")


@dataclass(frozen=True, slots=True)
class Options:
    """`phase_s`: how long each attack goes on. `warm_s`: how long the other tenant's consumers are left alone first,
    who read what has been again and so ask for more as there is more. `calm_s`: how long they are between two attacks.
    `scratch` is an empty folder. `only`: these of PHASES; empty: all."""

    scratch: Path
    phase_s: float = 8.0
    warm_s: float = 0.0
    calm_s: float = 0.0
    rows_per_s: int = 200
    junk: int = 1_000
    idle: int = 500
    seed: int = 1
    only: tuple[str, ...] = ()


@dataclass(slots=True)
class Outcome:
    """`rows`: table.figures. `answers`: what the hostile tenant was told in all, by kind and status. `unread`: what the
    API server took for answers that nobody reads."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    verify: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, Any] = field(default_factory=dict)  # the other tenant's lag by stage, as the API has noted it
    held: dict[str, dict[str, Any]] = field(default_factory=dict)  # by phase: what the hostile one was told holds it
    unread: list[unread.Taken] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run(options: Options, say: Callable[[str], None] = print) -> Outcome:
    """Run all phases. Leaves no process."""
    outcome = Outcome()
    with running(options.scratch) as world:
        Run(options, world, outcome, say).run()
        for trace in world.services.unexpected():
            outcome.problems.append(f"an exception that nobody foresaw: {trace}")
    # asdict() alone makes a Counter of pairs of a Counter.
    taken = [asdict(one) | {"statuses": dict(one.statuses)} for one in outcome.unread]
    kept = {"phases": outcome.rows, "unread": taken, "stages": outcome.stages, "problems": outcome.problems}
    (options.scratch / "hostile.json").write_text(json.dumps(kept, indent=1))
    say(table.markdown(outcome.rows))
    say(unread.markdown(outcome.unread))
    return outcome


class Run:
    """The phases of a run, one after the other."""

    def __init__(self, options: Options, world: World, outcome: Outcome, say: Callable[[str], None]) -> None:
        self.options, self.world, self.outcome, self.say = options, world, outcome, say
        self._phases: list[Phase] = []

    def run(self) -> None:
        """Run everything from the registration of both tenants to the last check."""
        world = self.world
        world.register("good", ["read"])
        world.register("bad", ["read", "push"])
        with ExitStack() as stack:
            load = self.load = Load(world, self.options.rows_per_s, self.options.seed)
            stack.callback(load.end)
            self.bad = Bad(world)
            self.junk = Junk(world.minio, world.bucket, self.bad.tenant)
            self.nobodys_junk = Junk(world.minio, world.minio.new_bucket(), self.bad.tenant)
            self._begun(load)
            self.watch = Watch(world.services.url, world.tenant("good"), world.tokens["good"], load.start_ts).start()
            stack.callback(self.watch.stop)
            eventually(lambda: self.watch.seen.events["PullTable"] and self.watch.lag_seconds() < LATE_S)
            time.sleep(self.options.warm_s)
            for name in ("calm", *(self.options.only or PHASES), "after"):
                getattr(self, name)()
            self.outcome.stages = self._stages()
            end_ts, self.outcome.verify = load.finish()
            self.watch.consumer().wait_for(end_ts, PATIENCE_S)
        self._judge()

    def _begun(self, load: Load) -> None:
        consumer = Watch(
            self.world.services.url, self.world.tenant("good"), self.world.tokens["good"], load.start_ts
        ).consumer()
        consumer.wait_for(load.start_ts, PATIENCE_S)
        self.bad.push(0.15)
        eventually(lambda: self.bad.refusal() == "")

    # -- phases ----------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """A phase without an attack, with which all others are compared."""
        with self._phase("calm"):
            self.bad.push(0.25)

    def flood(self) -> None:
        """Requests without end, on every route, its own and the other's; connections on which nothing is sent;
        notifications; then pulls, more than there may be, of which nobody reads anything."""
        with self._phase("flood", *KINDS):
            self.bad.push(0.3)
        self._between()
        with self._phase("pulls", "pulls", "idle"):
            self.bad.push(0.32)
        self._between()

    def unread(self) -> None:
        """One token's answers that nobody reads, in each format, of a tenant that has much."""
        flooded, seen = unread.Flooded(self.world), self.watch.seen
        for form in FORMATS:
            with self._phase(f"unread {form}"):
                flood = unread.Flood(self.world, flooded, form, self.options.phase_s)
                taken = flood.run(lambda: Counter(seen.events))
            self.outcome.unread.append(taken)
            self.outcome.problems += taken.problems
            self.say(unread.markdown([taken]).splitlines()[-1])
        self._between()

    def names(self) -> None:
        """Send huge and hostile names in requests, and put thousands of meaningless objects into the bucket."""
        with self._phase("names and junk", "names"):
            self.junk.scatter(self.options.junk)
            self.bad.push(0.35)
        self.junk.sweep()
        self._between(junk=True)

    def damage(self) -> None:
        """Files that are cut, flipped, of another version, that lie about their sizes, that unpack to gigabytes."""
        with self._phase("damaged files"):
            spoilt = self._spoil(0.5)
            self._held("damaged files", lambda held: held["stage"] == "damaged")
        self._mend(spoilt)
        self._between()

    def revoked(self) -> None:
        """Its key is taken away, and given back; then it is there and may not be used, and may again."""
        kes, key = self.world.kes, self.world.keys["bad"]
        with self._phase("key revoked"):
            kes.take(key)
            self.bad.push(0.6)
            self._without_key("key revoked")
        before = self.bad.resolved_ts()
        kes.give_back(key)
        self._goes_on(before)
        self._between()
        with self._phase("key denied"):
            kes.deny(key)
            self.bad.push(0.7)
            self._without_key("key denied")
        before = self.bad.resolved_ts()
        kes.allow(key)
        self._goes_on(before)
        self._between()

    def all_at_once(self) -> None:
        """Run all attacks at the same time."""
        kes, key = self.world.kes, self.world.keys["bad"]
        with self._phase("all at once", "pulls", *KINDS, "names"):
            spoilt = self._spoil(0.9)
            self.junk.scatter(self.options.junk)
            kes.deny(key)
        kes.allow(key)
        self.junk.sweep()
        self._mend(spoilt)
        self._control(junk=True)

    def after(self) -> None:
        """Check that the attacker's own valid data are complete after the attacks."""
        with self._phase("calm again"):
            self.bad.push(1.0)
            self.bad.consumer.wait_for(self.bad.set.end_ts, PATIENCE_S)
            page = self.bad.consumer.pull(
                until_ts=self.bad.set.end_ts, start_ts=self.bad.set.snapshot_ts, limit=100_000
            )
            problems = tenant_differences(self.bad.set, page)
            if problems:
                self.outcome.problems.append(f"the hostile tenant's own data: {shown(problems)}")

    def _between(self, *, junk: bool = False) -> None:
        """What an attack is measured by: its control, and what was just before it and what is just after it."""
        self._control(junk=junk)
        if self.options.calm_s:
            with self._phase("calm between", seconds=self.options.calm_s):
                pass

    def _control(self, *, junk: bool = False) -> None:
        """The attacker's clients would have machines of their own, and the bucket would be nobody's one server. So: the
        same machine when somebody who wants nothing of the platform takes as much of it as those clients just did, and
        the same junk comes into a bucket that is none of the platform's."""
        attack = self._phases[-1]
        processors = 1_000 * attack.clients_s / (attack.end_ms - attack.begin_ms)
        if self.options.calm_s and (junk or processors > CONTROLLED):
            with burning(processors), self._phase(CONTROL + attack.name, seconds=self.options.calm_s):
                if junk:
                    self.nobodys_junk.scatter(self.options.junk)
            self.nobodys_junk.sweep()

    @contextmanager
    def _phase(self, name: str, *kinds: str, seconds: float | None = None) -> Iterator[None]:
        cpu, idle_s, clients_s, junk_s = self.world.cpu(), idle_seconds(), ended_children_s(), self._junk_s()
        began, begin_ms = time.monotonic(), time.time_ns() // 1_000_000
        attacks = [Attack(self._orders(kind)) for kind in kinds]
        try:
            yield
            time.sleep(max(0.0, (seconds or self.options.phase_s) - (time.monotonic() - began)))
            # However slow the machine: while it goes on, the other one is not late for good.
            eventually(lambda: self.watch.lag_seconds() < LATE_S)
            answers = self._answers([(attack.kind, attack.told(PATIENCE_S)) for attack in attacks])
        finally:
            for attack in attacks:
                attack.end()
        end_ms = time.time_ns() // 1_000_000
        told = [status for at_ms, status in list(self.watch.seen.statuses) if begin_ms <= at_ms < end_ms]
        worst = max((float(status["lag_seconds"]) for status in told), default=0.0)
        used = {role: round(seconds - cpu.get(role, 0.0), 1) for role, seconds in self.world.cpu().items()}
        busy = 1 - (idle_seconds() - idle_s) / ((time.monotonic() - began) * (os.cpu_count() or 1))
        clients_s = round(ended_children_s() - clients_s - (self._junk_s() - junk_s), 1)
        self._phases.append(Phase(name, begin_ms, end_ms, answers, used, worst, round(busy, 2), clients_s))
        self.outcome.rows = table.figures(self._phases, self.watch.seen.samples, self.load.promises())
        self.say(table.markdown(self.outcome.rows[-1:]).splitlines()[-1] + f" {answers} {used}")

    def _junk_s(self) -> float:
        return self.junk.used_s + self.nobodys_junk.used_s

    def _orders(self, kind: str) -> Orders:
        world = self.world
        secrets = (world.keys["good"], token_id(world.tokens["good"]), layout.push_prefix(world.tenant("good")))
        return Orders(
            kind,
            world.services.url,
            world.tokens["bad"],
            # Pulls stand in line until each has been begun, and rows of few are read at a time.
            max(self.options.phase_s, PULLS_S) if kind == "pulls" else self.options.phase_s,
            CLUSTER,
            world.names["bad"],
            world.names["good"],
            secrets,
            connections={"routes": 16, "lists": 60, "pulls": 300, "bodies": 8}.get(kind, 8),
            idle=self.options.idle,
            begin_ts=str(self.bad.set.snapshot_ts),
            now_ts=str(from_physical_ms(time.time_ns() // 1_000_000) - 1),
            seed=self.options.seed + len(self._phases),
        )

    def _answers(self, told: list[tuple[str, dict[str, Any]]]) -> dict[str, int]:
        answers: Counter[str] = Counter()
        for kind, one in told:
            answers.update(one["statuses"])
            self.outcome.answers.update(one["statuses"])
            self.outcome.problems += [f"{kind}: {text}" for text in [*one["leaks"][:3], *one["odd"][:3]]]
            if one["without_retry_after"]:
                self.outcome.problems.append(f"{kind}: {one['without_retry_after']} refusals without Retry-After")
        return dict(answers)

    # -- what the hostile one is told ------------------------------------------------------------------------------

    def _spoil(self, until: float) -> tuple[str, list[Delivery]]:
        stores = hostile_stores(self.bad.tenant, self.bad.set.snapshot_ts, len(self._phases))
        for one in stores:
            self.world.store.put(one.key, one.data)
        return self.bad.push(until, spoil=True), stores

    def _mend(self, spoilt: tuple[str, list[Delivery]]) -> None:
        key, stores = spoilt
        before = self.bad.resolved_ts()
        self.bad.mend(key)
        for one in stores:
            mended = mending(self.bad.tenant, one, self.bad.set.snapshot_ts)
            self.world.store.put(mended.key, mended.data)
        eventually(lambda: self.bad.held().get("stage") != "damaged" and self.bad.resolved_ts() > before)

    def _held(self, phase: str, wanted: Callable[[dict[str, Any]], bool]) -> None:
        def told() -> dict[str, Any]:
            held = self.bad.held()
            return held if held and wanted(held) else {}

        held = self.outcome.held[phase] = awaited(told)
        if (held.get("object") or layout.push_prefix(self.bad.tenant)).find(self.world.names["bad"]) < 0:
            self.outcome.problems.append(f"{phase}: the hostile tenant is held by {held}")

    def _without_key(self, phase: str) -> None:
        key = self.world.keys["bad"]
        self._held(
            phase, lambda held: f"encryption key {key} of tenant {self.bad.tenant} cannot be used" in held["reason"]
        )
        eventually(lambda: self.bad.refusal() == "tistream:key-unusable")

    def _goes_on(self, before: int) -> None:
        eventually(lambda: self.bad.resolved_ts() > before and self.bad.refusal() == "")

    # -- what the other one is told --------------------------------------------------------------------------------

    def _judge(self) -> None:
        outcome, seen = self.outcome, self.watch.seen
        outcome.events = seen.events
        outcome.problems += seen.problems
        if seen.refused:
            outcome.problems.append(f"the other tenant was refused: {dict(seen.refused)}")
        own = self.world.names["good"]
        for at_ms, status in seen.statuses:
            held, late = status["held_by"], float(status["lag_seconds"]) > LATE_S
            if held is None and late:
                outcome.problems.append(f"at {at_ms} the other tenant was late and nothing held it: {status}")
            if held is not None and not _may_be(held, own, late=late):
                outcome.problems.append(f"at {at_ms} status named a cause that was none: {status}")
        if not outcome.verify.get("clean"):
            outcome.problems.append(f"verify: {outcome.verify}")
        self._judge_usage()

    def _stages(self) -> dict[str, Any]:
        tenant = self.world.tenant("good")
        found: dict[str, Any] = self.world.operator(f"/v1/clusters/{CLUSTER}/tenants/{tenant.tenant_id}/lag?minutes=60")
        return found

    def _judge_usage(self) -> None:
        """Of the other tenant: its files, and what it was sent."""
        tenant, world = self.world.tenant("good"), self.world
        path = f"/v1/clusters/{CLUSTER}/tenants/{tenant.tenant_id}/usage"
        pushed = sum(
            one.size for one in world.store.list_after(layout.push_prefix(tenant)) if layout.parse_change_file(one.key)
        )

        def agrees() -> bool:
            before = self._served()
            total = world.operator(path)["total"]
            return bool((int(total["bytes_in"]), int(total["rows_served"])) == (pushed, before))

        eventually(agrees)

    def _served(self) -> int:
        written = (self.world.services.logs / "api.log").read_text()
        lines = written.rpartition("\n")[0].splitlines()  # of the last line only a part may be there
        told = (json.loads(line) for line in lines if '"logger":"tistream_api.served"' in line)
        own = str(self.world.tenant("good"))
        return sum(line["rows"] for line in told if line["tenant"] == own and line["status"] < 300)


def _may_be(held: dict[str, Any], own: str, *, late: bool) -> bool:
    """Whether a cause may be there: nothing of its own is damaged, no key is away, and what is another's does not
    concern it. A gap in its files (their announcements overtake each other) is told though it is not late."""
    if held["stage"] == "damaged" or "key-" in held["reason"] or (held["object"] and own not in held["object"]):
        return False
    return late or held["stage"] == "push"
