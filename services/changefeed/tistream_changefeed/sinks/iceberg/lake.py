"""Access to a catalog of Iceberg tables. A commit is one snapshot, and succeeds only if the table is as this object has
read or committed it last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    ResolveError,
    RESTError,
    SignError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
    ValidationException,
    WaitingForLockException,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    TableUpdate,
    UpdatesAndRequirements,
    UpdateTableMetadata,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.transforms import HourTransform
from sqlalchemy.exc import SQLAlchemyError

from tistream.errors import TargetNotAllowed
from tistream_changefeed.core.failure import FeedFailed, failed, refused, retry
from tistream_changefeed.sinks.iceberg.kept.history import branch, earlier, has_file_of
from tistream_changefeed.sinks.iceberg.lake_files import sweep
from tistream_changefeed.sinks.iceberg.marks import CURSOR, SEQUENCE, Told
from tistream_changefeed.sinks.iceberg.table_schema import COMMIT_TIME, Shape, first_schema
from tistream_changefeed.sinks.iceberg.target import Identifier, is_location, location
from tistream_changefeed.sinks.iceberg.upkeep import (
    DAY_MS,
    LOCATION,
    PROPERTIES,
    SWEPT,
    Keeping,
    expired,
    hourly_tag,
    old_tags,
)

CONFLICT = "conflict"  # the cause of a commit that was refused because the table has changed
_RETRIES = "commit.retry.num-retries"
_HOUR = PartitionSpec(PartitionField(COMMIT_TIME, 1_000, HourTransform(), "_commit_hour"))
_MANIFESTS = 100
_OTHER = (
    *(SQLAlchemyError, OSError, RESTError),
    *(ValueError, RuntimeError, pa.ArrowException),  # of metadata and files that cannot be read
    *(NoSuchNamespaceError, NoSuchPropertyException, NotInstalledError, ResolveError, SignError),
    *(ValidationError, ValidationException, WaitingForLockException),
)
"""What pyiceberg, pyarrow and the catalog's client raise besides. It may pass by itself."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit to a table: a snapshot that removes and adds files.

    summary: texts in the summary of the snapshot. now_ms: Unix time. properties, forgotten: properties of the table to
    set, and the names of those to remove. added, removed: data files. schema: the new schema of the table; None: it
    keeps its schema. resolved_ts: the snapshot is tagged with the hour of this ts, if it is the first of that hour;
    None: no tag. tag: another tag, which stays.
    """

    summary: Mapping[str, str]
    now_ms: int
    properties: Mapping[str, str] = field(default_factory=dict)
    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    schema: Schema | None = None
    resolved_ts: int | None = None
    forgotten: Sequence[str] = ()
    tag: str | None = None


class Lake:
    """A catalog of Iceberg tables. `connect` opens it, at the first call. `where` names it in errors. New tables are
    below the URL `warehouse`. `keeping`: which snapshots are kept. `allowed` checks the location of a table, and raises
    TargetNotAllowed. Every call may raise FeedFailed."""

    def __init__(
        self,
        connect: Callable[[], Catalog],
        where: str,
        warehouse: str,
        keeping: Keeping,
        allowed: Callable[[str], object],
    ) -> None:
        self._connect, self.where, self._warehouse = connect, where, warehouse
        self._keeping, self._allowed = keeping, allowed

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, which is opened at the first access."""
        with self.asking(self.where):
            return self._connect()

    def close(self) -> None:
        """Close the connections to the catalog."""
        if "catalog" in self.__dict__:
            self.catalog.close()

    def named(self, identifier: Identifier) -> str:
        """The name of a table in errors."""
        return f"{self.where}/{'.'.join(identifier)}"

    def load(self, identifier: Identifier) -> Table | None:
        """Read a table; None if it does not exist."""
        with self.asking(self.named(identifier)):
            try:
                return self._known(self.catalog.load_table(identifier))
            except NoSuchTableError:
                return None

    def create(
        self, identifier: Identifier, shape: Shape | None, properties: Mapping[str, str], name: str, now_ms: int
    ) -> Table:
        """Create a table without columns. `shape` None: the feed's own table. `name` must be unique: it is part of the
        table's location. `now_ms`: Unix time. Raises FeedFailed, for a retry, if the table exists."""
        where = self.named(identifier)
        place = location(self._warehouse, identifier, name)
        with self.asking(where):
            try:
                for depth in range(1, len(identifier)):
                    self._create_namespace(identifier[:depth])
                return self._known(
                    self.catalog.create_table(
                        identifier,
                        first_schema(shape or "table"),
                        place,
                        partition_spec=_HOUR if shape == "changes" else UNPARTITIONED_PARTITION_SPEC,
                        properties={**PROPERTIES, LOCATION: place, SWEPT: str(now_ms), **properties},
                    )
                )
            except TableAlreadyExistsError as error:
                raise retry("sink", where, "another worker has created it, or a view has its name") from error

    def _create_namespace(self, name: Identifier) -> None:
        try:
            self.catalog.create_namespace_if_not_exists(name)
        except NamespaceAlreadyExistsError:  # another worker was faster
            return

    def names(self, namespace: Identifier, prefix: str) -> list[Identifier]:
        """The tables of a namespace whose names begin with `prefix`."""
        with self.asking(self.named(namespace)):
            try:
                found = self.catalog.list_tables(namespace)
            except NoSuchNamespaceError:
                return []
        return [one for one in found if one[-1].startswith(prefix)]

    def rename(self, before: Identifier, after: Identifier) -> Table:
        """Rename a table. Returns the table that has the new name now. The caller must compare its id, because another
        worker may have replaced the table `before` in the meantime."""
        with self.asking(self.named(before)):
            for depth in range(1, len(after)):
                self._create_namespace(after[:depth])
            try:
                return self.catalog.rename_table(before, after)
            except TableAlreadyExistsError as error:
                raise retry("sink", self.named(after), "another worker has created it", CONFLICT) from error

    def told(self, table: Table) -> list[Told]:
        """The commits in the main branch: for each snapshot its sequence number, its summary, and whether it has a
        parent. The newest comes first; the last one is the oldest that has not expired. If those of the feed have
        expired, the snapshots of earlier metadata are followed too."""
        there, text = table.metadata.snapshots, table.properties.get(SEQUENCE, "")
        last = int(text) if text.isdecimal() else 0
        found = branch(table.metadata.current_snapshot_id, there)
        if found and last and not any(CURSOR in one.summary for one in found) and not found[-1].begins:
            with self.asking(self.named(table.name())):
                found = branch(table.metadata.current_snapshot_id, [*there, *earlier(table)])
                if not any(CURSOR in one.summary for one in found) and not found[-1].begins:
                    found[-1] = found[-1]._replace(lost=not has_file_of(table, last))
        return found

    def files(self, table: Table) -> list[DataFile]:
        """The data files of a table."""
        with self.asking(self.named(table.name())):
            return [task.file for task in table.scan().plan_files()]

    def commit(self, table: Table, change: Commit) -> None:
        """Commit to a table, and update the object `table` to the result. A change without data files makes a snapshot
        too. Once a day, files that no snapshot names are deleted. Raises FeedFailed with the cause CONFLICT if the
        table has changed since `table` was read."""
        where = self.named(table.name())
        if table.properties.get(_RETRIES) != "0":
            raise failed("sink", where, f"its property {_RETRIES} is not 0, so commits of a worker that is late would "
                         "be accepted: set it to 0, then resume the changefeed")  # fmt: skip
        with self.asking(where):
            sweeps = change.now_ms - int(table.properties.get(SWEPT, 0)) >= DAY_MS
        properties = {**change.properties, **({SWEPT: str(change.now_ms)} if sweeps else {})}
        try:
            with self.asking(where):
                transaction = QuickTransaction(table)
                if change.schema is not None:
                    _NewSchema(transaction, change.schema).commit()
                if properties:
                    transaction.set_properties(properties)
                if change.forgotten:
                    transaction.remove_properties(*change.forgotten)
                self._snapshot(transaction, change)
                transaction.commit_transaction()
                if sweeps and is_location(self._warehouse, table.location()):
                    sweep(table, change.now_ms)
        except FeedFailed as error:
            if error.failure.cause == CONFLICT and self.load(table.name()) is None:
                raise gone(where) from error
            raise

    def _snapshot(self, transaction: Transaction, change: Commit) -> None:
        update = transaction.update_snapshot(snapshot_properties=dict(change.summary))
        producer = update.overwrite() if change.removed else update.merge_append()
        for one in change.removed:
            producer.delete_data_file(one)
        for one in change.added:
            producer.append_data_file(one)
        producer.commit()  # first: a transaction keeps one condition on a snapshot, and drops those that come later
        refs = transaction.table_metadata.refs
        tags = {name: one.snapshot_id for name, one in refs.items() if name != "main"}
        if change.resolved_ts is not None:
            managed = ManageSnapshots(transaction)
            for name in old_tags(tags, change.resolved_ts, self._keeping):
                managed = managed.remove_tag(name)
                tags.pop(name)
            tag = hourly_tag(change.resolved_ts, tags)
            if tag is not None:
                managed = managed.create_tag(producer.snapshot_id, tag)
                tags[tag] = producer.snapshot_id
            managed.commit()
        if change.tag is not None:
            ManageSnapshots(transaction).create_tag(producer.snapshot_id, change.tag).commit()
            tags[change.tag] = producer.snapshot_id
        kept = {*tags.values(), producer.snapshot_id}
        there = [(one.timestamp_ms, one.snapshot_id) for one in transaction.table_metadata.snapshots]
        gone = expired(there, kept, self._keeping)
        if gone:
            ExpireSnapshots(transaction).by_ids(gone).commit()

    def merges_manifests(self, table: Table) -> bool:
        """Whether a table has more than _MANIFESTS manifests, so that a commit without files should merge them."""
        snapshot = table.metadata.current_snapshot()
        with self.asking(self.named(table.name())):
            return snapshot is not None and len(snapshot.manifests(table.io)) > _MANIFESTS

    def _known(self, table: Table) -> Table:
        self._allowed(table.location())
        return table

    @contextmanager
    def asking(self, where: str) -> Iterator[None]:
        """A context manager that converts the errors of the catalog and of files to FeedFailed. `where` names the table
        in them."""
        try:
            yield
        except FeedFailed:
            raise
        except CommitFailedException as error:
            raise retry("sink", where, f"another writer has changed the table: {error}", CONFLICT) from error
        except CommitStateUnknownException as error:
            raise retry("sink", where, f"no answer came to a commit: {error}") from error
        except (UnauthorizedError, ForbiddenError, OAuthError) as error:
            raise refused(where, str(error)) from error
        except TargetNotAllowed as error:
            raise failed("sink", where, str(error)) from error
        except NoSuchTableError as error:
            raise gone(where) from error
        except _OTHER as error:
            raise retry("sink", where, f"{type(error).__name__}: {error}") from error


