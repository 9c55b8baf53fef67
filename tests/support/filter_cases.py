"""A table with a column of each kind, rows, and filter expressions over them: fixed ones and random ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from support.feed_tables import Change, Key, batch, column, version
from tistream.arrays import Bools
from tistream.filters.expression import Expression
from tistream.schema.tidb import table as t
from tistream.schema.visible import TableVersion

ELEMS = ["small", "Medium", "LARGE"]
DEFINITIONS = {
    "id": ("BIGINT PRIMARY KEY", column("id", flag=t.FLAG_NOT_NULL)),
    "n": ("BIGINT", column("n")),
    "m": ("INT", column("m", t.LONG)),
    "u": ("BIGINT UNSIGNED", column("u", flag=t.FLAG_UNSIGNED)),
    "d": ("DOUBLE", column("d", t.DOUBLE)),
    "de": ("DECIMAL(20,4)", column("de", t.DECIMAL, Flen=20, Decimal=4)),
    "big": ("DECIMAL(65,30)", column("big", t.DECIMAL, Flen=65, Decimal=30)),
    "b": ("VARCHAR(40) COLLATE utf8mb4_bin", column("b", t.VARCHAR)),
    "g": ("VARCHAR(40) COLLATE utf8mb4_general_ci", column("g", t.VARCHAR, Collate="utf8mb4_general_ci")),
    "c": ("VARCHAR(40) COLLATE utf8mb4_unicode_ci", column("c", t.VARCHAR, Collate="utf8mb4_unicode_ci")),
    "v": ("VARBINARY(40)", column("v", t.VARCHAR, Charset="binary", Collate="binary")),
    "da": ("DATE", column("da", t.DATE)),
    "dt": ("DATETIME(3)", column("dt", t.DATETIME, Decimal=3)),
    "d0": ("DATETIME", column("d0", t.DATETIME, Decimal=0)),
    "ti": ("TIME(2)", column("ti", t.DURATION, Decimal=2)),
    "e": (
        "ENUM('small','Medium','LARGE') COLLATE utf8mb4_general_ci",
        column("e", t.ENUM, Elems=ELEMS, Collate="utf8mb4_general_ci"),
    ),
    "st": ("SET('x','y','z') COLLATE utf8mb4_bin", column("st", t.SET, Elems=["x", "y", "z"], Collate="utf8mb4_bin")),
    "y": ("YEAR", column("y", t.YEAR)),
}
TABLE: TableVersion = version([one for _, one in DEFINITIONS.values()], [Key("PRIMARY", ("id",), primary=True)])
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "a ",
    "ab",
    "aB",
    "é",
    "E",
    "É",
    "ß",
    "ss",
    "s",
    "名",
    "A%b",
    "a_b",
    "a\\b",
    "x\ny",
    "Zz",
    "_",
    "[a]",
]
VALUES: dict[str, Sequence[Any]] = {
    "n": [None, 0, 1, -1, 5, 7, -7, 2**63 - 1, -(2**63)],
    "m": [None, 0, 1, 2, 3, -3, 10],
    "u": [None, 0, 1, 5, 2**63, 2**64 - 1],
    "d": [None, 0.0, -1.5, 0.1, 5.0, 1e300, 2.5],
    "de": [None, "0.0000", "1.5000", "-1.5000", "5.0000", "9999999999999999.9999"],
    "big": [None, "0." + "0" * 30, "1.5" + "0" * 29, "9" * 35 + "." + "9" * 30, "-0." + "0" * 29 + "1"],
    **{name: [None, *TEXTS] for name in "bgc"},
    "v": [None, b"", b"a", b"A", b"a ", b"\xff", b"ab"],
    "da": [None, "2020-01-01", "2020-12-31", "1999-02-28"],
    "dt": [None, "2020-01-01 00:00:00.000", "2020-01-01 12:30:00.500", "2020-12-31 23:59:59.999"],
    "d0": [None, "2020-01-01 00:00:00", "2020-01-01 12:30:00", "2021-12-31 23:59:59"],
    "ti": [None, "00:00:00.00", "12:30:00.50", "-01:00:00.00", "838:59:59.00", "-00:00:00.25"],
    "e": [None, *ELEMS],
    "st": [None, "", "x", "x,z", "x,y,z"],
    "y": [None, 1999, 2020],
}

EXPRESSIONS = """\
n = 5
n <> 5
n != 5 or n is null
n > 0 and m > 0
n > 0 or m > 0
not (n > 0)
not n > 0 and m is not null
!(n = 1)
n <=> null
n <=> m
n = null
n in (1, 5, null)
n not in (1, 5, null)
n not in (1, 5)
n between 0 and 5
n not between 0 and 5
n between null and 5
m between n and 10
n = u
n < u
u > 9223372036854775807
u = 18446744073709551615
n = -9223372036854775808
n = '5'
n in ('5', '7')
n = 5.0
n < 5.5
n = 1e0
n + 1 = 6
n - m > 0
n * 2 = 10
m * m = 9
m % 2 = 1
m % 2 = -1
m % 0 is null
m div 3 = 1
-m = 3
u - 1 >= 0
d = 0.1
d > 1 and d < 3
d / 2 = 1.25
d / m > 1
d + n > 5
n = d
de = 1.5
de > n
de < -1
de + 1 = 2.5
de * 2 = 3
de = 9999999999999999.9999
de in (0, 1.5)
big = 1.5
big > 0
big = 99999999999999999999999999999999999.999999999999999999999999999999
big < n
de = big
m
not m
m and n
m is true
m is not true
m is false
m is not false
n is null
(n > 0) is null
(n > 0) = (m > 0)
true
false or n = 1
null or n = 1
m = true
b = 'a'
b = 'A'
b <> 'a'
b < 'b'
b >= 'A'
b in ('a', 'ab')
b like 'a%'
b like '%b'
b like 'a_b'
b like 'a\\_b'
b like 'A\\%b'
b like 'a!_b' escape '!'
b not like 'a%'
b like ''
b like '[a]'
b = 'x\\ny'
b = 'a\\\\b'
b = ''
b between 'a' and 'b'
g = 'a'
g = 'e'
g = 's'
g < 'b'
g like 'A%'
g like 'é'
g in ('A', 'ss')
g <> 'É'
c = 'a'
c = 'E'
c = 'ss'
c like 'AB'
c in ('zz', '名')
c <> 'é'
v = 'a'
v > 'a'
v <> 'A'
da = '2020-01-01'
da >= '2020-01-01'
da between '2020-01-01' and '2020-12-31'
da < '2020-01-01 12:00:00'
dt = '2020-01-01'
dt > '2020-01-01 12:30:00'
dt <= '2020-01-01 12:30:00.5'
dt > da
dt = d0
d0 in ('2020-01-01 12:30:00', '2020-01-01')
ti = '12:30:00.5'
ti < '00:00:00'
ti > '100:00:00'
ti >= '-01:00:00'
e = 'small'
e = 'MEDIUM'
e = 2
e > 1
e in ('large', 'small')
e like 'm%'
e is null
st = 'x,z'
st = ''
st = 5
st like '%y%'
y = 2020
y < 2000
`n` = 1
N = 1
n = 1 or n = 5 and m = 1
(n = 1 or n = 5) and m = 1
n is null and m is null or b is null
"""


def expressions() -> list[str]:
    """The fixed expressions, one a line."""
    return EXPRESSIONS.splitlines()


def rows(seed: int, count: int) -> list[dict[str, Any]]:
    """Random rows of the table, numbered from 1."""
    rng = random.Random(seed)
    return [{"id": at, **{name: rng.choice(some) for name, some in VALUES.items()}} for at in range(1, count + 1)]


def random_expression(rng: random.Random, depth: int = 3) -> str:
    """A random expression of what the filter accepts."""
    if depth and rng.random() < 0.75:
        one, other = (random_expression(rng, depth - 1) for _ in range(2))
        return rng.choice(
            [f"({one}) and ({other})", f"({one}) or ({other})", f"not ({one})", f"({one}) is true", f"({one}) is null"]
        )
    name = rng.choice([name for name in VALUES if name not in {"v"}])
    some = [value for value in VALUES[name] if value is not None]
    one, other = (_quoted(rng.choice(some)) for _ in range(2))
    number = rng.choice(["n", "m", "u", "de", "3", "-2", "0", "1.25"])
    plain = rng.choice(["=", "<>", "<=>"])
    choices = [
        f"{name} {plain} {one}",
        f"{name} in ({one}, {other})",
        f"{name} not in ({one}, null)",
        f"{name} is not null",
    ]
    if name not in {"c", "e", "st"}:
        choices += [f"{name} {rng.choice(['<', '<=', '>', '>='])} {one}", f"{name} between {one} and {other}"]
    if name in {"n", "m", "de", "d"}:
        choices += [
            f"{name} {rng.choice('+-*')} {number} {rng.choice(['=', '<', '>='])} {rng.choice(['m', '1', '-4.5'])}"
        ]
    return rng.choice(choices)


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return repr(value)


def true_of(text: str, some: Sequence[dict[str, Any]]) -> Bools:
    """For each row, whether the expression is true, by the code under test."""
    expression = Expression.parse(text)
    one = batch(TABLE, [Change(None, row) for row in some])
    columns = expression.columns(TABLE.table)
    return expression.true_of(columns, [one.new[one.columns.index(column)] for column in columns], len(some))
