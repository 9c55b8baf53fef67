"""Effects that a cluster requests, as plain data. The driver executes them."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.span import KeySpan


@dataclass(frozen=True, slots=True)
class Push:
    """Put a change file. Later files of its store must not be visible before it."""

    store_id: int
    ts: int
    prev_ts: int
    key: str
    body: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce a file, after its Push."""

    store_id: int
    ts: int


@dataclass(frozen=True, slots=True)
class AskCoverage:
    """Ask the platform up to which ts it has the changes of `span`, after a store has lost unpushed data. The answer is
    passed to `Cluster.coverage`."""

    request: int
    store_id: int
    span: KeySpan


@dataclass(frozen=True, slots=True)
class WriteTruth:
    """A truth line (tistream_verify.fingerprint). It covers everything at or below `ts`."""

    ts: int
    line: bytes


Effect = Push | Announce | AskCoverage | WriteTruth
