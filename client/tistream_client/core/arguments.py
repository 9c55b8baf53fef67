"""Checks of arguments. Each raises WrongArgument with the argument's name and a right value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from tistream_client.core.errors import WrongArgument

PAGE_SIZE_MAX = 1_000_000
KEYSPACE_MAX = (1 << 24) - 1
EVENTS = ("all", "rows", "ddl")
OPERATIONS = ("insert", "update", "delete")
_URL = "http://127.0.0.1:8000"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_BELOW = re.compile(r"/(v1|console|docs|openapi\.json|healthz|readyz)(/.*)?$")  # pages of an API server
KeyLike = Mapping[str, str | int | float]


def base_url(url: str) -> str:
    """Check the URL of an API server. Returns it without the slash at its end. Raises WrongArgument if it has a
    password, or is not http:// or https:// with a host and at most a path."""
    if not isinstance(url, str):
        raise WrongArgument("url", f"is {url!r}", f'"{_URL}"')
    if "@" in url:  # before anything that repeats the URL: it may have a password
        raise WrongArgument("url", "has a user, and maybe a password", f'"{_URL}"; token= or token_file= names a token')
    try:
        parts = urlsplit(url)
        host = parts.hostname and (parts.port or True)
    except ValueError as error:
        raise WrongArgument("url", f"{url!r} is no URL ({error})", f'"{_URL}"') from None
    if parts.scheme not in ("http", "https"):
        raise WrongArgument("url", f"{url!r} does not begin with http:// or https://", f'"{_URL}"')
    if not host:
        raise WrongArgument("url", f"{url!r} names no host", f'"{_URL}"')
    if parts.query or parts.fragment:
        raise WrongArgument("url", f"{url!r} has a query or a fragment", f'"{_URL}"')
    if below := _BELOW.search(parts.path):
        right = url[: url.rindex(below[0])]
        raise WrongArgument("url", f"{url!r} names a page or a call, and not the server", f'"{right}"')
    return url.rstrip("/")


def platform_id(argument: str, value: object) -> str:
    """Check the id of a cluster or a tenant, and return it as text. A number is accepted too."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not _ID.fullmatch(text):
        problem = f"is {value!r}, and an id is 1 to 63 letters, digits, - and _, of which the first is no - or _"
        raise WrongArgument(argument, problem, 'tenant("7", "acme")')
    return text


def name(argument: str, value: object, right: str) -> str:
    """Check that the value of `argument` is a text that is not empty, and return it. `right` is the correct value that
    an error shows."""
    if not isinstance(value, str) or not value:
        raise WrongArgument(argument, f"is {value!r}, and not a name", right)
    return value


def table_name(database: object, table: object) -> tuple[str, str]:
    """Check the arguments that name a table, and return (database, table). If `table` is None, `database` names both:
    `"shop.orders"`."""
    right = '"shop", "orders"'
    if table is None:
        found = name("database", database, right).split(".")
        if len(found) != 2 or not all(found):
            raise WrongArgument("table", f"is missing beside database {database!r}", f'{right}, or "shop.orders"')
        return found[0], found[1]
    return name("database", database, right), name("table", table, right)


def column_names(value: object) -> tuple[str, ...] | None:
    """Check that the value is a list of different names of columns, and return it as a tuple; None: all columns."""
    right = 'columns=["id", "total"]'
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise WrongArgument("columns", f"is {value!r}, and not a list of names", right)
    found = tuple(value)
    if not found or not all(isinstance(one, str) and one and "," not in one for one in found):
        raise WrongArgument("columns", f"is {value!r}, and not a list of names", right)
    twice = sorted({one for one in found if found.count(one) > 1})
    if twice:
        raise WrongArgument("columns", f"names {twice[0]!r} twice", right)
    return found


def events_kind(value: object) -> str:
    """Check that the value is one of EVENTS, and return it."""
    if value not in EVENTS:
        raise WrongArgument("events", f"is {value!r}", f"one of {', '.join(map(repr, EVENTS))}")
    return str(value)


def page_size(value: object) -> int:
    """Check the maximum number of events in a page (1 to PAGE_SIZE_MAX), and return it."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PAGE_SIZE_MAX:
        raise WrongArgument("page_size", f"is {value!r}", f"page_size=10_000, at most {PAGE_SIZE_MAX}")
    return value


def key_of_row(argument: str, value: KeyLike | None) -> dict[str, str | int | float] | None:
    """Check the argument `argument`, the key of a row by column name, as events have it. Returns a copy; None for None.
    Raises WrongArgument."""
    if value is None:
        return None
    right = f'{argument}={{"id": 1}}'
    if not isinstance(value, Mapping) or not value:
        raise WrongArgument(argument, f"is {value!r}, and not the columns of a key", right)
    for column, part in value.items():
        if not isinstance(column, str) or isinstance(part, bool) or not isinstance(part, (str, int, float)):
            raise WrongArgument(argument, f"has {column!r}: {part!r}, and no text or number", right)
    return dict(value)


def condition(value: object) -> str | None:
    """Check that the value is a text that is not blank, and return it; None: no condition. The server parses it as a
    SQL expression over columns."""
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise WrongArgument("where", f"is {value!r}, and not a SQL expression", 'where="total > 100"')
    return value


def operation_kinds(value: object) -> tuple[str, ...] | None:
    """Check that the value is a list of OPERATIONS, and return it as a tuple; None: all of them."""
    right = 'operations=["insert", "update"]'
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise WrongArgument("operations", f"is {value!r}, and not a list of operations", right)
    for one in value:
        if one not in OPERATIONS:
            raise WrongArgument("operations", f"has {one!r}, and an operation is {', '.join(OPERATIONS)}", right)
    return tuple(value)


def table_rules(value: object) -> tuple[str, ...] | None:
    """Check that the value is a list of rules that select tables, and return it as a tuple; None: every table."""
    right = 'tables=["shop.*", "!shop.secret"]'
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise WrongArgument("tables", f"is {value!r}, and not a list of rules", right)
    if not all(isinstance(one, str) and one.strip() for one in value):
        raise WrongArgument("tables", f"is {value!r}, and not a list of rules", right)
    return tuple(value)


def retry_for(value: object) -> float | None:
    """Check for how many seconds requests are retried, and return the number; None: for ever."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
        raise WrongArgument("retry_for", f"is {value!r}", "retry_for=60, or None to try for ever")
    return None if value is None else float(value)


def keyspace_id(value: object) -> int | None:
    """Check the id of a keyspace of RawKV, and return it; None: every keyspace."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= KEYSPACE_MAX:
        raise WrongArgument("keyspace", f"is {value!r}", f"keyspace=0, at most {KEYSPACE_MAX}")
    return value


def raw_key(argument: str, value: object) -> bytes:
    """Check a bound of a range of keys of RawKV, and return it; None becomes the empty key."""
    if value is not None and not isinstance(value, bytes):
        raise WrongArgument(argument, f"is {value!r}, and not bytes", f'{argument}=b"user/"')
    return value or b""
