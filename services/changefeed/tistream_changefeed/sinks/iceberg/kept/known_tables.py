"""The tables that a feed has created, by the ids that their catalog gave them. Pure.

They are properties of the feed's own table, so a worker that takes over notices that another program has dropped or
replaced a table while no worker was looking. Without these properties it would create the table again, without its
earlier rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tistream_changefeed.core.failure import failed
from tistream_changefeed.sinks.iceberg.target import Identifier

_PREFIX = "tistream.table."


class KnownTables:
    """The tables of a feed. `properties` are those of its own table. `kept`: False if a removed feed with this name
    wrote them; its tables are forgotten. `where`: the feed's own table, for errors. Raises FeedFailed if another
    program has written the properties."""

    def __init__(self, properties: Mapping[str, str], where: str, *, kept: bool = True) -> None:
        self._stored = {name: text for name, text in properties.items() if name.startswith(_PREFIX)}
        try:
            found = {name.removeprefix(_PREFIX): tuple(json.loads(text)) for name, text in self._stored.items()}
        except (TypeError, ValueError) as error:
            raise failed("sink", where, "another program has written its properties: drop the table") from error
        self._names: dict[str, Identifier] = found if kept else {}

    def __iter__(self) -> Iterator[tuple[str, Identifier]]:
        return iter(list(self._names.items()))

    def at(self, identifier: Identifier) -> set[str]:
        """The ids of the tables that have had this name last."""
        return {uuid for uuid, name in self._names.items() if name == identifier}

    def put(self, uuid: str, identifier: Identifier) -> None:
        """Note the name that a table has now."""
        self._names[uuid] = identifier

    def forget(self, uuid: str) -> None:
        """Forget a table, which may be dropped from now on."""
        self._names.pop(uuid, None)

    def changes(self) -> tuple[dict[str, str], list[str]]:
        """What to change in the feed's own table so that it names these tables: the properties to set, and the names of
        the properties to remove."""
        wanted = self._properties()
        changed = {name: text for name, text in wanted.items() if self._stored.get(name) != text}
        return changed, [name for name in self._stored if name not in wanted]

    def stored(self) -> None:
        """Note that the changes are in the feed's own table."""
        self._stored = self._properties()

    def _properties(self) -> dict[str, str]:
        return {_PREFIX + uuid: json.dumps(name) for uuid, name in self._names.items()}
