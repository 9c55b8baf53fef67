"""The names of kinds of DDL in canal-json (its member `type`). Pure."""

from __future__ import annotations

_TYPES: dict[str, tuple[int, ...]] = {
    "CREATE": (3,),
    "RENAME": (14, 47),
    "CINDEX": (7, 9, 32),
    "DINDEX": (8, 10, 33),
    "ALTER": (5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72),
    "ERASE": (4,),
    "TRUNCATE": (11,),
}
_BY_ACTION = {action: name for name, actions in _TYPES.items() for action in actions}


def ddl_type(action: int) -> str:
    """The `type` of a DDL, such as ALTER. `action`: the number by which TiDB identifies the kind of DDL."""
    return _BY_ACTION.get(action, "QUERY")
