"""Store ids and timestamps are signed 64-bit integers wherever they go: what is none is no name of ours."""

from __future__ import annotations

import pytest

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey, parse_store_id
from tistream.storage import layout

TENANT = TenantKey("7", "acme")
PREFIX = layout.push_prefix(TENANT)


@pytest.mark.parametrize("store", [2**63, 10**19 - 1])
def test_a_store_beyond_63_bits_is_ignored(store):
    assert layout.parse_change_file(f"{PREFIX}store-{store}/file-{5:020d}") is None
    assert layout.parse_store_prefix(TENANT, f"{PREFIX}store-{store}/") is None
    with pytest.raises(InvalidRequest, match="store_id"):
        parse_store_id(str(store))


@pytest.mark.parametrize("store", ["01", "-1", "+1", "1.0", "", " 1", "1 ", "0x1", "１", "1\n"])
def test_other_writings_of_a_store_are_ignored(store):
    assert layout.parse_change_file(f"{PREFIX}store-{store}/file-{5:020d}") is None
    assert layout.parse_store_prefix(TENANT, f"{PREFIX}store-{store}/") is None


@pytest.mark.parametrize(
    "stamp", [f"{2**63:020d}", f"{2**64:020d}", f"{5:019d}", f"{5:021d}", "-" + "1" * 19, "٣" * 20]
)
def test_other_stamps_are_ignored(stamp):
    assert layout.parse_change_file(f"{PREFIX}store-1/file-{stamp}") is None


def test_the_highest_of_both_are_names():
    high = 2**63 - 1
    assert layout.parse_change_file(layout.change_file(TENANT, high, high)) == (TENANT, high, high)
    assert layout.parse_store_prefix(TENANT, layout.store_prefix(TENANT, high)) == high
    assert parse_store_id(str(high)) == high
