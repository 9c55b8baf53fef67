"""Converts an error of a MySQL server to a failure of the feed. Pure: it takes the error's number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Fault = Literal["again", "retry", "refused", "table"]
"""`again`: the transaction was rolled back, and is written again at once. `retry`: the server does not answer, or has
no room now. `refused`: it rejects the user or the password. `table`: it refuses this statement, so its table stops."""

# Lock wait, deadlock, a definition that changed, a rollback by group replication; TiDB: conflicts, schema changed
_AGAIN = frozenset({1205, 1213, 1020, 1412, 1615, 3101, 3572, 8002, 8005, 8022, 8028, 9007})
_REFUSED = frozenset({1044, 1045, 1130, 1142, 1143, 1227, 1251, 1698, 1862, 2049, 2054, 2059, 3118, 3159})
_PASSING = frozenset(
    {
        *(1021, 1037, 1038, 1040, 1041, 1053, 1077, 1078, 1079, 1080, 1081, 1105, 1129, 1135, 1152, 1158, 1159, 1160),
        *(1161, 1184, 1203, 1206, 1226, 1290, 1317, 1792, 1836, 1927, 3024, 3168, 1114, 1969, 1040, 4031),
        *(9001, 9002, 9003, 9004, 9005, 9006, 8027, 8229, 3, 20, 1026, 1028, 1030, 1180, 1181, 1196),
        *(1047, 1637, 3032, 3100),  # a Galera node that joins, transactions, offline mode, group replication
        *(8176, 8251, 8252, 9008, 9010, 9011),  # TiDB: memory, resource groups, TiKV is busy
    }
)

_DEPRECATED = 1287  # of MySQL 8, for each VALUES() in INSERT … ON DUPLICATE KEY UPDATE


def fault_of(code: int | None) -> Fault:
    """Convert an error number to a Fault. None, 0 and the numbers of the client (2000 to 2999) mean that the server
    has not answered, so the statement is retried, except for refused logins. A number that is not known here means
    a refused statement."""
    if code in _AGAIN:
        return "again"
    if code in _REFUSED:
        return "refused"
    if code is None or code in _PASSING or 2000 <= code < 3000 or code == 0:
        return "retry"
    return "table"


def changed_values(warnings: int, codes: Iterable[int]) -> int:
    """How many warnings of a statement mean that the server has stored another value than the given one. `warnings`:
    their number; `codes`: the error numbers of the warnings that the server lists, which may be fewer."""
    return warnings - sum(code == _DEPRECATED for code in codes)
