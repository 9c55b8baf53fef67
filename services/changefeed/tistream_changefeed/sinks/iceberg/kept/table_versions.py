"""Finds the newest version of an Iceberg table. A change of a type that Iceberg cannot have begins a new version of it,
which is a table of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable

from tistream_changefeed.sinks.iceberg.kept.lake_table import DROPPED, NEXT, SOURCE, LakeTable
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
        number = max(number + 1, number_of(first, (*first[:-1], table.table.properties[NEXT])))
    return version_of(first, number)


def next_number(
    first: Identifier, number: int, sources: Collection[str], loaded: Callable[[Identifier], LakeTable | None]
) -> int:
    """The number of the version that follows the version `number` of the Iceberg table `first`. A number is passed over
    if a table of TiDB with another name than `sources` has its Iceberg table there: `t__v2` may be a user's table."""
    for one in itertools.count(number + 1):
        found = loaded(version_of(first, one))
        if found is None or DROPPED in found.table.properties or found.table.properties.get(SOURCE) in sources:
            break
    return one
