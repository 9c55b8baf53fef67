"""Plays a recorded client's streams (tests/data/golden/changedata) to the agent's state machine.

The recorded registrations replace those that the agent would plan; all else is the agent's own: scanner, subscriptions,
pieces, watermarks, files, hold.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream_agent.core import steps
from tistream_agent.core.chain import new_chain
from tistream_agent.core.keys import Region, raw_bound
from tistream_agent.core.machine import TerritoryAgent
from tistream_agent.core.pacing import StorePace
from tistream_agent.core.planner import Planner
from tistream_agent.core.subscription import OpenedSubscription
from tistream_agent.core.territory import Subscribed, WaitsForRegion

ROOT = Path(__file__).parents[1] / "data" / "golden" / "changedata"
NAMES = ("everything", "large", "raw")
TRUTH = ["key", "start_ts", "commit_ts", "op", "value", "old_value"]  # columns of `committed`


@dataclass(frozen=True, slots=True)
class Frame:
    """A message that the recorded client received."""

    at_ms: int
    stream: int
    message: bytes


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded client: what it received and what it did. An event comes after `frame` frames."""

    name: str
    meta: dict[str, Any]
    frames: tuple[Frame, ...]
    events: tuple[dict[str, Any], ...]

    @property
    def base_ts(self) -> int:
        return int(self.meta["base_ts"])

    @property
    def end_ts(self) -> int:
        return int(self.meta["end_ts"])


@functools.cache
def recorded(name: str) -> Recorded:
    """A recorded set."""
    folder = ROOT / name
    data = pa.input_stream(str(folder / "streams/frames.bin.zst"), compression="zstd").read()
    lines = pa.input_stream(str(folder / "streams/events.jsonl.zst"), compression="zstd").read().splitlines()
    return Recorded(
        name, json.loads((folder / "meta.json").read_text()), tuple(_frames(data)), tuple(map(json.loads, lines))
    )


