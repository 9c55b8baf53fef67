"""What a cluster asks its driver to do, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.span import KeySpan


@dataclass(frozen=True, slots=True)
class Push:
    """Put a change file into the object store. Later files of its store must not be visible before it."""

    store_id: int
    ts: int
    prev_ts: int
    key: str
    body: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce a file to the platform, after its Push."""

    store_id: int
    ts: int


@dataclass(frozen=True, slots=True)
class AskCoverage:
    """Ask the platform up to which ts it has the changes of `span`, after a store has lost unpushed data. The driver
    passes the answer to `Cluster.coverage`."""

    request: int
    store_id: int
    span: KeySpan


@dataclass(frozen=True, slots=True)
class WriteTruth:
    """Append `line` to the truth file (tistream_verify.fingerprint). The line counts all events with commit_ts <=
    `ts`."""

    ts: int
    line: bytes


Effect = Push | Announce | AskCoverage | WriteTruth
