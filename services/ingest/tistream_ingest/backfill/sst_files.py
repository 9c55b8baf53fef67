"""Reads TiKV's SST files from a local folder. Runs in Spark's workers.

A file in the usual form, whose SHA-256 was checked, is decoded here (sst_table.py). Any other file is read by RocksDB
itself (the wheel `rocksdict`): it is ingested into an empty database, which links it, and is iterated. RocksDB checks
the checksum of each block.
"""

from __future__ import annotations

import hashlib
import mmap
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import rocksdict

from tistream.decode.mvcc.sst_table import MAGIC, TableEntries, TableMalformed, open_table
from tistream.errors import CorruptObject
from tistream.format.br.full_backup import BackupFile, SstPair
from tistream.model.span import KeySpan
from tistream.schema.tidb.meta_key import encode_bytes
from tistream.storage.object_store import ObjectStore
from tistream_ingest.backfill.sst_rows import RowJoiner, SstMismatch

BATCH_ROWS = 16_384
PIECE_BYTES = 8 << 20
SST_BYTES_MAX = 8 << 30  # TiKV writes one file for each region and family; regions have some 100 MiB to some GiB
REMEDY = "copy the backup again from where it was taken, or take a new one"


@dataclass(frozen=True, slots=True)
class LocalPair:
    """A pair of SST files that was copied to a local folder."""

    pair: SstPair
    folder: Path


def fetch_pair(backup: ObjectStore, pair: SstPair, folder: Path) -> LocalPair:
    """Copy a pair of files from the backup's object store to an empty folder, and check them. Raises NotFoundYet,
    CorruptObject, Unavailable."""
    for file in (pair.write, pair.default):
        if file is not None:
            _fetch(backup, file, folder / f"{file.cf}.sst")
    return LocalPair(pair, folder)


def read_rows(local: LocalPair, span: KeySpan, base_ts: int) -> Iterator[pa.Table]:
    """Read the rows of a span, in key order. Yields tables of base_chunk.SCHEMA with at most BATCH_ROWS rows.

    Raises CorruptObject, also if the whole pair lies in the span and its number of rows differs from the one in the
    backup's metadata.
    """
    pair, joiner = local.pair, RowJoiner(base_ts)
    try:
        with ExitStack() as stack:
            write = stack.enter_context(_opened(local.folder, pair.write, span))
            default = None if pair.default is None else stack.enter_context(_opened(local.folder, pair.default, span))
            while True:
                keys, values = write.next(BATCH_ROWS)
                if not len(keys):
                    break
                batch = joiner.lacking(keys, values)
                extra = _NOTHING if default is None else default.next(batch.missing)
                table = batch.rows(*extra)
                if table.num_rows:
                    yield table
            if default is not None and len(default.next(1)[0]):
                raise SstMismatch("its default file has values that no write record needs")
    except (SstMismatch, TableMalformed) as error:
        raise CorruptObject(pair.write.name, f"{error}; {REMEDY}") from error
    except _RocksError as error:
        raise CorruptObject(pair.write.name, str(error)) from error
    whole = span.start <= pair.write.start_key and (not span.end or b"" < pair.write.end_key <= span.end)
    if whole and joiner.entries != pair.rows:
        raise CorruptObject(pair.write.name, f"holds {joiner.entries} rows; the backup states {pair.rows}; {REMEDY}")


class _RocksError(Exception):
    """Raised if RocksDB rejects a file, or a block of a file."""


_NOTHING = (pa.array([], pa.large_binary()), pa.array([], pa.large_binary()))


class _Entries(Protocol):
    """Iterates over the entries of one SST file in key order."""

    def next(self, count: int) -> tuple[pa.Array, pa.Array]:
        """Read up to `count` further entries. Returns their keys and values, as large_binary arrays. Raises
        TableMalformed, _RocksError."""


class _RocksEntries:
    """Implements _Entries by RocksDB. Keys and values come from two iterators, each of which runs in C."""

    def __init__(self, database: Any, options: Any, first: bytes) -> None:
        self._keys = database.keys(from_key=first, read_opt=options())
        self._values = database.values(from_key=first, read_opt=options())

    def next(self, count: int) -> tuple[pa.Array, pa.Array]:
        try:
            keys, values = list(islice(self._keys, count)), list(islice(self._values, count))
        except Exception as error:  # rocksdict raises plain exceptions
            raise _RocksError(f"RocksDB cannot read it: {error}; {REMEDY}") from error
        return pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())


@contextmanager
def _opened(folder: Path, file: BackupFile, span: KeySpan) -> Iterator[_Entries]:
    """Open a file of the folder, for its entries with keys in the span."""
    first = b"z" + encode_bytes(span.start) if span.start else b"z"
    last = b"z" + encode_bytes(span.end) if span.end else b"{"
    path = folder / f"{file.cf}.sst"
    with path.open("rb") as opened:
        # The mapping ends with the last view of it.
        data = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    table = open_table(data) if file.sha256 else None
    if table is not None:
        yield TableEntries(table, first, last)
    else:
        with _by_rocksdb(path, first, last) as entries:
            yield entries


@contextmanager
def _by_rocksdb(path: Path, first: bytes, last: bytes) -> Iterator[_Entries]:
    place = path.with_suffix(".db")
    shutil.rmtree(place, ignore_errors=True)
    try:
        database = rocksdict.Rdict(str(place), rocksdict.Options(raw_mode=True))
    except Exception as error:
        raise _RocksError(f"RocksDB cannot open a database in {path.parent}: {error}") from error
    try:
        try:
            database.ingest_external_file([str(path)])
        except Exception as error:
            raise _RocksError(f"is not an SST file that RocksDB reads: {error}; {REMEDY}") from error

        def options() -> Any:
            chosen = rocksdict.ReadOptions()
            chosen.set_verify_checksums(True)
            chosen.set_iterate_upper_bound(last)
            return chosen

        yield _RocksEntries(database, options, first)
    finally:
        database.close()
        shutil.rmtree(place, ignore_errors=True)


def _fetch(objects: ObjectStore, file: BackupFile, path: Path) -> None:
    key = file.name
    size = objects.head(key).size
    if file.size and size != file.size:
        raise CorruptObject(key, f"has {size} bytes; the backup records {file.size}; {REMEDY}")
    if size > SST_BYTES_MAX:
        raise CorruptObject(
            key, f"has {size} bytes; no more than {SST_BYTES_MAX} are read: take a backup with smaller files"
        )
    digest = hashlib.sha256()
    with path.open("wb") as out:
        for at in range(0, size, PIECE_BYTES):
            piece = objects.get_range(key, at, min(PIECE_BYTES, size - at))
            digest.update(piece)
            out.write(piece)
    if path.stat().st_size != size:
        raise CorruptObject(key, f"ends at {path.stat().st_size}, not at {size}: truncated; {REMEDY}")
    if file.sha256 and digest.digest() != file.sha256:
        raise CorruptObject(key, f"fails its SHA-256 {file.sha256.hex()}; {REMEDY}")
    with path.open("rb") as opened:
        opened.seek(max(0, size - len(MAGIC)))
        if opened.read() != MAGIC:
            raise CorruptObject(
                key,
                "does not end as an SST file does: it is encrypted, or no SST file; take a backup without encryption",
            )
