"""Reads DSN files: files on this host that contain the address of a server with its password. Error texts quote no path
and no content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tistream.errors import SourceRefused
from tistream.targets.mysql_url import MySqlUrl, parse_mysql_url

DSN_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class DsnFiles:
    """Reads the DSN files that requests for backfills name. directory: the folder that must contain them; None: no file
    may be read, so that backfills by SQL are refused."""

    directory: str | None

    def server(self, dsn_file: str) -> MySqlUrl:
        """Read the address of a server from a file, whose path begins at the directory. Raises SourceRefused if the
        file has no address; with one and the same text for a file outside of the directory and for one that does not
        exist."""
        text = read_dsn(self.directory, dsn_file)
        if text is None:
            raise SourceRefused(
                "dsn_file names no readable file below TISTREAM_INGEST__BACKFILL_DSN_DIR of the ingest service"
            )
        try:
            return parse_mysql_url(text.strip())
        except ValueError:
            raise SourceRefused("dsn_file: the file has no URL of the form mysql://user:password@host:port") from None


def read_dsn(directory: str | None, dsn_file: str) -> str | None:
    """The text of the file `dsn_file`, a path that begins at `directory`. None if the file does not exist, lies outside
    of the directory (links are followed), has more than DSN_BYTES_MAX bytes or cannot be read, or if `directory` is
    None."""
    if directory is None or "\0" in dsn_file:
        return None
    try:
        root = Path(directory).resolve(strict=True)
        path = (root / dsn_file).resolve(strict=True)  # links are followed, so none leads out of the directory
        if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > DSN_BYTES_MAX:
            return None
        return path.read_text("utf-8")
    except (OSError, ValueError, RuntimeError):
        return None