def _frames(data: bytes) -> Iterator[Frame]:
    at = 0
    while at < len(data):
        size, stream, at_us = struct.unpack_from("<IIQ", data, at)
        at += 16
        yield Frame(at_us // 1000, stream, bytes(data[at : at + size]))
        at += size


@functools.cache
def changes(name: str) -> pl.DataFrame:
    """The truth: every committed change that a stream has."""
    return pl.read_parquet(ROOT / name / "changes.parquet")


@dataclass(slots=True)
class Script(Planner):
    """A planner that registers what the recorded client registered."""

    def plan(self, now_ms: int) -> list[steps.Command]:
        return []

    def opens(self, stream: int, store: int) -> None:
        self.streams[stream] = store
        self.paces[store] = StorePace()

    def registers(self, event: dict[str, Any], log_id: int, now_ms: int) -> int:
        """Note a registration. Returns by how much the pieces promise more than the client's checkpoint, in ms."""
        start, end = raw_bound(bytes.fromhex(event["start"])), raw_bound(bytes.fromhex(event["end"]))
        span, checkpoint = KeySpan(start, end), int(event["checkpoint_ts"])
        region = Region(event["region"], b"", b"", event["conf_ver"], event["version"], event["store"])
        ahead = 0
        for piece in self.territory.overlapping(span):
            inside = piece.span.clip(span)
            assert inside is not None
            assert not isinstance(piece.state, Subscribed), "the client registers keys that it has subscribed"
            assert piece.base_ts >= checkpoint, "the client registers from above what its files promise"
            ahead = max(ahead, (piece.base_ts >> 18) - (checkpoint >> 18))
            cut = [KeySpan(piece.span.start, start)] if piece.span.start < start else []
            cut.append(inside)
            if inside.end != piece.span.end:
                cut.append(KeySpan(inside.end, piece.span.end))
            rest = WaitsForRegion(now_ms)
            self.territory.replace(piece, [replace(piece, span=one, state=rest) for one in cut])
        pieces = self.territory.overlapping(span)
        ready = steps_of(pieces, region, now_ms)
        for old, new in zip(pieces, ready, strict=True):
            self.territory.put(replace(old, state=new.state))
        joined = self.territory.join(self.territory.overlapping(span)) if len(pieces) > 1 else self.territory.at(start)
        assert joined.span == span
        # The scan begins at the checkpoint as sent (A4).
        request_id = event["request_id"]
        self.subscriptions.open(
            OpenedSubscription(request_id, event["stream"], event["region"], event["store"], log_id, checkpoint, span)
        )
        self.territory.put(replace(joined, state=Subscribed(region, request_id), since_ms=now_ms))
        return ahead


def steps_of(pieces: list[Any], region: Region, now_ms: int) -> list[Any]:
    from tistream_agent.core.territory import ToRegister

    return [replace(piece, state=ToRegister(region, now_ms)) for piece in pieces]


@dataclass
class Replay:
    """A recorded set through the state machine. `files`: (key, bytes) in order; `holds`: each GC hold that was set."""

    recorded: Recorded
    batch: int = 1  # messages of a stream that are handed over at once, at most
    files: list[tuple[str, bytes]] = field(default_factory=list)
    holds: list[int] = field(default_factory=list)
    drafts: list[Any] = field(default_factory=list)

    def run(self, cut_ms: int = 150) -> TerritoryAgent:
        meta = self.recorded.meta
        tenant = TenantKey("7", {"raw": "raw", "large": "large"}.get(self.recorded.name, "acme"))
        kv_api = steps.KV_RAW if self.recorded.name == "raw" else steps.KV_TIDB
        config = steps.AgentConfig(tenant, 1, "ab" * 8, kv_api=kv_api, cut_ms=cut_ms, idle_cut_ms=3 * cut_ms)
        agent = TerritoryAgent(config, new_chain(config.span, int(meta["base_ts"])))
        script = Script(agent.territory, agent.subscriptions, kv_api)
        agent.planner = script
        self.step(agent, steps.Tick(), 0)
        assert agent.phase.name == "RUNNING"
        self.step(agent, steps.TimestampsTaken(0, self.recorded.base_ts + 1), 0)  # the agent knows PD's time
        events, sent, log_ids = list(self.recorded.events), 0, 0
        now_ms = 0
        while events or sent < len(self.recorded.frames):
            if events and events[0]["frame"] <= sent:
                event = events.pop(0)
                now_ms = max(now_ms, event["at_us"] // 1000)
                log_ids += 1
                match event["what"]:
                    case "stream opens":
                        opened = sum(
                            1 for one in self.recorded.events[: -len(events) or None] if one["what"] == "stream opens"
                        )
                        script.opens(opened, event["store"])
                    case "register":
                        log_id = self.recorded.base_ts + (now_ms << 18) + log_ids
                        script.registers(event, log_id, now_ms)
                        agent.territory.check()
                    case "stream ends":
                        stream = next(one for one, store in script.streams.items() if store == event["store"])
                        self.step(agent, steps.StreamEnded(stream, event["why"]), now_ms)
                continue
            batch = self._batch(sent, events[0]["frame"] if events else len(self.recorded.frames))
            sent += len(batch)
            now_ms = max(now_ms, batch[0].at_ms)
            self.step(agent, steps.Received(batch[0].stream, [one.message for one in batch]), now_ms)
        self.step(agent, steps.Tick(), now_ms + 10 * cut_ms)
        return agent

    def _batch(self, sent: int, until: int) -> list[Frame]:
        frames = self.recorded.frames
        end = sent + 1
        while end < min(until, sent + self.batch) and frames[end].stream == frames[sent].stream:
            end += 1
        return list(frames[sent:end])

    def step(self, agent: TerritoryAgent, event: steps.Event, now_ms: int) -> None:
        """Take a step; every file is durable at once, and PD takes every hold."""
        commands = agent.step(event, now_ms)
        while commands:
            command = commands.pop(0)
            match command:
                case steps.PutFile(draft=draft):
                    self.drafts.append(draft)
                    self.files.append((draft.key, draft.data()))
                    commands += agent.step(steps.FileDurable(draft.ts), now_ms)
                case steps.MoveHold(ts=ts):
                    self.holds.append(ts)
                    commands += agent.step(steps.HoldSet(ts), now_ms)
                case steps.Stop():
                    raise AssertionError(command.reason)


def committed(name: str) -> pl.DataFrame:
    """The truth in the form of the oracle's rows: an absent old value and an empty one are the same on the wire."""
    found = changes(name).rename({"op_type": "op"}).with_columns(pl.col("op").cast(pl.Int8))
    old = pl.when(pl.col("old_value").bin.size() > 0).then(pl.col("old_value"))
    value = pl.when(pl.col("op") == 1).then(pl.col("value").fill_null(b""))
    return found.with_columns(old_value=old, value=value).select(TRUTH).sort("commit_ts", "start_ts", "key")
