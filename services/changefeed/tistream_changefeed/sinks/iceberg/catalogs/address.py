"""The address of a catalog. It is parsed once, after its secrets are filled in: what is checked is what is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tistream.errors import TargetNotAllowed
from tistream.secrets.references import filled, names_in
from tistream_changefeed.config.sink_uri import is_placeholder
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.sinks.allowed import check_hosts, storage_url

_REST = re.compile(
    r"(https?)://(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?(?:/[A-Za-z0-9._~%/:=,+-]*)?"
)
_REST_PORTS = {"http": 80, "https": 443}
_DRIVERS = {
    "mysql+pymysql": 3306,
    "mariadb+pymysql": 3306,
    "postgresql": 5432,
    "postgresql+psycopg2": 5432,
    "postgresql+psycopg": 5432,
}
_FILES = ("sqlite", "sqlite+pysqlite")
_OPTIONS = frozenset(
    ("application_name", "charset", "client_encoding", "connect_timeout", "read_timeout", "sslmode", "write_timeout")
)
_FILE_OPTIONS = frozenset(("ssl_ca", "sslrootcert"))  # their files lie where the operator allows files
_HOST, _DATABASE = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+"), re.compile(r"[\w$.-]*")


def check_address(kind: str, uri: str, allowed: Allowed) -> None:
    """Check the address of a catalog whose secrets are not known yet. `opened_address` checks it again with them.
    Raises TargetNotAllowed."""
    if not is_placeholder(uri):
        opened_address(kind, uri, dict.fromkeys(names_in(uri, {}), "x"), allowed)


def opened_address(kind: str, uri: str, values: Mapping[str, str], allowed: Allowed) -> str | URL:
    """Fill in the secrets of a catalog's address, percent-encoded, and check that the operator allows its host, or its
    file if it is SQLite. `kind`: "rest" or "sql". `values`: the values of the secrets by name. Returns what is to be
    opened. Raises TargetNotAllowed, whose text has no password."""
    quoted = values if is_placeholder(uri) else {name: quote(value, safe="") for name, value in values.items()}
    text = filled(uri, quoted)
    return _rest(text, allowed) if kind == "rest" else _sql(text, allowed)


def _rest(text: str, allowed: Allowed) -> str:
    found = _REST.fullmatch(text)
    if found is None:
        raise _refused("is not http://HOST:PORT/PATH or https://HOST:PORT/PATH; a user is given by token or credential")
    scheme, ipv6, host, port = found.groups()
    check_hosts([f"{(ipv6 or host).lower()}:{int(port or _REST_PORTS[scheme])}"], allowed.hosts)
    return text


def _sql(text: str, allowed: Allowed) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise _refused(
            "is not a URL of SQLAlchemy: write DRIVER://USER@HOST:PORT/DATABASE (`+` is %2B in a sink URI)"
        ) from None
    driver, known = url.drivername, sorted((*_DRIVERS, *_FILES))
    if driver not in known:
        raise _refused(f"has an unknown scheme: it may be {', '.join(known)} (`+` is %2B in a sink URI)")
    if driver in _FILES:
        if url.query or url.host or url.username or url.password or url.port:
            raise _refused("has more than a path: write sqlite:////PATH")
        storage_url(f"file://{url.database or ''}", allowed.file_urls)
        return url
    for name, value in url.query.items():
        if not isinstance(value, str) or name not in _OPTIONS | _FILE_OPTIONS:
            options = ", ".join(sorted(_OPTIONS | _FILE_OPTIONS))
            raise _refused(f"has the option {name[:40]!r}, and may have {options}, each once")
        if name in _FILE_OPTIONS:
            storage_url(f"file://{value}", allowed.file_urls)
    host, port = url.host or "", url.port or _DRIVERS[driver]
    if not _HOST.fullmatch(host) or not _DATABASE.fullmatch(url.database or ""):
        raise _refused(f"names no host or no database: write {driver}://USER@HOST:PORT/DATABASE")
    check_hosts([f"{host.lower()}:{port}"], allowed.hosts)
    return url.set(port=port)


def _refused(reason: str) -> TargetNotAllowed:
    return TargetNotAllowed(f"catalog-uri {reason}")
