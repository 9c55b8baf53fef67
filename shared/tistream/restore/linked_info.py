"""Changes the TableInfo of restored tables, so that their foreign keys refer to the restored tables under their new
database names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tistream.schema.visible import fold


def linked_info(info: dict[str, Any], database: str, renamed: Mapping[str, str]) -> dict[str, Any]:
    """Copy the TableInfo of a table in `database`, with the new names of databases in its foreign keys. `renamed`: new
    names by old ones; other databases keep their names."""
    moved = {fold(old): new for old, new in renamed.items()}
    keys = []
    for key in info.get("fk_info") or ():
        schema = (key.get("ref_schema") or {}).get("O") or database
        name = moved.get(fold(schema), schema)
        keys.append({**key, "ref_schema": {"O": name, "L": fold(name)}})
    return {**info, "fk_info": keys}
