"""`tistream disconnect`: ends the reading of territories."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tistream_agent.connecting.connect import Connector


def disconnect(
    connector: Callable[[int], Connector],
    territory: int | None,
    found: Collection[int],
    remove: Callable[[int], object] | None,
) -> None:
    """Take territories from the platform, end their chains, and release their holds on GC. The call may be repeated.

    A territory is removed first: a division of it is refused from then on, so what divisions have begun and not handed
    over stays as it is, and is disconnected last.

    Args:
        connector: returns the connector of a territory.
        territory: the id of the only territory; None: all that the platform has, or 1 if it has none.
        found: the territories that the platform has.
        remove: removes a territory from the platform; no error if that is not there. None: there is no platform.

    Raises the errors of `Connector.disconnect` and `remove`.
    """

    def end(number: int) -> None:
        if remove is not None:
            remove(number)
        connector(number).disconnect()

    for number in [territory] if territory is not None else sorted(found) or [1]:
        end(number)
    if territory is None and remove is not None:
        for number in connector(1).left_by_divisions(found):
            end(number)
