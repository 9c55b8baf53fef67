"""The rules for valid object keys. They are the same for every backend, so a key that works on one works on all."""

from __future__ import annotations

from tistream.errors import InvalidRequest

MAX_KEY_BYTES = 1024  # S3's limit
MAX_NAME_BYTES = 255  # a component's limit on common file systems


def check_key(key: str) -> str:
    """Check an object key, and return it unchanged. Raises InvalidRequest if some store could not hold it, or if it
    leads out of the root."""
    problem = _problem(key)
    if problem:
        raise InvalidRequest(f"object key {key[:200]!r}: {problem}")
    return key


def is_key(key: str) -> bool:
    """Whether `check_key` accepts the key."""
    return _problem(key) is None


def _problem(key: str) -> str | None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    if "\0" in key:
        return "holds a NUL"
    for name in key.split("/"):
        if name in ("", ".", ".."):
            return f"has a component {name!r}"
        if len(name.encode()) > MAX_NAME_BYTES:
            return f"has a component longer than {MAX_NAME_BYTES} bytes"
    return None
