"""`tistream restore`: writes tables as they were at a ts into a server or files, and compares the result with the
original."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tistream.clock import SystemClock
from tistream.errors import TiStreamError
from tistream.restore.fingerprint import Fingerprint, of_rows
from tistream.restore.linked_info import linked_info
from tistream.restore.table_names import TableNames, parse_names
from tistream.schema.tidb.create_table import Dialect, UnsupportedTable, table_statements
from tistream.schema.tidb.table import parse_table
from tistream.targets.mysql import TargetFailed
from tistream.targets.restored_table import (
    Chunk,
    Mark,
    Name,
    RestoredTable,
    RestoreTarget,
    TableExists,
    TargetRefused,
    restore_id,
)
from tistream_cli.restore.into import Into
from tistream_cli.restore.page_size import next_rows
from tistream_cli.restore.past import Past
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import LATER, CliError
from tistream_client.cli.times import ts_text
from tistream_client.core.errors import ApiError

_TRIES = 8  # attempts for one chunk while the API answers that it cannot serve it yet
_PAUSE_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The options of `tistream restore`. `names` is the text of the argument; `as_name` is the new name of a single
    table. `replace`: tables that exist in the target are replaced."""

    names: str
    at: str
    into: Into
    as_name: str | None = None
    replace: bool = False
    dialect: Dialect = Dialect.TIDB


@dataclass(slots=True)
class Restored:
    """The result of a restore: (name, fingerprint) of each complete table, and (name, reason) of each table that the
    target cannot hold."""

    tables: list[tuple[Name, Fingerprint]] = field(default_factory=list)
    left_out: list[tuple[Name, str]] = field(default_factory=list)


def run_restore(client: ApiClient, cluster: str, tenant: str, options: RestoreOptions) -> None:
    """Run the restore, and print one line for each table. Raises CliError, also if a table was left out."""
    names = _names(options)
    past = Past.at(client, cluster, tenant, ts_text(options.at, SystemClock().now_ms()))
    sys.stderr.write(f"restoring {names} of tenant {tenant} as of {past.ts} into {options.into}\n")
    if str(past.ts) != options.at:
        sys.stderr.write(f"if this is interrupted, the same command with --at {past.ts} continues where it was\n")
    target = options.into.open(options.dialect)
    found = Restoring(past, target, options, say=_say).run(names)
    if found.left_out:
        names_left = "; ".join(f"{'.'.join(name)}: {reason}" for name, reason in found.left_out)
        raise CliError(f"{len(found.tables)} tables were restored, and {len(found.left_out)} left out: {names_left}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _names(options: RestoreOptions) -> TableNames:
    try:
        names = parse_names(options.names)
    except ValueError as error:
        raise CliError(str(error)) from None
    if options.as_name is not None and names.table is None:
        raise CliError(
            f"--as gives one table a new name, and {options.names} names several tables: restore them one after the "
            "other"
        )
    return names


@dataclass(slots=True)
class Restoring:
    """Runs a restore. `say` prints a line."""

    past: Past
    target: RestoreTarget
    options: RestoreOptions
    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep

    def run(self, names: TableNames) -> Restored:
        """Restore the tables, then their foreign keys. Raises CliError."""
        restored = Restored()
        linked: list[RestoredTable] = []
        tables = list(self.past.tables(names))
        self._check_databases(tables)
        for name in tables:
            try:
                table = self._table(name)
            except UnsupportedTable as error:
                restored.left_out.append((name, str(error)))
                continue
            restored.tables.append((table.name, self._checked(self._restore, table)))
            if table.statements.foreign_keys is not None:
                linked.append(table)
        for table in linked:
            self._checked(self.target.add_foreign_keys, table)
        return restored

    def _check_databases(self, tables: list[Name]) -> None:
        databases = sorted({database for database, _ in tables})
        if self.options.into.database is not None and len(databases) > 1:
            raise CliError(
                f"{self.options.into} names one database, and the tables are of {', '.join(databases)}: restore them "
                "one after the other, or leave the database out of the URL"
            )

    def _table(self, source: Name) -> RestoredTable:
        info = self.past.definition(source)["info"]
        table = parse_table(info)
        name = (self.options.into.database or source[0], self.options.as_name or source[1])
        # Names of foreign keys are unique in a database, so a table that is restored beside its original gets no
        # foreign keys.
        alone = self.options.as_name is not None
        linked = {**info, "fk_info": None} if alone else linked_info(info, source[0], {source[0]: name[0]})
        statements = table_statements(linked, name, self.target.dialect)
        identity = restore_id(self.past.cluster, self.past.tenant, self.past.ts, source, name)
        return RestoredTable(source, name, table.visible_columns, statements, identity)

    def _checked(self, act: Callable[[RestoredTable], Any], table: RestoredTable) -> Any:
        name = ".".join(table.name)
        try:
            return act(table)
        except TableExists as error:
            raise CliError(
                f"{error} exists: --as gives the restored table another name, and --if-exists replace drops the one "
                "there"
            ) from error
        except (TargetFailed, TargetRefused, TiStreamError, ApiError, OSError) as error:
            again = f"; the same command with --at {self.past.ts} continues where it was"
            raise CliError(f"table {name}: {error}{again}") from error

    def _restore(self, table: RestoredTable) -> Fingerprint:
        mark = self.target.begin(table, replace=self.options.replace)
        seen = Fingerprint()
        whole = mark.chunk == 0  # otherwise, an earlier run has written some chunks
        page = (0, 0)
        while not mark.complete:
            mark, written, size = self._chunk(table, mark, next_rows(self.target.chunk_rows, *page))
            page = (written.rows, size)
            seen += written
        there = self.target.fingerprint(table)
        before = seen if whole else self._at_ts(table)
        if there is not None and there != before:
            raise CliError(
                f"table {'.'.join(table.name)} differs from what it was: the target has {there}, and it had {before}. "
                "If nothing else wrote into it, please report this; --if-exists replace restores it again"
            )
        self.say(f"{'.'.join(table.name)}: {before}{'' if there is None else ', equal in the target'}")
        return before

    def _chunk(self, table: RestoredTable, mark: Mark, rows: int) -> tuple[Mark, Fingerprint, int]:
        """Write the next page, of at most `rows` rows. Returns the progress after it, the fingerprint of its rows, and
        its size in bytes."""
        for tried in range(_TRIES):
            taken, size = Fingerprint(), 0

            def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                nonlocal taken, size
                for batch in batches:
                    taken += of_rows(batch, table.columns, self.target.compared)
                    size += batch.nbytes
                    yield batch

            page = self.past.rows(table.source, mark.cursor, rows)
            try:
                after = self.target.write(table, mark, Chunk(counted(iter(page.batches)), page.end))
            except LATER as error:
                if tried == _TRIES - 1:
                    raise
                self.sleep(max(getattr(error, "retry_after_s", None) or 0.0, min(2.0**tried, _PAUSE_MAX_S)))
                continue
            return after, taken, size
        raise AssertionError("the last try returns or raises")

    def _at_ts(self, table: RestoredTable) -> Fingerprint:
        """Read the table's rows at the ts again from the API, and compute their fingerprint."""
        total, cursor = Fingerprint(), None
        while True:
            page = self.past.rows(table.source, cursor, self.target.chunk_rows)
            for batch in page.batches:
                total += of_rows(batch, table.columns, self.target.compared)
            _, cursor = page.end()
            if cursor is None:
                return total
