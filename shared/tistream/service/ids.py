"""Random unique names. A process's `main` passes these functions to the code that needs ids, so tests can pass
others."""

from __future__ import annotations

import secrets

_BYTES = 8


def random_id() -> str:
    """Draw 64 random bits. Returns them as 16 hexadecimal digits."""
    return secrets.token_hex(_BYTES)
