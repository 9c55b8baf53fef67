"""The TLS contexts of a process, made from its certificate files. The files are read again when they change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from tistream.service.settings import TlsSettings

log = logging.getLogger(__name__)


class Certificates:
    """The TLS contexts of a process: `server` for serving, `client` for calls. `server` or `client` is None if the
    process does not use TLS there.

    Raises OSError (which includes ssl.SSLError) if a file is missing, or contains no certificate.
    """

    def __init__(self, tls: TlsSettings) -> None:
        self._tls = tls
        self._seen = self._marks()
        self.server = server_context(tls) if tls.serves else None
        self.client = client_context(tls) if tls.serves or tls.ca_file is not None else None

    def look(self) -> None:
        """Read certificate files again if they changed since the last call. New connections use the new certificates;
        open ones keep the old ones. Invalid files are logged, and the loaded certificates stay.

        Authorities are only added to the trusted ones: an authority that was removed from a file is trusted until the
        process restarts.
        """
        try:
            seen = self._marks()
            if seen == self._seen:
                return
            self._seen = seen
            for fresh in (server_context, client_context) if self._tls.serves else (client_context,):
                fresh(self._tls)  # first check that all files are valid, so that either all or none are loaded
            for context, authorities in ((self.server, self._tls.client_ca_file), (self.client, self._tls.ca_file)):
                if context is not None:
                    _load(context, self._tls, authorities)
        except OSError as error:
            log.error("certificates were not read anew", extra={"error": str(error)})
            return
        log.info("certificates were read anew")

    def _marks(self) -> list[tuple[int, int, int]]:
        tls = self._tls
        paths = (tls.cert_file, tls.key_file, tls.ca_file, tls.client_ca_file)
        found = [path.stat() for path in paths if path is not None]
        return [(one.st_ino, one.st_mtime_ns, one.st_size) for one in found]


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """The TLS context for serving. If the settings have a CLIENT_CA_FILE, clients must present a certificate that one
    of its authorities has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.client_ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    _load(context, tls, tls.client_ca_file)
    return context


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """The TLS context for calls to other processes: the trusted authorities, and the client certificate."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, tls, None)
    return context


def _load(context: ssl.SSLContext, tls: TlsSettings, authorities: Path | None) -> None:
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    if authorities is not None:
        context.load_verify_locations(authorities)
