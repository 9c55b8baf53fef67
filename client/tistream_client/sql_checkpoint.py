"""A cursor in a table of the consumer's own database, written in the transaction that writes the consumer's rows. Both
are committed or neither, so each event takes effect exactly once. SQLAlchemy is imported by the first checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tistream_client.core.errors import CheckpointMoved, WrongArgument
from tistream_client.core.events import Position

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table
    from sqlalchemy.orm import Session

    Executing = Connection | Session

_NAME_MAX = 128


class SqlCheckpoint:
    """The cursor of the consumer `name`, as a row of `table`.

    checkpoint = SqlCheckpoint("orders-copy")
    with engine.begin() as connection:
        checkpoint.create(connection)
        cursor = checkpoint.on(connection).load()
    for page in orders.changes(since="1h", cursor=cursor).pages(follow=True):
        with engine.begin() as connection:
            write(connection, page.events)
            checkpoint.on(connection).save(page)
    """

    def __init__(self, name: str, table: str = "tistream_checkpoints") -> None:
        from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text  # noqa: PLC0415 - only for this class
        from sqlalchemy.dialects.mysql import VARCHAR  # noqa: PLC0415

        if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX:
            raise WrongArgument("name", f"is {name!r}, and no text of 1 to {_NAME_MAX} characters", '"orders-copy"')
        if not isinstance(table, str) or not table:
            raise WrongArgument("table", f"is {table!r}", '"tistream_checkpoints"')
        # MySQL's default collations take names that differ in case or accents for one.
        exact = VARCHAR(_NAME_MAX, charset="utf8mb4", collation="utf8mb4_bin")
        self._name = name
        self._table = Table(
            table,
            MetaData(),
            Column("name", String(_NAME_MAX).with_variant(exact, "mysql", "mariadb"), primary_key=True),
            Column("cursor_text", Text, nullable=False),
            Column("resolved_ts", BigInteger),
        )

    def create(self, connection: Executing) -> None:
        """Create the table, unless it exists. MySQL commits the open transaction before that."""
        from sqlalchemy.orm import Session  # noqa: PLC0415

        self._table.create(connection.connection() if isinstance(connection, Session) else connection, checkfirst=True)

    def on(self, connection: Executing) -> OnConnection:
        """The checkpoint in the open transaction of a Connection or a Session. With an AsyncConnection:
        `await connection.run_sync(lambda it: checkpoint.on(it).save(page))`."""
        return OnConnection(self._name, self._table, connection)


@dataclass(frozen=True, slots=True)
class OnConnection:
    """A Checkpoint in one transaction, which the caller commits."""

    name: str
    table: Table
    connection: Executing

    def load(self) -> str | None:
        """The stored cursor; None before the first `save`."""
        return self._stored(lock=False)

    def save(self, position: Position) -> None:
        """Store the cursor of a page. Save each page, also one without events, because the stored cursor must be the
        one at which the page begins. Raises CheckpointMoved if it is not."""
        from sqlalchemy.exc import IntegrityError  # noqa: PLC0415

        stored = self._stored(lock=True)
        values = {"cursor_text": position.cursor, "resolved_ts": position.resolved_ts}
        if stored is None:
            try:
                self.connection.execute(self.table.insert().values(name=self.name, **values))
            except IntegrityError as error:
                raise self._moved() from error
            return
        if stored != position.after:
            raise self._moved()
        self.connection.execute(self.table.update().where(self.table.c.name == self.name).values(**values))

    def _stored(self, *, lock: bool) -> str | None:
        query = self.table.select().where(self.table.c.name == self.name)
        row = self.connection.execute(query.with_for_update() if lock else query).first()
        return None if row is None else str(row.cursor_text)

    def _moved(self) -> CheckpointMoved:
        return CheckpointMoved(
            f"the cursor of {self.name!r} in {self.table.name} is not that at which this page begins. Does another "
            "consumer use this name, or was a page not saved? Roll back, load the checkpoint, and pull from there"
        )
