"""Opens the meta database: SQLite on one machine, MySQL in production, behind the same SQLAlchemy Core."""

from __future__ import annotations

from sqlalchemy import BigInteger, ColumnElement, Engine, cast, create_engine, event, func, literal_column
from sqlalchemy.engine import make_url

BUSY_TIMEOUT_MS = 5_000
# Of MySQL, in seconds. A transaction of a process that has vanished must not keep the owner's row locked for longer
# than an election may take, and a server that has vanished must not be waited for.
ANSWER_S = 20
LOCK_WAIT_S = 5
IDLE_S = 8
_SESSION = (
    f"SET SESSION wait_timeout = {IDLE_S}, "
    f"SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}, "
    "SESSION time_zone = '+00:00'"
)


def open_engine(url: str) -> Engine:
    """An engine for `sqlite:///path/meta.db` or `mysql+pymysql://user@host/db`. Nothing is opened yet."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
        event.listen(engine, "connect", _sqlite_connected)
        event.listen(engine, "begin", _sqlite_begin)
        return engine
    if parsed.get_backend_name() == "mysql":
        # READ COMMITTED: a transaction reads what others have committed once its first statement has won the lock.
        limits = {"connect_timeout": 5, "read_timeout": ANSWER_S, "write_timeout": ANSWER_S, "init_command": _SESSION}
        return create_engine(
            parsed, pool_pre_ping=True, pool_recycle=1800, isolation_level="READ COMMITTED", connect_args=limits
        )
    raise ValueError(f"database {parsed.get_backend_name()!r}: sqlite and mysql are known")


def now_ms(engine: Engine) -> ColumnElement[int]:
    """Milliseconds since the Unix epoch on the database's clock, as an expression: leases never meet a node's clock."""
    if engine.dialect.name == "sqlite":
        return cast((func.julianday("now") - literal_column("2440587.5")) * 86_400_000, BigInteger)
    return cast(func.unix_timestamp(func.now(3)) * 1000, BigInteger)


def _sqlite_connected(connection: object, _record: object) -> None:
    # The driver's own BEGIN comes too late for reads; SQLAlchemy's documentation has the remedy: we send it.
    connection.isolation_level = None  # type: ignore[attr-defined]
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute("PRAGMA journal_mode=WAL")
    # With WAL a power cut may undo the last transactions under NORMAL: an epoch handed out must not come again.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.close()


def _sqlite_begin(connection: object) -> None:
    connection.exec_driver_sql("BEGIN")  # type: ignore[attr-defined]
