"""Effects that a cluster asks for, as plain data; the driver carries them out."""

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
    """Ask up to which ts `span` is covered, after a store lost unpushed data. Answer with `Cluster.coverage`."""

    request: int
    store_id: int
    span: KeySpan


@dataclass(frozen=True, slots=True)
class Told:
    """A truth line (tistream_verify.fingerprint), with everything at or below `ts`."""

    ts: int
    line: bytes


Effect = Push | Announce | AskCoverage | Told
