"""Checks that the settings of this process allow a restore's target.

A target is written with the platform's own credentials, and a DSN file (the address of a server with its password) is
read from this host. So callers may use only targets that an operator of the host has listed. Error texts quote no path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from tistream.errors import TargetNotAllowed
from tistream.storage.open import check_url
from tistream.targets.mysql_url import MySqlUrl, parse_mysql_url
from tistream.wire.bulk.restores import MySqlPlace, Place
from tistream_ingest.sqlread.dsn_files import read_dsn

_PLAIN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class AllowedTargets:
    """The targets that the settings allow. `urls`: the prefixes with which a URL may begin. `dsn_dir`: the directory of
    DSN files; None if no server is allowed."""

    urls: Sequence[str]
    dsn_dir: str | None

    def check(self, place: Place) -> None:
        """Check a target. Raises TargetNotAllowed if the settings do not allow it, InvalidRequest if its URL is
        malformed."""
        if isinstance(place, MySqlPlace):
            self.server(place.dsn_file)
        else:
            self.check_url(place.url)

    def check_url(self, url: str) -> None:
        """Check the URL of a target. Raises TargetNotAllowed if no prefix allows it, InvalidRequest if it is
        malformed."""
        if not any(below(url, one) for one in self.urls):
            raise TargetNotAllowed(
                "target.url: no prefix in TISTREAM_INGEST__RESTORE_URLS of the ingest service allows this URL",
                {"parameter": "target.url"},
            )
        check_url(url)

    def server(self, dsn_file: str) -> MySqlUrl:
        """The address of the server that a DSN file contains. Raises TargetNotAllowed, with the same text for a file
        outside of the directory and for one that does not exist."""
        text = read_dsn(self.dsn_dir, dsn_file)
        if text is None:
            raise TargetNotAllowed(
                "target.dsn_file names no readable file below TISTREAM_INGEST__RESTORE_DSN_DIR of the ingest service",
                {"parameter": "target.dsn_file"},
            )
        try:
            return parse_mysql_url(text.strip())
        except ValueError:
            raise TargetNotAllowed(
                "target.dsn_file: the file has no URL of the form mysql://user:password@host:port",
                {"parameter": "target.dsn_file"},
            ) from None


def below(url: str, prefix: str) -> bool:
    """Whether a URL is the prefix or a location below it in the same store. The query strings, which may name an
    endpoint, must be equal."""
    place, _, options = url.partition("?")
    allowed, _, allowed_options = prefix.partition("?")
    if options != allowed_options or not allowed or not _PLAIN.fullmatch(url) or "\\" in unquote(place) or "#" in url:
        return False
    root = allowed.rstrip("/")
    if place.rstrip("/") != root and not place.startswith(root + "/"):
        return False
    rest = unquote(place[len(root) :]).strip("/")
    return not rest or all(part not in ("", ".", "..") and "\0" not in part for part in rest.split("/"))
