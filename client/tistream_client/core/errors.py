"""Every exception that the client raises on purpose, and what to do about each.

* TiStreamError
  + WrongArgument          an argument of a call; the text names it and shows a right one
  + NotSupported           the platform has no such feature
  + NoAnswer               no answer, or only incomplete ones, for longer than `retry_for`
  + SchemaChanged          one Arrow stream cannot have the rows of two schemas
  + CheckpointMoved        another consumer has stored a cursor meanwhile: roll back
  + ApiError               the server refused the request
    - BadRequest (400)     Unauthenticated (401)   Forbidden (403)     UnknownName (404)    Conflict (409)
    - Gone (410)           Undecodable (422)       TooManyRequests (429)  Unavailable (503)  ServerError (others)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tistream_client.core.ts import to_datetime


class TiStreamError(Exception):
    """The base class of all exceptions that the client raises on purpose."""


class WrongArgument(TiStreamError, ValueError):
    """Raised if an argument cannot be used. `argument` is its name."""

    def __init__(self, argument: str, problem: str, right: str) -> None:
        super().__init__(f"{argument} {problem}; right: {right}")
        self.argument = argument


class NotSupported(TiStreamError):
    """Raised if the API of the platform has no such feature. The text says what works instead."""


class NoAnswer(TiStreamError):
    """Raised if the server gave no complete answer. No event is lost: repeat the call, or continue from the last
    cursor."""


class SchemaChanged(TiStreamError):
    """Raised if the table's columns changed in the range, and the result cannot have the rows of both schemas. A
    `reader` allows no change of columns. A table (`to_arrow`) allows added and dropped columns, but no change of a
    type. In Spark, it is raised for a value that does not fit its column's type, and in a stream also for an added
    column."""


class CheckpointMoved(TiStreamError):
    """Raised if the stored cursor is not the one at which the page begins, because another consumer of the same name
    has stored its own. Roll the transaction back, and load the checkpoint again."""


class ApiError(TiStreamError):
    """Raised if the server answered with an error (RFC 9457). `where` is the path of the request, and `problem` has the
    members of the answer's body. `retry_after_s`: the wait in seconds that the answer requests; None: none."""

    advice = "see the detail"

    def __init__(
        self, where: str, status: int, problem: Mapping[str, object], retry_after_s: float | None = None
    ) -> None:
        self.where = where
        self.status = status
        self.problem = dict(problem)
        self.retry_after_s = retry_after_s
        self.detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
        self.cause_id = _text(problem.get("cause_id"))
        self.parameter = _text(problem.get("parameter"))
        cause = f" [cause {self.cause_id}]" if self.cause_id else ""
        super().__init__(f"{status} for {where}: {self.detail}. {self.way_out()}{cause}")

    @property
    def code(self) -> str | None:
        """The error's code, such as `not-complete`; None if the answer is not of TiStream."""
        kind = self.problem.get("type")
        return kind[len(_PREFIX) :] if isinstance(kind, str) and kind.startswith(_PREFIX) else None

    def way_out(self) -> str:
        """What to do, as a sentence."""
        return f"What to do: {self.advice}"


class BadRequest(ApiError):
    """Raised if a parameter is malformed (400); `parameter` names it."""

    advice = "change the argument that the detail names"


class Unauthenticated(ApiError):
    """Raised if the request has no valid token (401)."""

    advice = "give TiStream(url, token_file=…) a file with a token that has not expired (`tistream token create`)"


class Forbidden(ApiError):
    """Raised if the token does not grant the call (403)."""

    advice = "use a token that grants it (`tistream token create --grant read:CLUSTER/TENANT`)"


class UnknownName(ApiError):
    """Raised if no cluster, tenant, database or table has this name (404)."""

    advice = "compare the name with tenant.databases() and tenant.tables(database)"


class Conflict(ApiError):
    """Raised if the platform cannot execute the call in its present state (409), for example read a table that was not
    backfilled."""

    advice = "change the state that the detail names; for `not-complete`, backfill the table"


class Gone(ApiError):
    """Raised if the requested time is below retention, or below the tenant's snapshot (410)."""

    @property
    def earliest_ts(self) -> int | None:
        """The lowest ts that can be read; None if the server did not state it."""
        found = _text(self.problem.get("earliest_ts"))
        return int(found) if found is not None and found.isdigit() else None

    @property
    def earliest_time(self) -> datetime | None:
        """The time of `earliest_ts`, in UTC; None if that is None."""
        return None if self.earliest_ts is None else to_datetime(self.earliest_ts)

    def way_out(self) -> str:
        """What to do, with the time at which history begins."""
        if self.earliest_time is None:
            return "What to do: begin later"
        return (
            f"What to do: begin at since={self.earliest_ts} ({self.earliest_time.isoformat()}) or later; "
            f"rows(at={self.earliest_ts}) has the rows as of then"
        )


class Undecodable(ApiError):
    """Raised if the next row cannot be decoded (422); `problem` has its table, key and reason."""

    advice = "continue after it with since=; the operator's runbook has the row"


class TooManyRequests(ApiError):
    """Raised if a limit of requests, of concurrent pulls or of memory is exceeded (429)."""

    advice = "wait for `retry_after_s`, or raise retry_for= of TiStream, which waits by itself"


class Unavailable(ApiError):
    """Raised if the server cannot answer now (408, 425, 502, 503, 504)."""

    advice = "try again later, or raise retry_for= of TiStream, which waits by itself"


class ServerError(ApiError):
    """Raised if the server failed, or if another program answered: any other status."""

    advice = "is the URL that of a TiStream API server? Its log has the cause"


_PREFIX = "tistream:"
_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: UnknownName,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    422: Undecodable,
    425: Unavailable,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def api_error(where: str, status: int, problem: Mapping[str, object], retry_after: str | None) -> ApiError:
    """The exception for an answer with this status. `retry_after` is the header of that name."""
    seconds = (
        float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None
    )
    return _BY_STATUS.get(status, ServerError)(where, status, problem, seconds)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
