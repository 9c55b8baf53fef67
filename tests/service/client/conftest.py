"""A tenant that has everything, as the client has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.pull import Consumer
from tistream_client import Tenant, TiStream


@pytest.fixture(scope="module")
def acme(loaded: Consumer) -> Iterator[Tenant]:
    with TiStream(loaded.url) as client:
        yield client.tenant("7", "acme")
