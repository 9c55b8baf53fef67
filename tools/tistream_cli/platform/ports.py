"""Opens and finds ports on 127.0.0.1 for the services of one machine."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Callable

from tistream_client.cli.errors import CliError

# Below the ephemeral port ranges of operating systems, so that no outgoing connection can occupy the port of a service
# that is restarted.
_LOW, _HIGH = 20_000, 32_000
_RETRY_MS = 100


def listen(port: int, *, patience_ms: int, sleep: Callable[[float], object]) -> socket.socket:
    """Open a listening socket on 127.0.0.1:`port` (0: any free port).

    If the port is in use, retry for `patience_ms`, because a process that was just killed may still hold it. Raises
    CliError.
    """
    for waited_ms in range(0, patience_ms + _RETRY_MS, _RETRY_MS):
        try:
            return _listen(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or waited_ms >= patience_ms:
                raise CliError(
                    f"cannot listen on 127.0.0.1:{port}: {error.strerror}: give another --port, or end the process "
                    "that has it"
                ) from error
        sleep(_RETRY_MS / 1000)
    raise AssertionError("the last attempt returns or raises")


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(1024)
    except OSError:
        listening.close()
        raise
    return listening


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Find `count` different ports on 127.0.0.1 on which no process listens now. Raises CliError if there are not
    enough."""
    ports: list[int] = []
    for port in rng.sample(range(_LOW, _HIGH), _HIGH - _LOW):
        if len(ports) == count:
            return ports
        try:
            _listen(port).close()
        except OSError:
            continue
        ports.append(port)
    raise CliError(
        f"there are no {count} free ports from {_LOW} to {_HIGH} on 127.0.0.1: end processes that listen there"
    )
