"""Encoded messages of a batch of row events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import TableVersion
from tistream_changefeed.rows.row_batch import RowBatch


@dataclass(frozen=True, slots=True)
class Claim:
    """A file that must be in the claim-check storage before the messages that name it are sent."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Messages:
    """The message of each event of a RowBatch, in its order. Both arrays are large_binary of the batch's length.

    `keys` None: every message has a null key. A null value is a tombstone. `claims` are the files that messages name.
    """

    keys: pa.Array | None
    values: pa.Array
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message that is not a row: a DDL, a resolved ts, the schema of a table."""

    key: bytes | None
    value: bytes | None
    every_partition: bool = True


@dataclass(frozen=True, slots=True)
class TableChange:
    """The table of a DDL before and after it. None: the table did not exist, or does not any more."""

    before: TableVersion | None = None
    after: TableVersion | None = None


class Encoder(Protocol):
    """One protocol with its options."""

    @property
    def numbered(self) -> bool:
        """Whether rows must be decoded with the numbers of ENUM and SET, not their names."""

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event of the batch as a message of its own. A protocol that batches frames them later. Raises
        MessageTooLarge."""

    def ddl(self, event: DdlEvent, change: TableChange | None = None) -> Message | None:
        """Encode a DDL; None: the protocol has no message for it. A DDL over several tables is encoded table by table,
        each with its change."""

    def resolved(self, ts: int) -> Message | None:
        """Encode a resolved ts; None: the protocol has no message for it."""
