"""The exception for an event that cannot be sent. It names the event's table. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tistream.errors import FatalError
from tistream.schema.visible import Name
from tistream_changefeed.protocols.limits import MessageTooLarge
from tistream_changefeed.rows.row_batch import RowBatch


class TableFailed(FatalError):
    """Raised if an event of this table cannot be sent. No event of the table at or above `commit_ts` is sent until a
    person has acted. `key` is the raw key if the error concerns a single row."""

    code = "table-failed"

    def __init__(self, name: Name, commit_ts: int, key: bytes | None, reason: str) -> None:
        super().__init__(reason)
        self.name, self.commit_ts, self.key = name, commit_ts, key
        self.table = ".".join(name)


@contextmanager
def naming(batch: RowBatch) -> Iterator[None]:
    """A context manager that converts each FatalError raised inside it to a TableFailed, which names the batch's
    table."""
    try:
        yield
    except TableFailed:
        raise
    except MessageTooLarge as error:
        raise TableFailed(batch.version.name, error.commit_ts, error.key, str(error)) from error
    except FatalError as error:
        reason = str(error) if batch.version.name[1] in str(error) else f"table {'.'.join(batch.version.name)}: {error}"
        raise TableFailed(batch.version.name, int(batch.commit_ts.min()), None, reason) from error
