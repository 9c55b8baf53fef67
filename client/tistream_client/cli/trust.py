"""TLS settings of commands: the trusted CA and the client certificate, from options of `tistream` or the
environment."""

from __future__ import annotations

import os
import ssl

from tistream_client.cli.errors import CliError

CA_FILE, CERT_FILE, KEY_FILE = "TISTREAM_CA_FILE", "TISTREAM_CERT_FILE", "TISTREAM_KEY_FILE"


def tls_context() -> ssl.SSLContext | None:
    """Create the TLS context that the environment variables describe. Returns None if no CA and no certificate is set:
    then the caller trusts the authorities that the system trusts. Raises CliError if a file cannot be read, or there is
    a key without a certificate."""
    ca_file, cert_file, key_file = (os.environ.get(name) or None for name in (CA_FILE, CERT_FILE, KEY_FILE))
    if key_file is not None and cert_file is None:
        raise CliError(f"{KEY_FILE} {key_file} (--key-file) is of no use without {CERT_FILE} (--cert-file): give both")
    if ca_file is None and cert_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise CliError(f"{CA_FILE} {ca_file} (--ca-file): {error}: give a readable PEM file") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file)
        except OSError as error:
            pair = f"{CERT_FILE} {cert_file} (--cert-file) and {KEY_FILE} {key_file or cert_file} (--key-file)"
            raise CliError(f"{pair}: {error}: give a readable PEM pair") from error
    return context
