"""Each way to spoil a file of a recorded set is met by whoever reads it, and the error names the object."""

from __future__ import annotations

import pytest

from support import golden
from support.faults import DAMAGES, a_file_in_the_middle
from tistream.errors import CorruptObject
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_changes, read_watermarks

OF_THE_CHAIN = {"chain-broken"}  # sound in itself: tests/unit/dispatcher/test_chain.py


def read(data: bytes, key: str) -> None:
    """Everything: footer, watermarks, changes."""
    objects = MemoryObjectStore()
    objects.put(key, data)
    file = open_change_file(objects, key)
    read_watermarks(objects, file)
    read_changes(objects, file, range(file.first_watermark_row_group))


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in OF_THE_CHAIN])
def test_a_damaged_file_is_refused_by_name(damage: str) -> None:
    sound = a_file_in_the_middle(golden.load("everything"))
    read(sound.data, sound.key)
    with pytest.raises(CorruptObject) as refused:
        read(DAMAGES[damage](sound.data), sound.key)
    assert sound.key in str(refused.value)
