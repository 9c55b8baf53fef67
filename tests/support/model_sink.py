"""A model of a transactional log: what Kafka promises to a shard's holder, in memory, for simulations of the machine.

Transactions become visible whole or not at all. A holder that opens fences those before it. A commit may happen
although its answer is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from tistream_changefeed.core.failure import fenced, retry
from tistream_changefeed.core.outgoing import Sent
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.shard import Transaction


@dataclass
class ModelLog:
    """The log. `partitions`: committed messages in order, by (topic, partition)."""

    rng: Random
    partitions: dict[tuple[str, int], list[Sent]] = field(default_factory=dict)
    progress: Progress | None = None
    holder: int = 0
    faults: float = 0.0  # the share of commits that fail

    def open(self) -> tuple[int, Progress | None, Mapping[str, Mapping[int, int]]]:
        """Fence earlier holders; the holder's number, the progress, and the end offsets."""
        self.holder += 1
        ends: dict[str, dict[int, int]] = {}
        for (topic, number), messages in self.partitions.items():
            ends.setdefault(topic, {})[number] = len(messages)
        return self.holder, self.progress, ends

    def write(self, holder: int, transaction: Transaction) -> None:
        """Commit, unless another holder has opened. Raises FeedFailed, in some cases after the commit."""
        if holder != self.holder:
            raise fenced("log", "another holder has opened")
        fault = self.rng.random() < self.faults
        if fault and self.rng.random() < 0.5:
            raise retry("sink", "log", "aborted")
        for sent in (*transaction.rows.each(), *transaction.marks):
            self.partitions.setdefault((sent.topic, sent.partition), []).append(sent)
        self.progress = transaction.progress
        if fault:
            raise retry("sink", "log", "the answer to the commit was lost")
