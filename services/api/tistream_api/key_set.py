"""Where the keys of an OpenID Connect issuer are read from. I/O."""

from __future__ import annotations

from collections.abc import Callable

from tistream.errors import Unavailable
from tistream.wire.client import HttpClient
from tistream_api.settings import OidcSettings

DEADLINE_S = 5.0


def reader(settings: OidcSettings) -> Callable[[], bytes]:
    """Reads them anew. What is called raises Unavailable, FatalError."""
    path, url = settings.jwks_file, settings.jwks_url
    if path is not None:

        def read_file() -> bytes:
            try:
                return path.read_bytes()
            except OSError as error:
                raise Unavailable(f"{path}: {error.strerror}") from error

        return read_file
    assert url is not None, "the settings want one of the two"
    http = HttpClient(deadline_s=DEADLINE_S)  # one of its own: a stranger is not told who we are to each other
    return lambda: http.request("GET", url).content
