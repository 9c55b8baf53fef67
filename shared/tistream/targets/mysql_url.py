"""Parses the URL of a MySQL, MariaDB or TiDB server: `mysql://user:password@host:port/database?option=value`."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

_FORM = "mysql://user:password@host:port/database?ssl_ca=FILE"
_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key")
_DEFAULT_PORT = 3306


@dataclass(frozen=True, slots=True)
class MySqlUrl:
    """A parsed URL. Its text, and the text of errors about it, never contains the password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str | None
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.host}:{self.port}/{self.database or ''}"


def parse_mysql_url(text: str) -> MySqlUrl:
    """Parse a URL. User, password and database may be percent-encoded. Raises ValueError, which shows the right form
    and nothing of the URL."""
    try:
        parts = urlsplit(text)
        port = parts.port or _DEFAULT_PORT
    except ValueError:
        raise ValueError(f"the target is not a URL of the form {_FORM}") from None
    if parts.scheme != "mysql" or not parts.hostname or not parts.username:
        raise ValueError(f"the target is not a URL of the form {_FORM}")
    options = tuple(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted({name for name, _ in options} - set(_OPTIONS))
    if unknown:
        raise ValueError(f"the target has the unknown option {unknown[0]!r}; known are {', '.join(_OPTIONS)}")
    database = unquote(parts.path.removeprefix("/")) or None
    return MySqlUrl(parts.hostname, port, unquote(parts.username), unquote(parts.password or ""), database, options)
