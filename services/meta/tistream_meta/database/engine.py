"""Opens the meta database: SQLite on one machine, MySQL in production. Both are used through SQLAlchemy Core."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import URL, BigInteger, ColumnElement, Engine, cast, create_engine, event, func, literal_column, util
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError

from tistream_meta.database.retries import cannot_write, code_of

BUSY_TIMEOUT_MS = 5_000
# For MySQL, in seconds. A transaction of a process that has vanished must not keep the owner's row locked for longer
# than an election may take.
IDLE_S = 8
LOCK_WAIT_S = 2
_SETTINGS = {
    "wait_timeout": IDLE_S,
    "innodb_lock_wait_timeout": LOCK_WAIT_S,
    "lock_wait_timeout": LOCK_WAIT_S,  # for a table that is being altered
    "time_zone": "'+00:00'",
    # Independent of the server's own settings: a value that does not fit is refused instead of truncated, and tables
    # have transactions.
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "default_storage_engine": "InnoDB",
}
_SESSION = "SET " + ", ".join(f"SESSION {name} = {value}" for name, value in _SETTINGS.items())
# Options that may follow the `?` of a MySQL URL. Others are refused: autocommit or a character set would break
# assumptions of this package.
_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_check_hostname", "read_default_file")
# The time of a statement's begin on the database's clock, whatever zone it is set to.
_MYSQL_NOW_MS = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of MySQL connections.

    `connections`: maximum per process. `answer_s`: how many seconds to wait for an answer before the connection is
    closed, because the database hangs or has vanished. It is longer than LOCK_WAIT_S, so that a statement which waits
    for a lock does not count as a database that hangs.
    """

    connections: int = 8
    answer_s: float = 4.0


DEFAULT_LIMITS = ConnectionLimits()


def checked_url(url: str) -> URL:
    """Parse the URL of a supported database. Raises ValueError, with a text that contains no password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the error's own text may quote parts of the URL
        raise ValueError(
            "it is not the URL of a database: write sqlite:///path or mysql+pymysql://user@host/db"
        ) from None
    if parsed.drivername not in ("sqlite", "mysql+pymysql"):
        raise ValueError(f"database {parsed.drivername!r} is not supported: use sqlite or mysql+pymysql")
    _check_options(parsed)
    return parsed


def _check_options(url: URL) -> None:
    """Check the options of a URL. Raises ValueError."""
    known = _OPTIONS if url.get_backend_name() == "mysql" else ()
    if unknown := sorted(url.query.keys() - set(known)):
        after = f"known are {', '.join(known)}" if known else "it takes no options"
        raise ValueError(f"option {unknown[0]!r} of a {url.get_backend_name()} URL is not known; {after}")
    if twice := sorted(name for name, value in url.query.items() if not isinstance(value, str)):
        raise ValueError(f"option {twice[0]!r} is there twice: give it once")
    if "ssl_check_hostname" in url.query:
        try:
            util.asbool(url.query["ssl_check_hostname"])
        except ValueError:
            raise ValueError("option 'ssl_check_hostname' is neither true nor false") from None


def open_engine(url: str, limits: ConnectionLimits = DEFAULT_LIMITS) -> Engine:
    """Make an SQLAlchemy engine for `sqlite:///path/meta.db` or `mysql+pymysql://user@host/db`. No connection is opened
    yet. Raises ValueError if the URL is malformed, or its database or an option is not supported."""
    parsed = checked_url(url)
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
        event.listen(engine, "connect", _sqlite_connected)
        event.listen(engine, "begin", _sqlite_begin)
        return engine
    engine = create_engine(
        parsed,
        # A transaction reads what others have committed once its first statement has won the lock.
        isolation_level="READ COMMITTED",
        pool_size=limits.connections,
        max_overflow=0,
        pool_timeout=limits.answer_s,
        pool_pre_ping=True,
        pool_recycle=1800,
        pool_use_lifo=True,  # unneeded connections become idle, and the server closes them
        connect_args={
            "connect_timeout": limits.answer_s,
            "read_timeout": limits.answer_s,
            "write_timeout": limits.answer_s,
            "init_command": _SESSION,
            "binary_prefix": True,  # keys are bytes, not text of any character set
        },
    )
    event.listen(engine, "handle_error", _close_if_read_only)
    return engine


def now_ms(engine: Engine) -> ColumnElement[int]:
    """An SQL expression for the database's clock, in ms since the Unix epoch. Leases use it, so that they do not depend
    on a node's clock."""
    if engine.dialect.name == "sqlite":
        return cast((func.julianday("now") - literal_column("2440587.5")) * 86_400_000, BigInteger)
    return literal_column(_MYSQL_NOW_MS, BigInteger)


def _close_if_read_only(context: ExceptionContext) -> None:
    """Close connections to a server that no longer accepts writes. After a fail-over, existing connections may still
    lead to the former primary, which answers every ping. Once they are closed, new connections resolve the server's
    name again."""
    if cannot_write(code_of(context.original_exception)):
        context.is_disconnect = True


def _sqlite_connected(connection: object, _record: object) -> None:
    # The driver's own BEGIN comes too late for reads. As SQLAlchemy's documentation recommends, BEGIN is sent in
    # _sqlite_begin.
    connection.isolation_level = None  # type: ignore[attr-defined]
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute("PRAGMA journal_mode=WAL")
    # With WAL a power cut may undo the last transactions under NORMAL: an epoch handed out must not come again.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.close()


def _sqlite_begin(connection: object) -> None:
    connection.exec_driver_sql("BEGIN")  # type: ignore[attr-defined]
