"""Signs requests as services do, for commands that run in a service's container and call meta servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tistream_client.cli.errors import CliError

KEY_FILE = "TISTREAM_SERVICE_KEY_FILE"


def signing() -> Callable[[], dict[str, str]] | None:
    """Make a function that returns the header of a request, signed with the key in the file that
    TISTREAM_SERVICE_KEY_FILE names. Returns None if that variable is not set. Raises CliError if the file cannot be
    read or has no valid key."""
    path = os.environ.get(KEY_FILE)
    if not path:
        return None
    from tistream.clock import SystemClock  # noqa: PLC0415 - a command without such a key need not wait for them
    from tistream.wire.auth.service_auth import ServiceAuth, ServiceKeys  # noqa: PLC0415
    from tistream.wire.auth.service_token import Caller  # noqa: PLC0415

    clock = SystemClock()
    try:
        auth = ServiceAuth(ServiceKeys(Path(path), clock), Caller(os.environ.get("POD_NAME", "cli"), "cli"), clock)
    except (OSError, ValueError) as error:
        raise CliError(f"{KEY_FILE} {path}: {error}") from error

    return lambda: {"authorization": auth()}
