"""The events that the agent's state machine takes, and the commands that it returns. Pure.

All times are milliseconds of one clock, a parameter of `TerritoryAgent.step`. Keys are raw unless `encoded` is in the
name. The state machine assigns the identifiers of scans, TSO calls, streams and requests. Each is used once; a
request_id is used once for each region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream_agent.core.cutter import Draft
from tistream_agent.core.keys import KeyMap, Region

KV_TIDB, KV_RAW = 0, 1  # ChangeDataRequest.kv_api


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The configuration of one territory's agent.

    Attributes:
        store_id: the territory's id, which is the `store_id` of its chain.
        span: the keys of the territory, in the platform's form.
        keys: how the platform's keys correspond to keys in TiKV (keys.KeyMap).
        nonce: hexadecimal, drawn for each start of a process.
        epoch: the number of the assignment; higher for each holder.
        buffer_bytes: the memory for rows that are in no durable file; above it, streams are not read.
        file_bytes: a file is cut once its rows take this much memory.
        raw_hold_ms: by how much each resolved_ts is lowered, with KV_RAW.
        range_bounds: None: each subscription has a log of its own. Otherwise the subscriptions of a range of keys share
            one (received/range_logs.py), and these are the first keys, as in TiKV, of all ranges but the first.
        stalled_ms: how long a PUT may take before all streams are closed, so that TiKV keeps nothing for the agent.
    """

    tenant: TenantKey
    store_id: int
    nonce: str
    epoch: int = 0
    span: KeySpan = WHOLE
    kv_api: int = KV_TIDB
    keys: KeyMap = KeyMap()  # noqa: RUF009 - it is frozen
    cut_ms: int = 1_000
    idle_cut_ms: int = 3_000
    buffer_bytes: int = 256 << 20
    file_bytes: int = 32 << 20
    hold_refresh_ms: int = 60_000
    stalled_ms: int = 60_000
    raw_hold_ms: int = 0
    range_bounds: tuple[bytes, ...] | None = None


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received:
    """Serialized ChangeDataEvents that have arrived on a stream, in order."""

    stream: int
    messages: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """A stream could not be opened, or it has ended, with whatever status.

    `unreadable`: it ended because a message cannot be received, for example because it is too large; a retry may not
    help.
    """

    stream: int
    reason: str
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class RegionsFound:
    """PD's answer to `ScanRegions`, unchanged: the regions may have gaps and overlaps, and some may have no leader."""

    scan: int
    regions: Sequence[Region]


@dataclass(frozen=True, slots=True)
class ScanFailed:
    """PD did not answer `ScanRegions`."""

    scan: int


@dataclass(frozen=True, slots=True)
class TimestampsTaken:
    """PD's answer to `TakeTimestamps`: the timestamps `last - count + 1 .. last`, with the requested `count`."""

    call: int
    last: int


@dataclass(frozen=True, slots=True)
class TimestampsFailed:
    """PD did not answer `TakeTimestamps`."""

    call: int


@dataclass(frozen=True, slots=True)
class FileDurable:
    """The file with this ts is in object storage: the PUT succeeded, or an object with this agent's nonce exists
    already."""

    ts: int


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """The PUT of the file `ts` found an object with another nonce: another agent has taken over.

    If the PUT was the claim (this agent's first file), the agent had not begun at the end of the chain. The caller may
    then read the found object with `chain.read_position`, and begin a new agent at that position, but not if this agent
    has put a file already.
    """

    ts: int
    nonce: str


@dataclass(frozen=True, slots=True)
class HoldSet:
    """PD has accepted the hold on GC at `ts`: it keeps all versions above `ts`."""

    ts: int


@dataclass(frozen=True, slots=True)
class HoldRefused:
    """PD has refused the hold on GC at `ts`: versions at or below `safe_point` may be gone."""

    ts: int
    safe_point: int


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """PD belongs to another cluster than at the start."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. The caller sends this event at least every 50 ms."""


Event = (
    Received
    | StreamEnded
    | RegionsFound
    | ScanFailed
    | TimestampsTaken
    | TimestampsFailed
    | FileDurable
    | ForeignFile
    | HoldSet
    | HoldRefused
    | ClusterChanged
    | Tick
)


# --- commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScanRegions:
    """Ask PD for the regions of `[encoded_start, encoded_end)` with their leaders. The answer is the event
    `RegionsFound` or `ScanFailed`."""

    scan: int
    encoded_start: bytes
    encoded_end: bytes


@dataclass(frozen=True, slots=True)
class TakeTimestamps:
    """Take `count` timestamps from PD in one call. The answer is the event `TimestampsTaken` or `TimestampsFailed`."""

    call: int
    count: int


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open an EventFeedV2 stream to a store. Registrations may follow at once. If it fails, the event `StreamEnded`
    follows."""

    stream: int
    tikv_store_id: int


@dataclass(frozen=True, slots=True)
class Register:
    """Subscribe to a region: send a ChangeDataRequest with `register`. It requests old values (`extra_op`
    ReadOldValue), and also the rows that a replication tool has written (`filter_loop` is off)."""

    stream: int
    request_id: int
    region_id: int
    conf_ver: int
    version: int
    checkpoint_ts: int
    encoded_start: bytes
    encoded_end: bytes
    kv_api: int


@dataclass(frozen=True, slots=True)
class Deregister:
    """End a subscription: send a ChangeDataRequest with `deregister` for the region."""

    stream: int
    request_id: int
    region_id: int


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Close a stream, which deregisters all of its subscriptions. The event `StreamEnded` of this stream is ignored
    afterwards."""

    stream: int


@dataclass(frozen=True, slots=True)
class PutFile:
    """Put `draft.data()` at `draft.key` with a conditional PUT. After a PUT without an answer, the same bytes are put
    again.

    The answer is the event `FileDurable` or `ForeignFile`. At most one PUT is under way. `data()` is slow: call it in a
    worker thread.
    """

    draft: Draft


@dataclass(frozen=True, slots=True)
class MoveHold:
    """Ask PD to keep all versions above `ts` for 24 hours (the hold on GC).

    The answer is the event `HoldSet` or `HoldRefused`; a failed call is repeated. Only one call is under way at a time,
    so that calls cannot overtake each other, or queue up while PD does not answer.
    """

    ts: int


@dataclass(frozen=True, slots=True)
class StopReading:
    """Stop reading all streams until `ResumeReading`, so that the windows of gRPC's flow control close and TiKV stops
    sending."""


@dataclass(frozen=True, slots=True)
class ResumeReading:
    """Read all streams again."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End this territory for good. No file is written afterwards.

    `code` is one of `fenced`, `gc`, `upstream`, `compatibility`, `cluster_id_mismatch`; `reason` names the object, and
    what to do.
    """

    code: str
    reason: str


Command = (
    ScanRegions
    | TakeTimestamps
    | OpenStream
    | Register
    | Deregister
    | CloseStream
    | PutFile
    | MoveHold
    | StopReading
    | ResumeReading
    | Stop
)
