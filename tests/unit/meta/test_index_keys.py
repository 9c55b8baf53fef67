"""Whether index entries are kept is said of a tenant when it is registered, and never changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_tenant_ends import World

from tistream.errors import AlreadyDiffers
from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind

KEPT, DROPPED, AS_SORTERS = (TenantKey("7", name) for name in ("kept", "dropped", "as-sorters"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_routes_tell_it_of_each_tenant(world: World) -> None:
    told = {KEPT: True, DROPPED: False, AS_SORTERS: None}
    for key, index_keys in told.items():
        assert world.server.tenant_rules.create(key, index_keys=index_keys).index_keys is index_keys
    world.begin("meta-1")
    for key, index_keys in told.items():
        route = world.route(key)
        assert route is not None
        assert route.index_keys is index_keys


def test_it_is_not_changed_by_registering_again(world: World) -> None:
    """Entries that were dropped are in no pool: one that came again would be a row that is missing there."""
    create = world.server.tenant_rules.create
    create(KEPT, index_keys=True)
    assert create(KEPT).index_keys is True, "nothing said: as it is"
    with pytest.raises(AlreadyDiffers, match="tenant 7/kept exists with index keys kept"):
        create(KEPT, index_keys=False)
    create(AS_SORTERS)
    with pytest.raises(AlreadyDiffers, match="tenant 7/as-sorters exists with index keys as the sorters have it"):
        create(AS_SORTERS, index_keys=True)


def test_the_kind_of_a_tenant_is_routed_and_never_changes(world: World) -> None:
    raw, tidb = TenantKey("7", "raw"), TenantKey("7", "tidb")
    create = world.server.tenant_rules.create
    assert create(raw, kind=TenantKind.RAW).kind is TenantKind.RAW
    assert create(tidb).kind is TenantKind.TIDB
    assert create(raw).kind is TenantKind.RAW, "nothing said: as it is"
    with pytest.raises(AlreadyDiffers, match="tenant 7/raw exists with the kind raw"):
        create(raw, kind=TenantKind.TIDB)
    with pytest.raises(AlreadyDiffers, match="tenant 7/tidb exists with the kind tidb"):
        create(tidb, kind=TenantKind.RAW)
    world.begin("meta-1")
    for key, kind in ((raw, TenantKind.RAW), (tidb, TenantKind.TIDB)):
        route = world.route(key)
        assert route is not None
        assert route.kind is kind
