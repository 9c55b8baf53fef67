"""The option --into of restores: a server, or a directory of files, that is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tistream.schema.tidb.create_table import Dialect
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.targets.mysql_tables import MySqlTables
from tistream.targets.mysql_url import MySqlUrl, parse_mysql_url
from tistream.targets.parquet_tables import ParquetTables
from tistream.targets.restored_table import RestoreTarget, TargetRefused
from tistream.targets.sql_files import SqlFiles
from tistream_client.cli.errors import AGAIN, FIX, USAGE, CliError

FORMS = "mysql://user:password@host:port/database, parquet:DIR, or sql:DIR"
_FILES: dict[str, Callable[[Path, Dialect], RestoreTarget]] = {"parquet": ParquetTables, "sql": SqlFiles}


@dataclass(frozen=True, slots=True)
class Into:
    """The parsed option --into. `database`: the database that receives all tables; None: each table goes into a
    database of its original name."""

    url: MySqlUrl | None
    files: tuple[str, Path] | None
    database: str | None

    def __str__(self) -> str:
        if self.files is not None:
            return ":".join(map(str, self.files))
        return str(self.url)

    def open(self, dialect: Dialect) -> RestoreTarget:
        """Open the target. `dialect` is the SQL dialect of files. Raises CliError."""
        try:
            if self.files is not None:
                form, directory = self.files
                return _FILES[form](directory, dialect)
            return MySqlTables(self.connect())
        except (TargetRefused, TargetFailed) as error:
            raise CliError(str(error)) from error

    def connect(self) -> MySqlTarget:
        """Connect to the server, without selecting the database, which may not exist yet. Raises CliError."""
        if self.url is None:
            raise CliError(f"--into {self} is not a server: use --into mysql://user:password@host:port/database", USAGE)
        url = self.url
        try:
            return MySqlTarget(MySqlUrl(url.host, url.port, url.user, url.password, None, url.options))
        except TargetFailed as error:
            raise CliError(str(error), AGAIN if error.no_answer else FIX) from error


def parse_into(into: str | None, into_file: Path | None) -> Into:
    """Parse --into, or the text in --into-file; exactly one of them must be given. The file keeps a password out of the
    list of processes. Raises CliError, whose text contains nothing of a URL."""
    if (into is None) == (into_file is None):
        raise CliError(
            f"give exactly one of --into ({FORMS}) and --into-file FILE, whose content is the text of --into", USAGE
        )
    text = _read(into_file) if into_file is not None else into
    assert text is not None
    form, colon, place = text.partition(":")
    if colon and form in _FILES:
        if not place:
            raise CliError(f"--into {form}: names no directory: write {form}:DIR", USAGE)
        return Into(None, (form, Path(place)), None)
    try:
        url = parse_mysql_url(text)
    except ValueError as error:
        raise CliError(f"--into: {error}; or use parquet:DIR or sql:DIR", USAGE) from None
    return Into(url, None, url.database)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"--into-file {path} cannot be read: {error}", USAGE) from error
