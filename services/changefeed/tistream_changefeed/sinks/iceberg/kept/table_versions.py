"""Finds the newest version of an Iceberg table. A change of a type that Iceberg cannot have begins a new version of it,
which is a table of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tistream_changefeed.sinks.iceberg.kept.lake_table import NEXT, SOURCE, LakeTable
from tistream_changefeed.sinks.iceberg.target import Identifier, number_of, version_of


def newest_version(
    first: Identifier,
    source: str,
    loaded: Callable[[Identifier], LakeTable | None],
    known: Iterable[tuple[str, Identifier]],
) -> Identifier:
    """The name of the newest version of the Iceberg table `first`; it may not exist. `source`: the name of its table in
    TiDB. `loaded` reads an Iceberg table. `known`: the id and the name of each table that the feed has created: if the
    first version was dropped, because another one has replaced it, later versions are looked for among them."""
    number = 1
    if loaded(first) is None:
        later = sorted({number_of(first, name) for _, name in known} - {1}, reverse=True)
        found = ((one, loaded(version_of(first, one))) for one in later)
        number = next((one for one, it in found if it and it.table.properties.get(SOURCE) == source), 1)
    while (table := loaded(version_of(first, number))) and NEXT in table.table.properties:
        number += 1
    return version_of(first, number)
