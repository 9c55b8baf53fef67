"""Sinks of feeds into a real Kafka whose limits no machine is too slow for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from support.waiting import PATIENCE_S
from tistream_changefeed.sinks.kafka import kafka_sink
from tistream_changefeed.sinks.kafka.topics import Topics


@pytest.fixture(scope="module", autouse=True)
def patient_sinks() -> Iterator[None]:
    """A feed is tried again when the broker is late; tests of what it writes stop at the first failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_sink, "Topics", partial(Topics, answer_s=PATIENCE_S))
        patch.setattr(kafka_sink, "INIT_S", PATIENCE_S)
        patch.setattr(kafka_sink, "COMMIT_S", PATIENCE_S)
        yield
