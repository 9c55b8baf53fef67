"""Unique random names. Composition roots pass the functions to code that takes its ids as parameters."""

from __future__ import annotations

import secrets

_BYTES = 8


def random_id() -> str:
    """16 random hexadecimal digits."""
    return secrets.token_hex(_BYTES)
