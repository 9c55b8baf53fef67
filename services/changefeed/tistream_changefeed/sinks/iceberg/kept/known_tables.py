"""The tables that a feed has created, by the ids that their catalog gave them. Pure.

They are properties of the feed's own table, so a worker that takes over notices that another program has dropped or
replaced a table while no worker was looking. Without these properties it would create the table again, without its
earlier rows. Other properties have the sequence number of the newest commit to each table, so a worker notices that
another program has restored an older state of a table, with the properties that it had then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tistream_changefeed.core.failure import failed
from tistream_changefeed.sinks.iceberg.target import Identifier

_PREFIX, _NEWEST = "tistream.table.", "tistream.newest."


class KnownTables:
    """The name of each table that a feed has created, and the sequence number of its newest commit, by the table's id.

    `properties` are those of the feed's own table. `kept`: False if a removed feed with this name wrote them; then no
    table is known at first. `where`: the feed's own table, for errors. Raises FeedFailed if another program has written
    the properties. Iteration yields (id, name)."""

    def __init__(self, properties: Mapping[str, str], where: str, *, kept: bool = True) -> None:
        self._stored = {name: text for name, text in properties.items() if name.startswith((_PREFIX, _NEWEST))}
        try:
            names = {name: tuple(json.loads(text)) for name, text in _below(_PREFIX, self._stored)}
            newest = {name: int(text) for name, text in _below(_NEWEST, self._stored)}
        except (TypeError, ValueError) as error:
            raise failed("sink", where, "another program has written its properties: drop the table") from error
        self._names: dict[str, Identifier] = names if kept else {}
        self._newest: dict[str, int] = newest if kept else {}

    def __iter__(self) -> Iterator[tuple[str, Identifier]]:
        return iter(list(self._names.items()))

    def at(self, identifier: Identifier) -> set[str]:
        """The ids of the tables whose last known name is `identifier`."""
        return {uuid for uuid, name in self._names.items() if name == identifier}

    def put(self, uuid: str, identifier: Identifier) -> None:
        """Record the present name of the table with the id `uuid`."""
        self._names[uuid] = identifier

    def forget(self, uuid: str) -> None:
        """Forget a table. From now on other programs may drop it without failing the feed."""
        self._names.pop(uuid, None)
        self._newest.pop(uuid, None)

    def newest(self, uuid: str) -> int:
        """The sequence number of the newest commit to a table; 0 if it is not known."""
        return self._newest.get(uuid, 0)

    def committed(self, uuid: str, sequence: int) -> None:
        """Record that the newest commit to a table has this sequence number."""
        self._newest[uuid] = sequence

    def changes(self) -> tuple[dict[str, str], list[str]]:
        """The changes since `stored` was called last, as changes of properties of the feed's own table. Returns (the
        properties to set, the names of the properties to remove)."""
        wanted = self._properties()
        changed = {name: text for name, text in wanted.items() if self._stored.get(name) != text}
        return changed, [name for name in self._stored if name not in wanted]

    def stored(self) -> None:
        """Record that a commit has written `changes` to the feed's own table."""
        self._stored = self._properties()

    def _properties(self) -> dict[str, str]:
        names = {_PREFIX + uuid: json.dumps(name) for uuid, name in self._names.items()}
        return names | {_NEWEST + uuid: str(found) for uuid, found in self._newest.items() if uuid in self._names}


def _below(prefix: str, properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (name without `prefix`, text) for each property whose name begins with `prefix`."""
    for name, text in properties.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), text
