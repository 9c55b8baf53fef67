"""Converts names of tables and columns to names in schemas, which allow fewer characters than TiDB does."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def safe_name(name: str) -> str:
    """The name for Avro or Kafka Connect: each character that they do not allow becomes `_`, and a leading digit gets a
    `_` before it."""
    safe = _UNSAFE.sub("_", name)
    return f"_{safe}" if safe[:1].isdigit() else safe


def allowed(elements: tuple[str, ...], *, escaped: bool) -> str:
    """The elements of an ENUM or SET as one text, as Debezium lists them. With `escaped`, commas inside elements get a
    backslash, and quotes that are escaped (`\\'`, `''`) become `'`."""
    if not escaped:
        return ",".join(elements)
    return ",".join(one.replace(",", "\\,").replace("\\'", "'").replace("''", "'") for one in elements)
