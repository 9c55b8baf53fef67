"""What a cluster wants done in the outside world. Plain facts; the driver does them."""

from __future__ import annotations

from dataclasses import dataclass

from tistream.model.span import KeySpan


@dataclass(frozen=True, slots=True)
class Push:
    """A change file to be put. Its store's later files must not be seen before it is there."""

    store_id: int
    ts: int
    prev_ts: int
    key: str
    body: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Announce:
    """The file that was pushed just before may be announced."""

    store_id: int
    ts: int


@dataclass(frozen=True, slots=True)
class AskCoverage:
    """A store lost what it had not pushed: how far is `span` covered? Answer with `Cluster.coverage`."""

    request: int
    store_id: int
    span: KeySpan


@dataclass(frozen=True, slots=True)
class Told:
    """A truth line (tistream_verify.fingerprint): what is final up to `ts`."""

    ts: int
    line: bytes


Effect = Push | Announce | AskCoverage | Told
