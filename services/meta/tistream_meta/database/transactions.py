"""Runs transactions: retries those that the database has surely rolled back (retries.py), and converts the database's
errors to those of tistream.errors."""

from __future__ import annotations

import configparser
import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tistream.concurrency import sleep
from tistream.errors import Unavailable
from tistream_meta.database import retries

log = logging.getLogger(__name__)

T = TypeVar("T")


class CommitUnknown(Unavailable):
    """Raised if the answer to COMMIT did not arrive: the writes may be committed. The caller must read them back before
    it relies on them."""


class _Undone(Exception):
    """Raised if the transaction was rolled back for certain, and may be attempted again."""


class Transactions:
    """Runs transactions of one engine. Thread-safe: each `run` has a connection of its own."""

    def __init__(self, engine: Engine, rng: Random) -> None:
        self._engine, self._rng = engine, rng

    def run(self, body: Callable[[Connection], T]) -> T:
        """Call `body` in a transaction, and return what it returned once the transaction is committed. `body` may be
        called several times, each time in a transaction of its own, so it must only read and write the database.

        Raises:
            CommitUnknown: the transaction may be committed.
            Unavailable: it is not committed.
        """
        with translated():
            for attempt in itertools.count(1):
                try:
                    return self._once(body, attempt)
                except _Undone as undone:
                    log.warning("transaction undone: again", extra={"attempt": attempt, "error": str(undone)})
                sleep(retries.pause_s(attempt, self._rng.random()))
        raise AssertionError

    def _once(self, body: Callable[[Connection], T], attempt: int) -> T:
        with self._engine.connect() as connection:  # no retry if there is no connection
            committing = False
            try:
                with connection.begin():
                    found = body(connection)
                    committing = True
            except DBAPIError as error:
                code = retries.code_of(error.orig)
                lost = error.connection_invalidated
                if attempt < retries.attempts_max(code, lost=lost, committing=committing):
                    raise _Undone(str(error.orig)) from error
                if committing and code != retries.DEADLOCK:
                    raise CommitUnknown(f"meta database: unknown whether it has committed: {error.orig}") from error
                raise
        return found


@contextmanager
def translated() -> Iterator[None]:
    """A context manager in which every error of the database, or of the connection to it, is raised as Unavailable."""
    try:
        yield
    except DBAPIError as error:
        raise Unavailable(f"meta database: {error.orig}") from error
    except SQLAlchemyError as error:
        raise Unavailable(f"meta database: {type(error).__name__}: {error}") from error
    except configparser.Error as error:  # the error's own text quotes lines of the file, which contains a password
        problem = f"the file of read_default_file cannot be understood: {type(error).__name__}"
        raise Unavailable(f"meta database: {problem}") from None
    except OSError as error:  # for example a missing certificate file
        raise Unavailable(f"meta database: {error}") from error
