"""Fetches byte ranges of the object store by URLs that the API server has signed."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from tistream_client.core.errors import NoAnswer, WrongArgument
from tistream_client.spark.server import Server

if TYPE_CHECKING:
    import httpx

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_CONNECT_S, _READ_S = 5.0, 60.0
_ENDED = (400, 403, 404, 410)  # S3 has several statuses for what has expired


class RangeEnded(Exception):
    """Raised if a URL is no longer good: it has expired, or its object was deleted because its rows were compacted into
    another one. The API server signs new ones."""


class WithoutQuery(logging.Filter):
    """Drops the query of signed URLs from httpx's records, because a URL with its signature is a credential."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record, and keep it."""
        if isinstance(record.args, tuple):
            record.args = tuple(_shown(one) for one in record.args)
        return True


def _shown(argument: object) -> object:
    text = str(argument)
    return text.partition("?")[0] if "X-Amz-Signature=" in text else argument


_WITHOUT_QUERY = WithoutQuery()


class SignedRange(Protocol):
    """A byte range of an object, and the URL that was signed for it."""

    @property
    def url(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def length(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Bucket:
    """Connections to the object store. A fetch without a complete answer is repeated until its waits exceed `retry_for`
    seconds. `sleep` waits some seconds; `draw` returns a random number below 1."""

    http: httpx.Client
    retry_for: float
    sleep: Callable[[float], None]
    draw: Callable[[], float]

    def fetch(self, wanted: SignedRange) -> bytes:
        """The bytes of a range. Raises RangeEnded; NoAnswer if the retries end."""
        waited, pause = 0.0, _FIRST_PAUSE_S
        while True:
            found = self._get(wanted)
            if isinstance(found, bytes):
                return found
            seconds = pause * (0.5 + self.draw() / 2)
            if waited + seconds > self.retry_for:
                raise NoAnswer(
                    f"the object store at {urlsplit(wanted.url).netloc} gives no rows: {found}. direct=true needs a "
                    "way from each executor to it; without direct, rows come from the API server"
                )
            self.sleep(seconds)
            waited, pause = waited + seconds, min(2 * pause, _LONGEST_PAUSE_S)

    def _get(self, wanted: SignedRange) -> bytes | str:
        """The bytes, or the reason why they did not come. Raises RangeEnded."""
        import httpx  # noqa: PLC0415

        headers = {"range": f"bytes={wanted.start}-{wanted.start + wanted.length - 1}"}
        try:
            with self.http.stream("GET", wanted.url, headers=headers) as answer:
                if answer.status_code in _ENDED:
                    raise RangeEnded(f"status {answer.status_code}")
                if answer.status_code != 206:
                    return f"status {answer.status_code}"
                body = answer.read()
        except (httpx.HTTPError, OSError) as error:
            return str(error) or type(error).__name__
        return body if len(body) == wanted.length else f"{len(body)} bytes in place of {wanted.length}"


@contextmanager
def bucket_of(server: Server) -> Iterator[Bucket]:
    """Open connections to the object store for a `with` block. Its certificate may be signed by an authority that the
    system trusts, or by that of `caFile`. Raises WrongArgument if that file cannot be read."""
    import httpx  # noqa: PLC0415

    logging.getLogger("httpx").addFilter(_WITHOUT_QUERY)  # once, however often it is added
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    options = server.options
    if options.ca_file is not None:
        try:
            context.load_verify_locations(options.ca_file)
        except OSError as error:
            raise WrongArgument("caFile", f"{options.ca_file!r}: {error}", "a readable PEM file") from None
    timeout = httpx.Timeout(_READ_S, connect=_CONNECT_S)
    with httpx.Client(verify=context, timeout=timeout, trust_env=False) as http:
        yield Bucket(http, options.retry_for, server.sleep, server.patience.random)
