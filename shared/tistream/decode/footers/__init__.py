"""Parses Parquet footers by compiled code, in a 5th to a 30th of the processor time of tistream.format.parquet_footer.

A process that uses numba anyway sets this parser. Others would pay some 40 MB for numba.
"""

from __future__ import annotations

from tistream.format import thrift_compact as thrift
from tistream.format.parquet_footer import use_parser

_COLUMN = {
    1: (thrift.I32, 2),  # INT64
    2: (thrift.LIST, (thrift.I32, [0])),
    3: (thrift.LIST, (thrift.BINARY, [b"key"])),
    4: (thrift.I32, 0),
    5: (thrift.I64, 1),
    6: (thrift.I64, 1),
    7: (thrift.I64, 1),
    9: (thrift.I64, 4),
}
_GROUP = {1: (thrift.LIST, (thrift.STRUCT, [{3: (thrift.STRUCT, _COLUMN)}])), 3: (thrift.I64, 1)}
_ROOT = {4: (thrift.BINARY, b"root"), 5: (thrift.I32, 1)}
_LEAF = {1: (thrift.I32, 2), 3: (thrift.I32, 0), 4: (thrift.BINARY, b"key")}
# The footer of one row group of one row of one column, whose page is the byte after the magic
SMALL_FOOTER = thrift.write_struct(
    {
        1: (thrift.I32, 1),
        2: (thrift.LIST, (thrift.STRUCT, [_ROOT, _LEAF])),
        3: (thrift.I64, 1),
        4: (thrift.LIST, (thrift.STRUCT, [_GROUP])),
    }
)
SMALL_END = 5  # where its pages end


def use_compiled() -> None:
    """Make tistream.format.parquet_footer use the compiled parser in this process. The code is loaded from the cache on
    disk, or compiled, by parsing a small footer. Starts no thread."""
    from tistream.decode.footers.parser import parse  # noqa: PLC0415  # keeps numba out of other processes

    parse(SMALL_FOOTER, SMALL_END)
    use_parser(parse)
