"""Runs transactions: again where the database has undone them for sure (retries.py), and translates what it says."""

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
    """No answer came to COMMIT: what was written may be there. It is read back before anything rests on it."""


class _Undone(Exception):
    """The transaction is undone for sure, and is worth another attempt."""


class Transactions:
    """Of one engine. Thread-safe: each `run` has a connection of its own."""

    def __init__(self, engine: Engine, rng: Random) -> None:
        self._engine, self._rng = engine, rng

    def run(self, body: Callable[[Connection], T]) -> T:
        """What `body` returns, once its transaction is committed. It may be called several times, each time in a
        transaction of its own: it does nothing but read and write there.

        Raises:
            CommitUnknown: the transaction may be committed.
            Unavailable: it is not.
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
        with self._engine.connect() as connection:  # one that cannot be had is not asked for again
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
    """Raises Unavailable for whatever the database, or the way to it, fails with."""
    try:
        yield
    except DBAPIError as error:
        raise Unavailable(f"meta database: {error.orig}") from error
    except SQLAlchemyError as error:
        raise Unavailable(f"meta database: {type(error).__name__}: {error}") from error
    except configparser.Error as error:  # its own text has lines of the file, in which there is a password
        told = f"the file of read_default_file cannot be understood: {type(error).__name__}"
        raise Unavailable(f"meta database: {told}") from None
    except OSError as error:  # a certificate's file that is not there
        raise Unavailable(f"meta database: {error}") from error
