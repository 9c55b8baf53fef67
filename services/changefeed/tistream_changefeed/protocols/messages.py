"""Types of encoded messages, and the interface of the encoders of all protocols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tistream.schema.ddl_event import DdlEvent
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.row_batch import RowBatch


@dataclass(frozen=True, slots=True)
class ClaimFile:
    """A file that must be in the claim-check storage before the messages that refer to it are sent."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Messages:
    """One message for each event of a RowBatch, in the batch's order. `keys` and `values` are large_binary arrays of
    the batch's length. If `keys` is None, every message has a null key. A null value is a tombstone. `claims` are the
    files to which messages refer."""

    keys: pa.Array | None
    values: pa.Array
    claims: tuple[ClaimFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message that is not a row: a DDL, a resolved ts, or the schema of a table. It is sent to every partition of
    its topic, or with `every_partition` False to the first one only."""

    key: bytes | None
    value: bytes | None
    every_partition: bool = True


class Encoder(Protocol):
    """The encoder of one protocol, with its options."""

    @property
    def numbered(self) -> bool:
        """Whether rows must be decoded with the numbers of ENUM and SET, not their names."""

    @property
    def describes_tables(self) -> bool:
        """Whether DDL messages contain the definitions of tables."""

    def rows(self, batch: RowBatch) -> Messages:
        """Encode each event of the batch as a message of its own. If the protocol puts several events into a
        message, they are combined later. Raises MessageTooLarge, CannotEncode, and with a schema registry its
        errors."""

    def ddl(self, event: DdlEvent, changes: Sequence[TableChange] = ()) -> Message | None:
        """Encode a DDL; None if the protocol has no message for it. `changes` are the tables that it changed; the table
        that the DDL names comes first."""

    def resolved(self, ts: int) -> Message | None:
        """Encode a resolved ts; None if the protocol has no message for it."""
