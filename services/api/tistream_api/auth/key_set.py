"""Reads the public keys of an OpenID Connect issuer over HTTP or from a file. I/O."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tistream.errors import Unavailable
from tistream.service.settings import SettingsError
from tistream.wire.clients.client import HttpClient
from tistream_api.settings import OidcSettings

DEADLINE_S = 5.0


def reader(settings: OidcSettings) -> Callable[[], bytes]:
    """Make a function that reads the key set; that function raises Unavailable, FatalError. Raises SettingsError if the
    file of the certificate authority (`jwks_ca_file`) cannot be read."""
    path, url = settings.jwks_file, settings.jwks_url
    if path is not None:

        def read_file() -> bytes:
            try:
                return path.read_bytes()
            except OSError as error:
                raise Unavailable(f"TISTREAM_API__OIDC__JWKS_FILE {path} cannot be read: {error.strerror}") from error

        return read_file
    assert url is not None, "the settings want one of the two"
    try:
        trusts = None if settings.jwks_ca_file is None else ssl.create_default_context(cafile=settings.jwks_ca_file)
    except OSError as error:  # ssl.SSLError is an OSError
        raise SettingsError(
            f"TISTREAM_API__OIDC__JWKS_CA_FILE {settings.jwks_ca_file} cannot be read: {error.strerror}"
        ) from error
    http = HttpClient(
        deadline_s=DEADLINE_S, tls=trusts
    )  # a client of its own, so that no credentials of our services are sent to the issuer
    return lambda: http.request("GET", url).content
