"""Reads the certificates and keys of a feed, which are PEM texts, for its TLS connections."""

from __future__ import annotations

import ssl
from tempfile import NamedTemporaryFile

from tistream_changefeed.config.sink_uri import unreadable_pem

_UNREADABLE = (ssl.SSLError, ValueError, TypeError)  # a text without PEM, an empty one, one that is not ASCII


class BadPem(Exception):
    """Raised if a PEM text of a feed cannot be read. The error names the option and shows the right form. It has no
    part of the text."""


def trusting(ca: str, option: str, *, others: bool) -> ssl.SSLContext:
    """Build the context of a client that trusts the authority `ca`, a PEM text, which `option` has. `others`: whether
    the client trusts the authorities of the system too. Raises BadPem."""
    try:
        # With an empty text it would trust the authorities of the system
        context = ssl.create_default_context(cadata=None if others else ca or " ")
        if others:
            context.load_verify_locations(cadata=ca)
    except _UNREADABLE as error:
        raise BadPem(unreadable_pem(option)) from error
    return context


def identify(context: ssl.SSLContext, cert: str, key: str, options: tuple[str, str]) -> None:
    """Add the certificate of a client and its private key, PEM texts, to a context. `options`: their names. Raises
    BadPem."""
    trusting(cert, options[0], others=False)  # it says that the certificate can be read
    with NamedTemporaryFile("w") as file:  # the context takes files only
        file.write(f"{cert}\n{key}\n")
        file.flush()
        try:
            context.load_cert_chain(file.name, password="")  # or OpenSSL asks for a passphrase
        except _UNREADABLE as error:
            if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
                raise BadPem(f"{options[1]} is not the key of {options[0]}: put both secrets again") from error
            raise BadPem(unreadable_pem(options[1])) from error