class QuickTransaction(Transaction):
    """A transaction that computes its metadata once for each change. pyiceberg computes and copies it at each access,
    which is about twenty times in a commit, with all snapshots of the table."""

    _known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata of the table with the changes so far. It must not be changed."""
        before, updates = self._table.metadata, self._updates
        known = self._known
        if known is None or known[0] is not before or known[1] is not updates:
            known = self._known = before, updates, super().table_metadata
        return known[2]


def gone(where: str) -> FeedFailed:
    """Build the FeedFailed for a table that the feed has created, and that no longer exists under its name."""
    reason = (
        "another program has dropped, renamed or replaced the table: put it back, or resume the changefeed with its "
        "checkpoint_ts to create the table again without its earlier rows"
    )
    return failed("sink", where, reason, CONFLICT)


def rolled_back(where: str) -> FeedFailed:
    """Build the FeedFailed for a table whose current snapshot lacks the newest commit of the feed."""
    reason = (
        "another program has rolled the table back, replaced it (CREATE OR REPLACE), or restored an older state of it, "
        "so rows are missing: make the newest snapshot of this changefeed the current one again, or resume the "
        "changefeed with its checkpoint_ts to go on without these rows"
    )
    return failed("sink", where, reason, CONFLICT)


class _NewSchema(UpdateTableMetadata["_NewSchema"]):
    """Makes a schema the current one of a table, with the field ids that it has. pyiceberg's own update of a schema
    gives other ids to new fields."""

    def __init__(self, transaction: Transaction, schema: Schema) -> None:
        super().__init__(transaction)
        self._schema = schema

    def _commit(self) -> UpdatesAndRequirements:
        there = self._transaction.table_metadata.schemas
        same = next((one for one in there if one.fields == self._schema.fields), None)
        if same is not None:
            return (SetCurrentSchemaUpdate.model_validate({"schema-id": same.schema_id}),), ()
        number = max(one.schema_id for one in there) + 1
        schema = Schema(*self._schema.fields, schema_id=number)
        return (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})), ()
