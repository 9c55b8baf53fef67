"""TLS of a process, made of its certificate files; files that change are read again."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from tistream.service.settings import TlsSettings

log = logging.getLogger(__name__)


class Certificates:
    """The contexts of what this process serves and of what it calls; None where it speaks no TLS of its own.

    Raises OSError (ssl.SSLError among them) where a file is not there, or holds no certificate.
    """

    def __init__(self, tls: TlsSettings) -> None:
        self._tls = tls
        self._seen = self._marks()
        self.server = server_context(tls) if tls.serves else None
        self.client = client_context(tls) if tls.serves or tls.ca_file is not None else None

    def look(self) -> None:
        """Load what has changed since the last look, for connections to come: those that are open keep theirs.

        Files that are wrong are logged, and what was loaded stays. Authorities are only added: one that is gone from a
        file is trusted until the process starts again."""
        try:
            seen = self._marks()
            if seen == self._seen:
                return
            self._seen = seen
            for fresh in (server_context, client_context) if self._tls.serves else (client_context,):
                fresh(self._tls)  # all of it works, or nothing is touched
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
    """For those who come; with a CLIENT_CA_FILE they must show a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.client_ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    _load(context, tls, tls.client_ca_file)
    return context


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """For calls: whom this process trusts, and what it shows to those who ask."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, tls, None)
    return context


def _load(context: ssl.SSLContext, tls: TlsSettings, authorities: Path | None) -> None:
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    if authorities is not None:
        context.load_verify_locations(authorities)
