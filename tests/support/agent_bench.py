"""An agent's state machine whose answers a test gives by hand."""

from __future__ import annotations

from typing import Any

from support import cdcpb
from tistream.model.ids import TenantKey
from tistream_agent.core import chain, steps
from tistream_agent.core.cutter import Draft
from tistream_agent.core.keys import Region, encoded_bound
from tistream_agent.core.machine import TerritoryAgent

BASE = 1_000 << 18
CONFIG = steps.AgentConfig(TenantKey("7", "acme"), 5, "aa" * 8, buffer_bytes=200_000)
LEFT = Region(11, b"", encoded_bound(b"k"), 1, 4, 1)
RIGHT = Region(12, encoded_bound(b"k"), b"", 1, 4, 2)


class Bench:
    """An agent whose answers are given by hand; `drafts`, `holds` and `sent` are what it asked for."""

    def __init__(self, position: chain.Position | None = None, config: steps.AgentConfig = CONFIG) -> None:
        self.agent = TerritoryAgent(config, position or chain.new_chain(config.span, BASE))
        self.now_ms, self.tso = 0, BASE + 1_000
        self.drafts: list[Draft] = []
        self.sent: list[Any] = []
        self.answered = 0  # of `sent`, from its beginning
        self.auto_durable = True

    def step(self, event: steps.Event, ms: int = 0) -> list[Any]:
        self.now_ms += ms
        commands = self.agent.step(event, self.now_ms)
        for command in commands:
            self.sent.append(command)
            if isinstance(command, steps.PutFile):
                self.drafts.append(command.draft)
        return commands

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.sent if isinstance(one, kind)]

    def run(self, regions: list[Region], ms: int = 3_000) -> None:
        """Answer everything, for some time."""
        for _ in range(ms // 50):
            self.step(steps.Tick(), 50)
            while self.answered < len(self.sent):
                command = self.sent[self.answered]
                self.answered += 1
                self.answer(command, regions)

    def answer(self, command: Any, regions: list[Region]) -> None:
        match command:
            case steps.PutFile(draft=draft) if self.auto_durable:
                self.step(steps.FileDurable(draft.ts))
            case steps.MoveHold(ts=ts):
                self.step(steps.HoldSet(ts))
            case steps.ScanRegions(scan=scan):
                self.step(steps.RegionsFound(scan, regions))
            case steps.TakeTimestamps(call=call, count=count):
                self.tso += count
                self.step(steps.TimestampsTaken(call, self.tso))

    def register(self, regions: list[Region] | None = None) -> dict[int, steps.Register]:
        """By region, the newest registration."""
        self.run(regions or [LEFT, RIGHT], 500)
        return {one.region_id: one for one in self.of(steps.Register)}

    def receive(self, request: steps.Register, *rows: dict[str, Any], resolved: int = 0, error: str = "") -> list[Any]:
        return self.step(steps.Received(request.stream, [self.message(request, *rows, resolved=resolved, error=error)]))

    @staticmethod
    def message(request: steps.Register, *rows: dict[str, Any], resolved: int = 0, error: str = "") -> bytes:
        message = cdcpb.ChangeDataEvent()
        if rows or error:
            event = message.events.add(region_id=request.region_id, request_id=request.request_id)
            for row in rows:
                event.entries.entries.add(**row)
            if error:
                getattr(event.error, error).SetInParent()
        if resolved:
            message.resolved_ts.regions.append(request.region_id)
            message.resolved_ts.ts, message.resolved_ts.request_id = resolved, request.request_id
        return message.SerializeToString()


INITIALIZED = {"type": 5}


def change(key: bytes, commit_ts: int, value: bytes = b"v") -> dict[str, Any]:
    return {"type": 4, "op_type": 1, "key": key, "value": value, "start_ts": commit_ts - 1, "commit_ts": commit_ts}


def keys(draft: Draft) -> list[bytes]:
    return [key for table in draft.changes for key in table["key"].to_pylist()]
