"""Damaged Parquet footers, parsed by plain and by compiled code. `python -m support.footer_damage SEED ROUNDS`.

Run with NUMBA_BOUNDSCHECK=1, a kernel that reads or writes outside of an array raises instead of doing so. (That has to
be known when numba is imported, hence a process of its own.)
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from support.small_files import sound
from tistream.decode.footers.parser import parse
from tistream.format.parquet_footer import Body, parse_body

Foot = tuple[bytes, int]  # the Thrift struct of a footer, and where the pages end

TABLE = pa.table(
    {
        "key": pa.array([b"a", b"bb", None, b"d"] * 50, pa.binary()),
        "ts": pa.array(range(200), pa.int64()),
        "kind": pa.array([1, 2, None, 2] * 50, pa.int32()),
        "after": pa.array([[{"region_id": 1, "log_index": 2}], None, [], None] * 50),
    }
)


def by_pyarrow(path: str) -> None:
    pq.write_table(TABLE, path, row_group_size=70, write_page_index=True, data_page_version="2.0")


def by_polars(path: str) -> None:
    pl.DataFrame(TABLE).write_parquet(path, row_group_size=70, statistics="full")


def by_duckdb(path: str) -> None:
    rows = TABLE  # noqa: F841  # DuckDB finds it by its name
    duckdb.sql("select * from rows").write_parquet(path, row_group_size=2048)


WRITERS = (by_pyarrow, by_polars, by_duckdb)


def foot_of(file: bytes) -> Foot:
    length = int.from_bytes(file[-8:-4], "little")
    return file[-8 - length : -8], len(file) - 8 - length


def feet(path: str) -> list[Foot]:
    """A change file's footer, and those of other writers. `path`: of a file for these."""
    found = [foot_of(sound())]
    for write in WRITERS:
        write(path)
        with open(path, "rb") as file:
            found.append(foot_of(file.read()))
    return found


def damaged(foots: Sequence[Foot], seed: int, rounds: int) -> Iterator[Foot]:
    """Each footer as it is, and then `rounds` of each with bytes changed, removed, added or doubled."""
    chance = random.Random(seed)
    for foot, end in foots:
        yield foot, end
        for _ in range(rounds):
            out = bytearray(foot)
            for _ in range(chance.choice([1, 1, 2, 5])):
                at, to = chance.randrange(len(out)), chance.randrange(len(out))
                some = chance.choice([bytes((chance.randrange(256),)), b"", out[at : at + chance.randrange(30)]])
                out[to : to + chance.choice([len(some), 1, 0])] = some
            yield bytes(out), chance.choice([end, end, end // 2])


def compared(foot: bytes, end: int) -> str:
    """Parse a footer both ways. Returns whether it is refused, or accepted by both or only by plain code. Raises
    AssertionError if compiled code accepts what plain code refuses, or finds something else."""
    compiled, plain = parse(foot, end), _plain(foot, end)
    if plain is None:
        assert compiled is None, (foot.hex(), end)
        return "refused"
    if compiled is None:
        return "left to plain code"
    assert compiled[:2] == plain[:2], (foot.hex(), end)
    assert _passed_on(compiled) == _passed_on(plain), (foot.hex(), end)
    return "accepted"


def _plain(foot: bytes, end: int) -> Body | None:
    try:
        return parse_body(foot, end)
    except ValueError:
        return None


def _passed_on(body: Body) -> object:
    """What pyarrow makes of the new struct: its metadata, or its error."""
    file = b"PAR1" + body.clean + len(body.clean).to_bytes(4, "little") + b"PAR1"
    try:
        # Compiled code copies numbers as they are, also those with more bytes than they need.
        return pq.read_metadata(pa.BufferReader(file)).to_dict() | {"serialized_size": 0}
    except (pa.ArrowException, OSError) as error:
        return type(error)


def main(seed: int, rounds: int, path: str) -> None:
    """Compare damaged footers, and print how many there were of each kind."""
    counts = Counter(compared(foot, end) for foot, end in damaged(feet(path), seed, rounds))
    print(*(f"{kind}={counts[kind]}" for kind in ("accepted", "refused")))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
