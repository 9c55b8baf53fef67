"""Collects the rows that wait for the next file. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

_ENTRIES_BYTES = 12 << 10  # memory of a table besides its data
_FOLD, _FOLDED_BYTES = 64, 1 << 20  # small tables in a row become one


@dataclass(slots=True)
class OpenRows:
    """Tables of changes, in the order of arrival. `size`: their memory in bytes."""

    tables: list[pa.Table] = field(default_factory=list)
    size: int = 0
    _small: int = 0  # tables at the end that are small

    def keep(self, changes: pa.Table) -> None:
        """Add a table. Now and then, small tables are joined into one, because each table needs memory of its own."""
        size = int(changes.nbytes) + _ENTRIES_BYTES
        self.tables.append(changes)
        self.size += size
        self._small = self._small + 1 if size < _FOLDED_BYTES // _FOLD else 0
        if self._small >= _FOLD:
            small = self.tables[-_FOLD:]
            folded = pa.concat_tables(small).combine_chunks()
            self.tables[-_FOLD:] = [folded]
            self.size += int(folded.nbytes) - sum(int(table.nbytes) for table in small)
            self.size -= (_FOLD - 1) * _ENTRIES_BYTES
            self._small = 0
