"""References to secrets in a changefeed's sink URI and configuration: `${secret:NAME}`. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tistream.errors import InvalidRequest

NAME = r"[a-z0-9][a-z0-9.-]{0,62}"
_REFERENCE = re.compile(r"\$\{secret:([^}]*)\}")
_SIMPLE = re.compile(r"[a-z0-9][a-z0-9-]{0,36}")
_OTHER = re.compile(r"[^a-z0-9]")
_HIDDEN = "***"
_SHORT = 4  # values with fewer characters are not masked, because they occur by chance


def names_in(sink_uri: str, config: Mapping[str, Any]) -> frozenset[str]:
    """The names of the secrets that a changefeed refers to. Raises InvalidRequest for an invalid name."""
    found = frozenset(_REFERENCE.findall(f"{sink_uri} {json.dumps(config)}"))
    if wrong := sorted(name for name in found if not re.fullmatch(NAME, name)):
        raise InvalidRequest(
            f"sink_uri or config: {wrong[0][:80]!r} is not a secret's name: 1 to 63 of a-z, 0-9, `.` and `-`",
            {"parameter": "sink_uri"},
        )
    return found


def of_feed(feed_id: str) -> str:
    """The prefix of the names of one changefeed's own secrets, which were removed from its sink URI before it was
    stored. It is the changefeed's id, or a digest of the id if the id cannot be part of a secret's name."""
    if _SIMPLE.fullmatch(feed_id):
        return feed_id
    return f"{_OTHER.sub('-', feed_id.lower())[:20]}-{hashlib.sha256(feed_id.encode()).hexdigest()[:16]}"


def filled(text: str, values: Mapping[str, str]) -> str:
    """Replace each reference in a text by the secret's value. Raises KeyError for a name without a value."""
    return _REFERENCE.sub(lambda found: values[found[1]], text)


def masked(text: str, values: Iterable[str]) -> str:
    """Replace the values of secrets in a text by `***`, for errors and logs that quote a message of another system.
    Values of fewer than four characters stay, because they occur by chance."""
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _SHORT:
            text = text.replace(value, _HIDDEN)
    return text
