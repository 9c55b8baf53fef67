"""The floor object of a task: it names the checkpoint manifest at which readers begin. Older manifests are no longer
needed.

JSON `{"version":1,"checkpoint":C}`. Manifest C restates everything that is live. Manifests below C may be deleted at
any time. A manifest below C must be ignored even if it exists, because a delayed PUT can create a deleted one again.
The schema registry's log has such an object too; there, C is the number of a base, an object that restates the log.
"""

from __future__ import annotations

import json

from tistream.errors import CorruptObject

VERSION = 1


def encode(checkpoint: int) -> bytes:
    """Encode a floor object that names the checkpoint `checkpoint`."""
    return json.dumps({"version": VERSION, "checkpoint": checkpoint}).encode()


def decode(key: str, body: bytes) -> int:
    """Decode the number of the checkpoint, which is >= 1. Raises CorruptObject."""
    try:
        data = json.loads(body)
        version, checkpoint = data["version"], data["checkpoint"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(key, f"is not a valid floor object: {error!r}") from error
    if version != VERSION:
        raise CorruptObject(key, f"floor version {version!r}; this program knows {VERSION}")
    if not isinstance(checkpoint, int) or checkpoint < 1:
        raise CorruptObject(key, f"names the invalid checkpoint {checkpoint!r}")
    return checkpoint
