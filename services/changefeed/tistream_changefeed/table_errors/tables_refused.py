"""The exception for tables of which a sink refuses a row or a DDL. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tistream.schema.visible import Name


class TablesRefused(Exception):
    """Raised by a sink that has written nothing of a transaction, because it refuses what the transaction writes to
    these tables. The tables stop, and the others go on. `of_ddl`: whether it refuses the transaction's DDL."""

    def __init__(self, names: Sequence[Name], reason: str, *, of_ddl: bool = False) -> None:
        super().__init__(reason)
        self.names, self.of_ddl = tuple(names), of_ddl
