"""Records the progress of a restore that writes files: the file `restore.json` in its directory, replaced atomically
after each chunk.

A chunk's file is written before the record that counts it. A restore that was killed in between writes the same rows to
the same file again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson

from tistream.targets.files import put_whole
from tistream.targets.restored_table import Mark, RestoredTable, TableExists, TargetRefused

MARKS = "restore.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class TableMark:
    """The progress of the restore of one table, and the paths of the files with its finished chunks, relative to the
    directory."""

    restore_id: str
    mark: Mark
    files: tuple[str, ...]


class DirectoryMarks:
    """The progress of all tables that are restored into one directory, which must contain nothing else."""

    def __init__(self, directory: Path) -> None:
        """Read the progress. If the directory does not exist, create it. Raises TargetRefused if the directory has
        files but no progress of a restore, or cannot be used."""
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if not (directory / MARKS).exists() and any(
                not (one.name.startswith(".") and one.name.endswith(".part")) for one in directory.iterdir()
            ):
                raise TargetRefused(f"{directory} has files but no {MARKS} of a restore: use an empty directory")
            self._tables = _parsed((directory / MARKS).read_bytes())
        except FileNotFoundError:
            self._tables = {}
        except (ValueError, KeyError, TypeError) as error:
            raise TargetRefused(f"{directory / MARKS} was not written by a restore: use an empty directory") from error
        except OSError as error:
            raise TargetRefused(
                f"{directory} cannot be used: {error.strerror or error}; correct that, or use another directory"
            ) from error

    def begin(self, table: RestoredTable, *, replace: bool) -> TableMark | None:
        """Return the progress of a table; None if this restore has not begun it. If another restore has written the
        table, its record and its files are removed with `replace`; without it, TableExists is raised."""
        found = self._tables.get(_key(table))
        if found is None or found.restore_id == table.restore_id:
            return found
        if not replace:
            raise TableExists(f"{'.'.join(table.name)} in {self._directory}")
        del self._tables[_key(table)]
        self._write()
        for name in found.files:
            (self._directory / name).unlink(missing_ok=True)
        return None

    def set(self, table: RestoredTable, mark: Mark, files: tuple[str, ...]) -> None:
        """Store the progress of a table, and the files of its finished chunks."""
        self._tables[_key(table)] = TableMark(table.restore_id, mark, files)
        self._write()

    def of(self, table: RestoredTable) -> TableMark:
        """The progress of a table. Raises KeyError if this restore has not begun it."""
        return self._tables[_key(table)]

    @property
    def files(self) -> list[str]:
        """The paths, relative to the directory, of the files that hold finished chunks of any table."""
        return [name for one in self._tables.values() for name in one.files]

    def _write(self) -> None:
        progress = {
            name: {
                "restore_id": one.restore_id,
                "chunks": one.mark.chunk,
                "rows": one.mark.rows,
                "cursor": one.mark.cursor,
                "files": one.files,
            }
            for name, one in self._tables.items()
        }
        body = orjson.dumps({"version": _VERSION, "tables": progress}, option=orjson.OPT_INDENT_2)
        put_whole(self._directory / MARKS, body)


def _key(table: RestoredTable) -> str:
    return orjson.dumps(table.name).decode()


def _parsed(body: bytes) -> dict[str, TableMark]:
    found = orjson.loads(body)
    if found["version"] != _VERSION:
        raise ValueError("unknown version")
    tables = {}
    for name, one in found["tables"].items():
        files = tuple(map(str, one["files"]))
        if any(Path(file).is_absolute() or ".." in Path(file).parts for file in files):
            raise ValueError("a file outside of the directory")
        tables[name] = TableMark(
            str(one["restore_id"]), Mark(int(one["chunks"]), int(one["rows"]), one["cursor"]), files
        )
    return tables
