"""Damage real rows and keys, decode them, and check what comes out. `python -m support.row_fuzz SEED ROUNDS`.

Run with NUMBA_BOUNDSCHECK=1, a kernel that reads or writes outside of a buffer raises instead of doing so. (That has
to be known when numba is imported, hence a process of its own.)
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict

import pyarrow as pa

from support import golden
from tistream.decode.json_text import render_objects
from tistream.decode.keys import is_record_key, table_ids
from tistream.decode.rows import decode_rows
from tistream.schema.tidb.meta_key import decode_key
from tistream.schema.tidb.table import Table, parse_table

ROWS_A_ROUND = 40
Pair = tuple[bytes, bytes]


def corpus() -> list[tuple[Table, list[Pair]]]:
    """The newest version of every table of the golden set, and its rows."""
    data = golden.load("everything")
    rows = golden.committed_rows(data.name)
    rows = rows.filter(rows["op"] == 1)
    tables: dict[int, Table] = {}
    pairs: dict[int, list[Pair]] = defaultdict(list)
    keys = rows["key"].to_arrow()
    for key, value, table_id, record in zip(
        rows["key"], rows["value"], table_ids(keys).tolist(), is_record_key(keys).tolist(), strict=True
    ):
        if record:
            pairs[table_id].append((key, value))
        name = decode_key(key) if key[:1] == b"m" else None
        if name is not None and name.field is not None and name.field.startswith(b"Table:"):
            table = parse_table(json.loads(value))
            tables |= dict.fromkeys(table.physical_ids, table)
    return [(tables[table_id], found) for table_id, found in sorted(pairs.items()) if table_id in tables]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut off, put in, taken out or copied elsewhere."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        if not out:
            break
        at = rng.randrange(min(len(out), rng.choice([8, 40, len(out)])))
        match rng.randrange(5):
            case 0 | 1:
                out[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            case 2:
                del out[at + rng.randrange(1, 5) if rng.random() < 0.5 else at :]
            case 3:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                source = rng.randrange(len(out))
                out[at : at + 4] = out[source : source + 4]
    return bytes(out)


def main(seed: int, rounds: int) -> None:
    """Decode `rounds` damaged batches of every table."""
    rng = random.Random(seed)
    rows = refused = 0
    for table, pairs in corpus() * rounds:
        chosen = [rng.choice(pairs) for _ in range(ROWS_A_ROUND)]
        keys = [damaged(key, rng) if rng.random() < 0.3 else key for key, _ in chosen]
        values = [damaged(value, rng) if rng.random() < 0.9 else value for _, value in chosen]
        decoded = decode_rows(table, table.columns, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
        decoded.batch.validate(full=True)
        for text in render_objects(table.columns, decoded.batch).to_pylist():
            json.loads(text)
        rows += len(chosen)
        refused += len(decoded.errors)
    print(f"rows={rows} refused={refused}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
