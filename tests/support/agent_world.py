"""Agents of one territory beside a model cluster and an object store: kills, take-overs, pauses, lost answers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from support.agent_judge import counted
from support.agent_model import ModelCluster
from tistream.format.change_file import footer_metadata
from tistream.model.ids import TenantKey
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream_agent.core import chain, steps
from tistream_agent.core.cutter import Draft
from tistream_agent.core.machine import TerritoryAgent

TENANT = TenantKey("7", "model")


@dataclass
class Process:
    """A process with an agent. `put`: a file that waits for object storage. Paused, it does nothing until it wakes."""

    name: str
    agent: TerritoryAgent
    paused_ms: int = 0
    put: Draft | None = None
    answers: list[tuple[int, steps.Event]] = field(default_factory=list)  # when, what
    reading: bool = True


class AgentWorld:
    """The newest process is the holder; older ones may still run. Object storage is away until `away_until_ms`."""

    def __init__(self, seed: int, buffer_bytes: int = 256 << 20, range_bounds: tuple[bytes, ...] | None = None) -> None:
        self.buffer_bytes, self.away_until_ms = buffer_bytes, 0
        self.range_bounds = range_bounds
        self.rng = random.Random(seed)
        self.cluster = ModelCluster(random.Random(seed + 1))
        self.objects: dict[str, tuple[bytes, str]] = {}  # key -> bytes, nonce; in order
        self.processes: list[Process] = []
        self.fenced = 0
        self.starts = 0
        self.agent_stops: list[steps.Stop] = []
        self.start()

    @property
    def files(self) -> list[tuple[str, bytes]]:
        return [(key, data) for key, (data, _) in self.objects.items()]

    def start(self) -> None:
        """A process starts and reads the last file of the chain, if there is one."""
        self.starts += 1
        config = steps.AgentConfig(
            *(TENANT, 1, f"{self.starts:016x}", self.starts),
            cut_ms=200,
            idle_cut_ms=600,
            buffer_bytes=self.buffer_bytes,
            range_bounds=self.range_bounds,
        )
        if self.objects:
            position = self.position(config)
        else:
            position = chain.new_chain(config.span, self.cluster.base_ts)
        process = Process(f"p{self.starts}", TerritoryAgent(config, position))
        self.processes.append(process)

    def position(self, config: steps.AgentConfig) -> chain.Position:
        store = MemoryObjectStore()
        key = max(self.objects, key=lambda one: one.rpartition("/")[2].zfill(24))
        store.put(key, self.objects[key][0])
        opened = open_change_file(store, key)
        return chain.read_position(
            key, opened.ts, footer_metadata(key, opened.footer), read_watermarks(store, opened), config.span
        )

    @property
    def holder(self) -> Process:
        return self.processes[-1]

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
        holder = self.processes[-1]
        if rng.random() < 0.01:  # killed: another process starts
            self.end(holder)
            self.start()
        elif rng.random() < 0.01:  # paused, while another takes over; it wakes later
            holder.paused_ms = self.cluster.now_ms + rng.choice([100, 500, 1_500])
            self.start()
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
        lowest = self.processes[-1].agent.lowest()
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
                        cluster.register(process.name, command, counts=process is self.processes[-1])
                case steps.CloseStream():
                    cluster.close(process.name, command.stream)
                case steps.PutFile(draft=draft) if now < self.away_until_ms:
                    process.put = draft
                case steps.PutFile(draft=draft):
                    later(self.put(draft))
                case steps.MoveHold(ts=ts):
                    cluster.hold_ts = max(cluster.hold_ts, ts) if process is self.processes[-1] else cluster.hold_ts
                    later(steps.HoldSet(ts))
                case steps.StopReading():
                    process.reading = False
                case steps.ResumeReading():
                    process.reading = True
                case steps.Stop(code=code):
                    self.agent_stops.append(command)
                    self.fenced += code == "fenced"
                    self.end(process)
                    if process is not None and not self.processes:
                        self.start()

    def put(self, draft: Draft) -> steps.Event:
        """A conditional PUT."""
        if draft.key in self.objects:
            nonce = self.objects[draft.key][1]
            return steps.FileDurable(draft.ts) if nonce == draft.nonce else steps.ForeignFile(draft.ts, nonce)
        self.objects[draft.key] = draft.data(), draft.nonce
        return steps.FileDurable(draft.ts)
