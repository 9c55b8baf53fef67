"""`tistream connect --assign`: gives keys to the platform's agents, as territories."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tistream.errors import InvalidRequest
from tistream.wire.bulk.territories import REPLACED_BY_MAX
from tistream_agent.connecting.connect import Connector
from tistream_agent.connecting.divider import Assignments
from tistream_agent.core.chain import Child


def assign(
    connector: Connector, territories: Assignments, damaged: Collection[int], disconnect: Callable[[int], None]
) -> None:
    """Connect the tenant, and give the keys that none of its territories has to the platform's agents, in as many new
    ones as their regions need. The call may be repeated.

    Args:
        damaged: territories whose chains no agent can continue: new ones take their keys. Garbage collection is held
            back for the new ones before the holds of these are released.
        disconnect: ends the chain of a territory, and releases its hold.

    Raises InvalidRequest, before anything is changed, if a chain can be continued, if the territories are of another
    keyspace, or if there would be too many; CannotConnect; Unavailable.
    """
    there = territories.spans()  # a command for another cluster or keyspace changes nothing
    if sound := [number for number in damaged if connector.sound_end(number) is not None]:
        again = f"`tistream agent divide --territory {sound[0]} --into 1` gives its keys to a new one"
        raise InvalidRequest(f"the chain of territory {sound[0]} is not damaged: {again}")
    kept = {number: span for number, span in there.items() if number not in damaged}
    connector.check_room(kept)
    begins_ts = connector.connect()
    found = connector.divide(kept, begins_ts)
    children = [Child(number, span) for number, span in found]
    gone = [number for number in damaged if number in there]  # a run that was interrupted has removed them
    for at in range(0, max(1, len(children)), REPLACED_BY_MAX):
        territories.replace(gone, children[at : at + REPLACED_BY_MAX])
        gone = []
    for number in damaged:
        disconnect(number)
