"""The types of DDL jobs ("actions"): TiDB's number and name of each (`ActionType.String()` in
pkg/meta/model/job.go)."""

from __future__ import annotations

ACTIONS: dict[int, str] = {
    1: "create schema",
    2: "drop schema",
    3: "create table",
    4: "drop table",
    5: "add column",
    6: "drop column",
    7: "add index",
    8: "drop index",
    9: "add foreign key",
    10: "drop foreign key",
    11: "truncate table",
    12: "modify column",
    13: "rebase auto_increment ID",
    14: "rename table",
    15: "set default value",
    16: "shard row ID",
    17: "modify table comment",
    18: "rename index",
    19: "add partition",
    20: "drop partition",
    21: "create view",
    22: "modify table charset and collate",
    23: "truncate partition",
    24: "drop view",
    25: "recover table",
    26: "modify schema charset and collate",
    27: "lock table",
    28: "unlock table",
    29: "repair table",
    30: "set tiflash replica",
    31: "update tiflash replica status",
    32: "add primary key",
    33: "drop primary key",
    34: "create sequence",
    35: "alter sequence",
    36: "drop sequence",
    37: "add multi-columns",
    38: "drop multi-columns",
    39: "modify auto id cache",
    40: "rebase auto_random ID",
    41: "alter index visibility",
    42: "exchange partition",
    43: "add check constraint",
    44: "drop check constraint",
    45: "alter check constraint",
    46: "alter partition",
    47: "rename tables",
    48: "drop multi-indexes",
    49: "alter table attributes",
    50: "alter table partition attributes",
    51: "create placement policy",
    52: "alter placement policy",
    53: "drop placement policy",
    54: "alter table partition placement",
    55: "modify schema default placement",
    56: "alter table placement",
    57: "alter table cache",
    58: "alter table statistics options",
    59: "alter table nocache",
    60: "create tables",
    61: "alter table multi-schema change",
    62: "flashback cluster",
    63: "flashback schema",
    64: "alter table reorganize partition",
    65: "alter table ttl",
    67: "alter table no_ttl",
    68: "create resource group",
    69: "alter resource group",
    70: "drop resource group",
    71: "alter table partition by",
    72: "alter table remove partitioning",
    73: "add columnar index",
    74: "modify engine attribute",
    75: "alter table mode",
    76: "refresh meta",
    77: "modify schema read only",
    78: "alter table affinity",
    79: "alter soft delete info",
    80: "modify schema soft delete and active active",
}

CREATE_SCHEMA, DROP_SCHEMA = 1, 2
DROP_TABLE, DROP_VIEW, DROP_SEQUENCE = 4, 24, 36

# Actions on a database: `schema_id` identifies it, and the table name is empty.
OF_SCHEMA = frozenset({1, 2, 26, 55, 63, 77, 80})
# Actions on neither a database nor a table. Jobs of placement policies and resource groups have the policy's or group's
# name in `schema_name` (upstream-formats 7), which is not a database.
OF_NOTHING = frozenset({51, 52, 53, 62, 68, 69, 70, 76})
RECOVERS = frozenset({25, 63})  # RECOVER TABLE, FLASHBACK TABLE; FLASHBACK DATABASE
DROPS = frozenset({DROP_SCHEMA, DROP_TABLE, DROP_VIEW, DROP_SEQUENCE})

# Every finished job of these types changes what SELECT shows. If such a job is done without a visible change in this
# history, it made the change before the history begins.
ALWAYS_VISIBLE = frozenset({1, 2, 3, 4, 5, 6, 11, 14, 19, 20, 21, 23, 24, 25, 34, 36, 42, 47, 60, 63, 64, 71, 72})

# ALTER TABLE … PARTITION BY and REMOVE PARTITIONING make two visible changes: of the partitions while the job runs, and
# of the table's id when it is done.
TWICE_VISIBLE = frozenset({71, 72})


def action_name(action: int, *, undone: bool = False) -> str:
    """TiDB's name of an action type, such as `add column`; "none" for an unknown number, as in TiDB. `undone`: the name
    for a job that reverts its visible changes (design.md 5)."""
    name = ACTIONS.get(action, "none")
    return f"rollback of {name}" if undone else name


def action_number(name: str) -> int | None:
    """The number of the action type with this name; None for `none` and for the rollback of an action."""
    return _NUMBERS.get(name)


_NUMBERS = {name: number for number, name in ACTIONS.items()}
