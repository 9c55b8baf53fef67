"""Inserts the schemas of tables between the messages of rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tistream.model.ts import LOGICAL_BITS, physical_ms
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.outgoing import Outgoing, SentMessage
from tistream_changefeed.core.shard import to_partitions
from tistream_changefeed.hold.sink import PartitionsOf
from tistream_changefeed.protocols.messages import Message
from tistream_changefeed.protocols.simple.bootstraps import BootstrapRule, Bootstraps


@dataclass(slots=True)
class SchemaMessages:
    """Inserts messages with the schemas of tables when `rule` requires them. `encode` makes such a message."""

    rule: BootstrapRule
    encode: Callable[[TableVersion], Message]
    _sent: Bootstraps

    @classmethod
    def by(cls, rule: BootstrapRule, encode: Callable[[TableVersion], Message]) -> SchemaMessages:
        """Make a SchemaMessages that has sent no schema yet."""
        return cls(rule, encode, Bootstraps(rule))

    def begin(self) -> None:
        """Forget which schemas were sent, because the sink was opened again."""
        self._sent = Bootstraps(self.rule)

    def first(self, version: TableVersion, ts: int, topic: str, count: int) -> tuple[SentMessage, ...]:
        """Make the messages that state a table's schema before its first row: one for each of the `count`
        partitions of `topic`, or only for the first partition if the rule says so. Records the schema as sent
        at `ts`."""
        self._sent.sent(version, physical_ms(ts))
        return to_partitions(self._message(version), count, topic)

    def inserted(self, part: Outgoing, versions: Sequence[TableVersion], partitions: PartitionsOf) -> Outgoing:
        """Insert the schemas that are due into messages of rows, and return the result. The schemas count as sent.
        `part.shape` has indexes into `versions`."""
        part = part.in_order()
        assert part.shape is not None
        before: list[int] = []
        values: list[bytes | None] = []
        places: list[int] = []
        numbers, firsts = np.unique(part.shape, return_index=True)
        for number in numbers[np.argsort(firsts)].tolist():
            version, rows = versions[number], np.flatnonzero(part.shape == number)
            for at in self._sent.before(version, part.commit_ts[rows] >> LOGICAL_BITS):
                row = int(rows[at])
                count = partitions(part.topics[int(part.topic[row])])
                for one in to_partitions(self._message(version), count, ""):
                    before.append(row)
                    values.append(one.value)
                    places.append(one.partition)
        if not before:
            return part
        at_rows = np.array(before, np.int64)
        order = np.argsort(np.concatenate([2 * np.arange(len(part)) + 1, 2 * at_rows]), kind="stable")
        return replace(
            part,
            topic=np.concatenate([part.topic, part.topic[at_rows]])[order],
            partition=np.concatenate([part.partition, np.array(places, np.int64)])[order],
            values=pa.concat_arrays([part.values, pa.array(values, pa.large_binary())]).take(pa.array(order)),
            commit_ts=np.concatenate([part.commit_ts, part.commit_ts[at_rows]])[order],
            shape=None,
        )

    def _message(self, version: TableVersion) -> Message:
        return replace(self.encode(version), every_partition=self.rule.every_partition)
