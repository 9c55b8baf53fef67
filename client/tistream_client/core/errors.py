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
    """Root of the tree."""


class WrongArgument(TiStreamError, ValueError):
    """An argument cannot be used. `argument` is its name."""

    def __init__(self, argument: str, problem: str, right: str) -> None:
        super().__init__(f"{argument} {problem}; right: {right}")
        self.argument = argument


class NotSupported(TiStreamError):
    """The API of the platform has no such feature. The text says what works instead."""


class NoAnswer(TiStreamError):
    """The server gave no complete answer. Nothing was lost: the same call, or the last cursor, continues."""


class SchemaChanged(TiStreamError):
    """The table's columns changed in the range, and a single Arrow stream has one schema."""


class CheckpointMoved(TiStreamError):
    """The stored cursor is not the one at which this page begins, because another consumer of the same name has stored
    its own. Roll the transaction back, and load the checkpoint again."""


class ApiError(TiStreamError):
    """The server answered with an error (RFC 9457). `problem` has the members of its body."""

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
    """A parameter is malformed; `parameter` names it."""

    advice = "change the argument that the detail names"


class Unauthenticated(ApiError):
    """No valid token."""

    advice = "give TiStream(url, token_file=…) a file with a token that has not expired (`tistream token create`)"


class Forbidden(ApiError):
    """The token does not grant this."""

    advice = "use a token that grants it (`tistream token create --grant read:CLUSTER/TENANT`)"


class UnknownName(ApiError):
    """No cluster, tenant, database or table has this name."""

    advice = "compare the name with tenant.databases() and tenant.tables(database)"


class Conflict(ApiError):
    """The platform cannot do this in its present state, for example read a table that was not backfilled."""

    advice = "change the state that the detail names; for `not-complete`, backfill the table"


class Gone(ApiError):
    """The requested time is below retention, or below the tenant's snapshot."""

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
    """The next row cannot be decoded; `problem` has its table, key and reason."""

    advice = "continue after it with since=; the operator's runbook has the row"


class TooManyRequests(ApiError):
    """A limit of requests, of concurrent pulls or of memory is exceeded."""

    advice = "wait for `retry_after_s`, or raise retry_for= of TiStream, which waits by itself"


class Unavailable(ApiError):
    """The server cannot answer now."""

    advice = "try again later, or raise retry_for= of TiStream, which waits by itself"


class ServerError(ApiError):
    """The server failed, or another program answered."""

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
