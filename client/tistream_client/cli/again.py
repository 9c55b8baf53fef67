"""Decides whether and when a request is sent again, after its answer was cut off or was a temporary error. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream_client.cli.errors import AGAIN, CliError, Refused, failed
from tistream_client.core.errors import ApiError

_FOLLOW_S = 1.0
_FIRST_S = 0.5
_LONGEST_S = 10.0
_PATIENCE_S = 60.0


@dataclass(slots=True)
class Patience:
    """The waits of one read before it sends a request again. With `follow`, each wait is a second, and there is no
    limit. Without, a wait is twice as long as the one before, or as long as the server asks, and the read gives up
    after a minute of waits without a new event or cursor."""

    follow: bool
    _at: tuple[int, str | None] = field(default=(0, None), init=False)
    _waited: float = field(default=0.0, init=False)
    _pause: float = field(default=_FIRST_S, init=False)

    def seconds(self, error: Exception, events: int, cursor: str | None) -> float | None:
        """For how many seconds to wait after `error` before the next request; None: give up. `events` is the number of
        events that the read has received so far, and `cursor` its last cursor."""
        if self.follow:
            return _FOLLOW_S
        if isinstance(error, CliError) and error.status != AGAIN:
            return None
        if (events, cursor) != self._at:
            self._at, self._waited, self._pause = (events, cursor), 0.0, _FIRST_S
        wanted = error.retry_after_s if isinstance(error, ApiError) else None
        found = self._pause if wanted is None else wanted
        if self._waited + found > _PATIENCE_S:
            return None
        self._waited, self._pause = self._waited + found, min(2 * self._pause, _LONGEST_S)
        return found


def waited_for(error: CliError | ApiError) -> str:
    """What a read waits out. The text of `error` without its advice, because the read itself sends the request
    again."""
    cause = error.refusal if isinstance(error, Refused) else error
    return f"{cause.where}: {cause.detail}" if isinstance(cause, ApiError) else str(cause)


def given_up(
    error: CliError | ApiError,
    cursor: str | None,
    after_cursor: int,
    option: str = "--cursor",
    *,
    same_command: bool = False,
) -> CliError:
    """The error of a read that ends because of `error`. Its text has one way to continue. `cursor` is the last cursor
    in the output; None: the output has no cursor, or with `same_command`, running the same command again continues.
    `after_cursor`: the number of events in the output after that cursor. `option` is the option of the command that
    takes the cursor."""
    if cursor is None:
        found = failed(error) if isinstance(error, ApiError) else error
        if same_command and found is error and found.status == AGAIN:
            return CliError(f"{error}; run the same command again", AGAIN)
        return (
            CliError(f"{found}; the first {after_cursor} events are written", found.status) if after_cursor else found
        )
    written = f", of whose events the first {after_cursor} are written" if after_cursor else ""
    wanted = error.retry_after_s if isinstance(error, ApiError) else None
    way_out = f"; to continue{'' if wanted is None else f' after {wanted:g} s'}: {option} {cursor}{written}"
    return failed(error, way_out) if isinstance(error, ApiError) else CliError(f"{error}{way_out}", error.status)
