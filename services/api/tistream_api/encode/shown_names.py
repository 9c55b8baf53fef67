"""Removes the names in a DDL event that its reader may not read. A RENAME involves the old and the new database, and a
reader of one of them must not learn of the other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tistream.read.events import Ddls, Events
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.visible import fold
from tistream_api.encode.encoding import Encoder
from tistream_api.encode.page_end import PageEnd
from tistream_api.encode.piece import Piece

MayRead = Callable[[str, str], bool]
"""(database, table) -> whether the reader may; the table is "" for the database itself."""


def shown(event: DdlEvent, may_read: MayRead) -> DdlEvent:
    """The event without the names that the reader may not read. Such names are removed from `involved`. An object that
    also has a readable name is shown under that name. The text of the query is emptied if it contains a hidden name."""
    own = (event.database, event.table)
    every = dict.fromkeys((*event.involved, own))
    left = [name for name in every if name != ("", "") and not may_read(*name)]
    if not left:
        return event
    involved = tuple(name for name in event.involved if name not in left)
    kept = own if own not in left else next(iter(involved), ("", ""))
    words = {fold(part) for name in left for part in name} - {fold(part) for name in involved for part in name}
    query = fold(event.query)
    hidden = any(word in query or word.replace("`", "``") in query for word in words - {""})
    return replace(event, database=kept[0], table=kept[1], involved=involved, query="" if hidden else event.query)


@dataclass(slots=True)
class ShownNames:
    """An encoder that removes the names in DDL events that its reader may not read, and passes all events on to another
    encoder."""

    inner: Encoder
    may_read: MayRead

    def events(self, events: Events) -> Iterator[Piece]:
        """Implement Encoder.events: encode the next events, which may be empty."""
        sets = tuple(
            Ddls(tuple(shown(event, self.may_read) for event in one.events)) if isinstance(one, Ddls) else one
            for one in events.sets
        )
        return self.inner.events(replace(events, sets=sets))

    def end(self, end: PageEnd) -> Iterator[Piece]:
        """Implement Encoder.end: encode the position at the end of an answer."""
        return self.inner.end(end)

    def close(self) -> Iterator[Piece]:
        """Implement Encoder.close: encode the end of the answer."""
        return self.inner.close()
