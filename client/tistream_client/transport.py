"""Executes the steps that the core yields, over httpx: in threads, and in asyncio. httpx is imported by the first
client."""

from __future__ import annotations

import os
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tistream_client.core.arguments import base_url
from tistream_client.core.errors import WrongArgument
from tistream_client.core.steps import Answer, Asking, Fetch, Lost, Reading, Wait

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
PathLike = str | os.PathLike[str]
draw_number = random.Random().random
_CONNECT_S = 5.0
_READ_S = 75.0  # above the longest long poll
_TOKEN = re.compile(r"[!-~]+")


def utc_now() -> datetime:
    """The present, in UTC."""
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True)
class Door:
    """The URL and the credentials for requests to a server. `token_file` is read before each request, so a token can be
    replaced. The constructor raises WrongArgument if both `token` and `token_file` are given, or if they have no valid
    token."""

    url: str
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @staticmethod
    def of(
        url: str,
        token: str | None,
        token_file: PathLike | None,
        ca_file: PathLike | None,
        cert_file: PathLike | None,
        key_file: PathLike | None,
    ) -> Door:
        """Check the arguments of a client. Raises WrongArgument."""
        paths = [None if path is None else Path(path) for path in (token_file, ca_file, cert_file, key_file)]
        return Door(base_url(url), token, *paths)

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise WrongArgument("token", "is given beside token_file", 'one of them, such as token_file="acme.token"')
        self.headers()

    def headers(self) -> dict[str, str]:
        """The header with the token; empty without one. Raises WrongArgument if the file cannot be read, or if the text
        is not a token."""
        if self.token_file is not None:
            try:
                text = self.token_file.read_text("utf-8").strip()
            except (OSError, UnicodeError) as error:
                problem = f"{str(self.token_file)!r} cannot be read ({error})"
                raise WrongArgument("token_file", problem, 'a file that has a token, such as "acme.token"') from None
            return {"authorization": f"Bearer {_checked('token_file', text)}"}
        return {} if self.token is None else {"authorization": f"Bearer {_checked('token', self.token)}"}

    def options(self) -> dict[str, Any]:
        """The options of an httpx client. Raises WrongArgument if a file of certificates or keys cannot be read."""
        import httpx  # noqa: PLC0415 - takes a quarter of a second, which an import of this package saves

        return {
            "base_url": self.url,
            "headers": {"user-agent": "tistream-client", "accept-encoding": "identity"},
            "timeout": httpx.Timeout(_READ_S, connect=_CONNECT_S),
            "trust_env": False,
            "verify": self._tls() if self.url.startswith("https:") else False,
        }

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise WrongArgument("ca_file", f"{str(self.ca_file)!r}: {error}", "a readable PEM file") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except OSError as error:
                pair = f"{str(self.cert_file)!r} with key_file {str(self.key_file or self.cert_file)!r}"
                raise WrongArgument("cert_file", f"{pair}: {error}", "a readable PEM pair") from None
        return context


def _checked(argument: str, token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise WrongArgument(argument, "has no token", "the text that `tistream token create --out FILE` writes")
    return token


class Transport:
    """Executes reads one step after the other. `sleep` waits some seconds. Thread-safe."""

    def __init__(self, door: Door, sleep: Callable[[float], None]) -> None:
        import httpx  # noqa: PLC0415

        self._door = door
        self._sleep = sleep
        self._http = httpx.Client(**door.options())

    def run(self, reading: Reading[T]) -> Iterator[T]:
        """Yield the results of a read. Raises the errors of the read."""
        reply: Answer | Lost | None = None
        with closing(reading):
            while True:
                try:
                    step = reading.send(reply)
                except StopIteration:
                    return
                reply = None
                if isinstance(step, Fetch):
                    reply = self._fetch(step)
                elif isinstance(step, Wait):
                    self._sleep(step.seconds)
                else:
                    yield step

    def ask(self, asking: Asking[T]) -> T:
        """Execute a call, and return its result. Raises the errors of the call."""
        reply: Answer | Lost | None = None
        while True:
            try:
                step = asking.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = None
            if isinstance(step, Fetch):
                reply = self._fetch(step)
            else:
                self._sleep(step.seconds)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _fetch(self, fetch: Fetch) -> Answer | Lost:
        import httpx  # noqa: PLC0415

        try:
            with self._http.stream("GET", fetch.path, params=fetch.params, headers=self._door.headers()) as got:
                body = bytearray()  # grows in place; httpx would hold the pieces and the whole of a large answer
                for piece in got.iter_bytes():
                    body += piece
                return _answer(got, body)
        except (httpx.HTTPError, OSError) as error:  # OSError: in asyncio httpx passes on errors of TLS
            return _lost(error, isinstance(error, httpx.ConnectError | httpx.ConnectTimeout))


class AsyncTransport:
    """Executes reads like Transport, in asyncio."""

    def __init__(self, door: Door, sleep: Callable[[float], Awaitable[None]]) -> None:
        import httpx  # noqa: PLC0415

        self._door = door
        self._sleep = sleep
        self._http = httpx.AsyncClient(**door.options())

    async def run(self, reading: Reading[T]) -> AsyncIterator[T]:
        """Yield the results of a read."""
        reply: Answer | Lost | None = None
        with closing(reading):
            while True:
                try:
                    step = reading.send(reply)
                except StopIteration:
                    return
                reply = None
                if isinstance(step, Fetch):
                    reply = await self._fetch(step)
                elif isinstance(step, Wait):
                    await self._sleep(step.seconds)
                else:
                    yield step

    async def ask(self, asking: Asking[T]) -> T:
        """Execute a call, and return its result."""
        reply: Answer | Lost | None = None
        while True:
            try:
                step = asking.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            reply = None
            if isinstance(step, Fetch):
                reply = await self._fetch(step)
            else:
                await self._sleep(step.seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _fetch(self, fetch: Fetch) -> Answer | Lost:
        import httpx  # noqa: PLC0415

        try:
            headers = self._door.headers()
            async with self._http.stream("GET", fetch.path, params=fetch.params, headers=headers) as got:
                body = bytearray()
                async for piece in got.aiter_bytes():
                    body += piece
                return _answer(got, body)
        except (httpx.HTTPError, OSError) as error:  # OSError: in asyncio httpx passes on errors of TLS
            return _lost(error, isinstance(error, httpx.ConnectError | httpx.ConnectTimeout))


def _answer(got: httpx.Response, body: bytearray) -> Answer:
    headers: Mapping[str, str] = got.headers
    return Answer(got.status_code, headers, body)


def _lost(error: Exception, refused: bool) -> Lost:
    return Lost(str(error) or type(error).__name__, connected=not refused)
