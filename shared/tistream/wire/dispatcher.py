"""The dispatcher's HTTP contract: what it knows of every store."""

from pydantic import Field

from tistream.wire.sorter import Chain, Hold, Wire


class StoreStatus(Wire):
    """One upstream store. `at` is the last file routed; `hold` names the object waited for or damaged. `read` is false
    while its dispatcher waits for what the tasks have received of it."""

    cluster_id: str
    tenant_id: str
    store_id: int
    chains: list[Chain]
    last_file_ts: int
    quarantined: bool = False
    hold: Hold | None = None
    read: bool = True


class StoreList(Wire):
    """Answer of `GET /v1/stores[?cluster_id=&tenant_id=]`. `holds` are those of no single store."""

    node_id: str
    stores: list[StoreStatus]
    holds: list[Hold] = Field(default_factory=list)
