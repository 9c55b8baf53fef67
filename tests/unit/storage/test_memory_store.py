from __future__ import annotations

import pytest

from support.contracts.object_store import ObjectStoreContract
from tistream.storage.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore


class TestMemoryObjectStore(ObjectStoreContract):
    @pytest.fixture
    def objects(self) -> ObjectStore:
        return MemoryObjectStore()
