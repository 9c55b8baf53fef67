"""Random unique names. Composition roots pass these functions to code that has ids as parameters."""

from __future__ import annotations

import secrets

_BYTES = 8


def random_id() -> str:
    """16 random hexadecimal digits."""
    return secrets.token_hex(_BYTES)
