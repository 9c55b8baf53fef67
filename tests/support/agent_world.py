"""Agents of territories beside a model cluster and an object store: kills, take-overs, pauses, lost answers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from support.agent_judge import counted
from support.agent_model import ModelCluster, RawCluster
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_agent.core import chain, steps
from tistream_agent.core.cutter import Draft
from tistream_agent.core.keys import KeyMap, raw_scope
from tistream_agent.core.machine import TerritoryAgent
from tistream_agent.position import end_of_chain

TENANT = TenantKey("7", "model")


@dataclass
class Process:
    """A process with an agent. `put`: a file that waits for object storage. Paused, it does nothing until it wakes."""

    name: str
    store_id: int
    agent: TerritoryAgent
    paused_ms: int = 0
    put: Draft | None = None
    answers: list[tuple[int, steps.Event]] = field(default_factory=list)  # when, what
    reading: bool = True


class AgentWorld:
    """The newest process of a territory is its holder; older ones may still run. Object storage is away until
    `away_until_ms`. PD keeps what each of the `holds` needs."""

    def __init__(
        self,
        seed: int,
        buffer_bytes: int = 256 << 20,
        range_bounds: tuple[bytes, ...] | None = None,
        raw: bool = False,
    ) -> None:
        self.buffer_bytes, self.away_until_ms = buffer_bytes, 0
        self.range_bounds = range_bounds
        self.rng = random.Random(seed)
        self.raw = raw
        self.cluster = (RawCluster if raw else ModelCluster)(random.Random(seed + 1))
        self.objects: dict[str, tuple[bytes, str]] = {}  # key -> bytes, nonce; in order
        self.processes: list[Process] = []
        self.newest: dict[int, str] = {}  # territory -> name
        self.fenced = 0
        self.starts = 0
        self.agent_stops: list[steps.Stop] = []
        self.territories = {1: WHOLE}
        self.holds = {1: self.cluster.base_ts - 1}  # `connect` has set it
        self.start(1)

    @property
    def files(self) -> list[tuple[str, bytes]]:
        return [(key, data) for key, (data, _) in self.objects.items()]

    def start(self, store_id: int = 1) -> None:
        """A process starts and reads the last file of the territory's chain, if there is one."""
        end = self.end_of_chain(store_id)
        if end.sealed:
            return
        self.starts += 1
        config = steps.AgentConfig(
            *(TENANT, store_id, f"{self.starts:016x}", self.starts),
            span=self.territories[store_id],
            kv_api=steps.KV_RAW if self.raw else steps.KV_TIDB,
            keys=KeyMap(scope=raw_scope(0)) if self.raw else KeyMap(),
            cut_ms=200,
            idle_cut_ms=600,
            buffer_bytes=self.buffer_bytes,
            range_bounds=self.range_bounds,
        )
        position = end.position or chain.new_chain(config.span, self.cluster.base_ts)
        self.newest[store_id] = f"p{self.starts}"
        self.processes.append(Process(self.newest[store_id], store_id, TerritoryAgent(config, position)))

    def end_of_chain(self, store_id: int) -> chain.ChainEnd:
        """What the agent reads of a chain."""
        store = MemoryObjectStore()
        for key in [key for key in self.objects if layout.parse_change_file(key)[1] == store_id][-1:]:
            store.put(key, self.objects[key][0])
        return end_of_chain(store, TENANT, store_id, self.territories.get(store_id))

    @property
    def holder(self) -> Process:
        return self.processes[-1]

    def holds_it(self, process: Process) -> bool:
        """Whether the process is the newest one that its territory ever had: an older one may wake after that."""
        return self.newest[process.store_id] == process.name

    def hold(self, store_id: int, ts: int) -> None:
        """PD keeps what is above `ts` for a territory, and may collect what no territory needs."""
        self.holds[store_id] = max(self.holds.get(store_id, 0), ts)
        self.collect()

    def collect(self) -> None:
        self.cluster.hold_ts = max(self.cluster.hold_ts, min(self.holds.values(), default=self.cluster.tso()))

    def run(self, ms: int, step_ms: int = 20, faults: bool = True, work: bool = True) -> None:
        rng, until = self.rng, self.cluster.now_ms + ms
        while self.cluster.now_ms < until:
            self.cluster.advance(step_ms, work)
            if rng.random() < 0.06:
                self.cluster.churn()
            if faults:
                self.faults()
            for process in list(self.processes):
                self.turn(process)

    def faults(self) -> None:
        rng = self.rng
        holders = [one for one in self.processes if self.holds_it(one)]
        if not holders:
            return
        holder = holders[0] if len(holders) == 1 else rng.choice(holders)
        if rng.random() < 0.01:  # killed: another process starts
            self.end(holder)
            self.start(holder.store_id)
        elif rng.random() < 0.01:  # paused, while another takes over; it wakes later
            holder.paused_ms = self.cluster.now_ms + rng.choice([100, 500, 1_500])
            self.start(holder.store_id)
        elif rng.random() < 0.02:
            mine = [number for owner, number in self.cluster.streams if owner == holder.name]
            if mine:
                stream = rng.choice(mine)
                self.cluster.close(holder.name, stream)
                holder.answers.append((self.cluster.now_ms, steps.StreamEnded(stream, "UNAVAILABLE")))

    def end(self, process: Process) -> None:
        self.cluster.close(process.name)
        self.processes.remove(process)

    def settle(self, ms: int = 30_000) -> None:
        """No more work and no faults: everything must become durable."""
        end_ts, until = self.cluster.tso(), self.cluster.now_ms + ms
        while self.cluster.now_ms < until:
            self.cluster.advance(20, work=False)
            for process in list(self.processes):
                self.turn(process)
            if self.cluster.now_ms % 1_000 < 20 and counted(self.files, self.cluster.base_ts).watermark() >= end_ts:
                return
        lowest = [(one.store_id, one.agent.lowest()) for one in self.processes]
        raise AssertionError(f"stuck: {lowest}, {counted(self.files, self.cluster.base_ts).lowest()}")

    # -- one process --------------------------------------------------------------------------------------------------

    def turn(self, process: Process) -> None:
        now = self.cluster.now_ms
        if process.paused_ms > now:
            return
        due = [event for at, event in process.answers if at <= now]
        process.answers = [(at, event) for at, event in process.answers if at > now]
        for event in due:
            self.give(process, event)
        if process.put is not None and now >= self.away_until_ms:
            process.answers.append((now, self.put(process.put)))
            process.put = None
        for owner, number in list(self.cluster.streams):
            if owner == process.name and process.reading and self.rng.random() < 0.7:
                messages = self.cluster.read(process.name, number, self.rng.randint(1, 12))
                if messages:
                    self.give(process, steps.Received(number, messages))
        self.give(process, steps.Tick())
        process.agent.territory.check()

    def give(self, process: Process, event: steps.Event) -> None:
        if process not in self.processes:
            return
        now, rng, cluster = self.cluster.now_ms, self.rng, self.cluster

        def later(answer: steps.Event) -> None:
            process.answers.append((now + rng.choice([0, 10, 40, 120]), answer))

        for command in process.agent.step(event, now):
            match command:
                case steps.ScanRegions():
                    failed = rng.random() < 0.03
                    regions = cluster.pd_regions(command.encoded_start, command.encoded_end)
                    later(steps.ScanFailed(command.scan) if failed else steps.RegionsFound(command.scan, regions))
                case steps.TakeTimestamps():
                    # PD gives them now; the answer arrives later.
                    later(steps.TimestampsTaken(command.call, cluster.tso(command.count)))
                case steps.OpenStream():
                    cluster.open_stream(process.name, command.stream, command.tikv_store_id)
                case steps.Register():
                    if (process.name, command.stream) in cluster.streams:
                        # A paused one that wakes may ask below the hold of its successor: its files are refused.
                        cluster.register(process.name, command, counts=self.holds_it(process))
                case steps.CloseStream():
                    cluster.close(process.name, command.stream)
                case steps.PutFile(draft=draft) if now < self.away_until_ms:
                    process.put = draft
                case steps.PutFile(draft=draft):
                    later(self.put(draft))
                case steps.MoveHold(ts=ts):
                    if self.holds_it(process):
                        self.hold(process.store_id, ts)
                    later(steps.HoldSet(ts))
                case steps.StopReading():
                    process.reading = False
                case steps.ResumeReading():
                    process.reading = True
                case steps.Stop(code=code):
                    self.agent_stops.append(command)
                    self.fenced += code == "fenced"
                    self.end(process)
                    if all(one.store_id != process.store_id for one in self.processes):
                        self.start(process.store_id)

    def put(self, draft: Draft) -> steps.Event:
        """A conditional PUT."""
        if draft.key in self.objects:
            nonce = self.objects[draft.key][1]
            return steps.FileDurable(draft.ts) if nonce == draft.nonce else steps.ForeignFile(draft.ts, nonce)
        self.objects[draft.key] = draft.data(), draft.nonce
        return steps.FileDurable(draft.ts)
