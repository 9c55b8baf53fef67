"""Errors of commands, and their exit statuses. `main` prints an error as one line on stderr, and exits with its
status."""

from __future__ import annotations

from tistream_client.core.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    ServerError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)

FIX = 1  # the same command fails again until something is changed
USAGE = 2  # the command line is wrong, as Typer says it too
AGAIN = 75  # the same command may succeed later (EX_TEMPFAIL of sysexits.h)
TOKEN_FILE, TOKEN = "TISTREAM_TOKEN_FILE", "TISTREAM_TOKEN"


class CliError(Exception):
    """Raised if a command failed. The text names what was attempted, and what to do."""

    status = FIX

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        if status is not None:
            self.status = status


class Refused(CliError):
    """Raised if the API refused a request: `refusal` is its answer."""

    def __init__(self, text: str, status: int, refusal: ApiError) -> None:
        super().__init__(text, status)
        self.refusal = refusal


class NoAnswer(CliError):
    """Raised if the API server did not answer, or its answer ended early."""

    status = AGAIN


class NoVerdict(CliError):
    """Raised if a verification could not begin, or was not complete. So it shows neither success nor a violation, and
    has an exit status of its own."""

    status = 3


LATER = (NoAnswer, TooManyRequests, Unavailable)  # what the caller may try again

# The option for a time that a call refused as too early, by the end of the call's path.
_EARLIEST = {
    "/rows": "read --at",
    "/restores": "read --at",
    "/definition": "read --at",
    "/undos": "undo what was committed at",
    "/changefeeds": "begin with `changefeed create --start-ts`",
    "/resume": "continue with --checkpoint-ts",
    "/verify": "compare --from-ts",
}
_WAYS_OUT: dict[type[ApiError], str] = {
    Unauthenticated: f"; `tistream --token-file FILE …` or {TOKEN_FILE} names a file with a token",
    Forbidden: "; `tistream token create --grant ACTIONS:CLUSTER/TENANT` makes a token that may do this",
}


def failed(error: ApiError, way_out: str | None = None) -> Refused:
    """The error of a command whose request the API refused. Its text is the detail of `error`, then `way_out`, which
    says what to do; None: what usually helps against such an error."""
    text = error.detail if error.code is not None and not isinstance(error, LATER) else f"{error.where}: {error.detail}"
    cause = f" [cause {error.cause_id}]" if error.cause_id and error.status >= 500 else ""
    way_out = _way_out(error) if way_out is None else way_out
    return Refused(f"{text}{way_out}{cause}", AGAIN if isinstance(error, LATER) else FIX, error)


def _way_out(error: ApiError) -> str:
    if type(error) in _WAYS_OUT:
        return _WAYS_OUT[type(error)]
    if isinstance(error, BadRequest) and error.detail.startswith("unknown parameter"):
        return f"; the server is older than this command: leave out --{error.parameter}, or upgrade the server"
    if isinstance(error, Gone) and error.earliest_ts is not None and error.earliest_time is not None:
        return _earliest(error.where.partition("?")[0], error.earliest_ts, error.earliest_time.isoformat())
    if isinstance(error, LATER):
        wait = f" after {error.retry_after_s:g} s" if error.retry_after_s is not None else " later"
        return f"; run the same command again{wait}"
    if isinstance(error, ServerError) and error.code is None:
        return "; is --url that of a TiStream API server?"
    return ""


def _earliest(path: str, ts: int, time: str) -> str:
    """The end of an error text for a call that asked for a time before the earliest ts: `ts`, and `time`, the same as
    text. It names the option of the command that made the call of `path`; for a transaction it gives only the time."""
    if "/transactions/" in path:
        return f", which is {time}"
    option = next((text for end, text in _EARLIEST.items() if path.endswith(end)), "begin at --since")
    return f"; {option} {ts} ({time}) or later"
