"""Compiles the agent's kernels, by passing a few rows through the state machine."""

from __future__ import annotations

from collections import deque

from tistream.model.ids import TenantKey
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream_agent.core import chain, steps
from tistream_agent.core.keys import Region
from tistream_agent.core.machine import TerritoryAgent
from tistream_agent.core.steps import AgentConfig, Command, Event

_TS = 1 << 40
_ANSWERS_MAX = 20
_REGION = Region(1, b"", b"", 1, 1, 1)


def warm_kernels() -> None:
    """Compile every kernel, or load it from the cache on disk. Without a cache this takes some 20 s."""
    config = AgentConfig(TenantKey("0", "warm-up"), 1, "00")
    machine = TerritoryAgent(config, chain.new_chain(config.span, _TS))
    todo = deque(machine.step(steps.Tick(), 0))
    for number in range(1, _ANSWERS_MAX):
        event = _answer(todo.popleft()) if todo else steps.Tick()
        if event is not None:
            todo.extend(machine.step(event, number * config.cut_ms))


def _answer(command: Command) -> Event | None:
    match command:
        case steps.PutFile(draft=draft):
            return steps.FileDurable(draft.ts)
        case steps.MoveHold(ts=ts):
            return steps.HoldSet(ts)
        case steps.ScanRegions(scan=scan):
            return steps.RegionsFound(scan, [_REGION])
        case steps.TakeTimestamps(call=call, count=count):
            return steps.TimestampsTaken(call, _TS + count)
        case steps.Register():
            return steps.Received(command.stream, _messages(command))
    return None


def _messages(request: steps.Register) -> list[bytes]:
    """Messages of a subscription: a scan with one row, a row after the scan, and a resolved ts."""
    row_type, op = cdcpb.Event.COMMITTED, cdcpb.Event.Row.PUT
    row = cdcpb.Event.Row(
        type=row_type, op_type=op, key=b"k", value=b"v", old_value=b"o", start_ts=_TS + 1, commit_ts=_TS + 2
    )
    initialized = cdcpb.Event.Row(type=cdcpb.Event.INITIALIZED)
    batches = ([row, initialized], [row])
    events = [
        cdcpb.Event(
            region_id=request.region_id, request_id=request.request_id, entries=cdcpb.Event.Entries(entries=rows)
        )
        for rows in batches
    ]
    resolved = cdcpb.ResolvedTs(regions=[request.region_id], ts=_TS + 3, request_id=request.request_id)
    found = [*(cdcpb.ChangeDataEvent(events=[event]) for event in events), cdcpb.ChangeDataEvent(resolved_ts=resolved)]
    return [one.SerializeToString() for one in found]
