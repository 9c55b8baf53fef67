"""Key files of tenants' secrets, as scripts/keys makes them."""

from __future__ import annotations

import base64

from nacl.public import PrivateKey


def new_pair(random_bytes: bytes) -> tuple[str, str]:
    """The lines of a private and of its public key file, made of 32 bytes."""
    private = PrivateKey(random_bytes)
    return _line(bytes(private)), _line(bytes(private.public_key))


def _line(key: bytes) -> str:
    return base64.b64encode(key).decode() + "\n"
