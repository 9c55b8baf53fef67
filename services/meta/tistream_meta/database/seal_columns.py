"""Encodes and decodes the JSON columns of tasks: the order to seal a task (to split or merge it), and a task's parents.
Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tistream.model.span import KeySpan
from tistream_meta.decide.model import Child, Seal


def seal_text(seal: Seal | None) -> str | None:
    """Encode an order to seal as the text of the column `seal`; None if there is no order."""
    if seal is None:
        return None
    children = [[child.task_id, child.span.start.hex(), child.span.end.hex()] for child in seal.children]
    return json.dumps({"children": children, "stop_at": seal.stop_at, "final": seal.final})


def seal_of(text: str | None) -> Seal | None:
    """Decode the text of the column `seal`; None if it is NULL."""
    if text is None:
        return None
    found = json.loads(text)
    children = (
        Child(task_id, KeySpan(bytes.fromhex(start), bytes.fromhex(end))) for task_id, start, end in found["children"]
    )
    return Seal(tuple(children), found["stop_at"], found["final"])


def parents_text(parents: Sequence[int]) -> str | None:
    """Encode the ids of a task's parents as the text of the column `parents`; None, which is stored as NULL, if it has
    no parents."""
    return json.dumps(list(parents)) if parents else None


def parents_of(text: str | None) -> tuple[int, ...]:
    """Decode the text of the column `parents` into task ids."""
    return () if text is None else tuple(json.loads(text))
