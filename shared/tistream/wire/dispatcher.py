"""The dispatcher's HTTP contract: the status of every store."""

from pydantic import Field

from tistream.wire.sorter import Chain, Hold, Wire


class StoreStatus(Wire):
    """One upstream store. `at` of a chain is its last routed file. `hold` names the object that is missing or damaged.
    `read` is false while its dispatcher waits to learn which files the tasks have received."""

    cluster_id: str
    tenant_id: str
    store_id: int
    chains: list[Chain]
    last_file_ts: int
    quarantined: bool = False
    hold: Hold | None = None
    read: bool = True


class StoreList(Wire):
    """The answer of `GET /v1/stores[?cluster_id=&tenant_id=]`. `holds` are those that concern no single store."""

    node_id: str
    stores: list[StoreStatus]
    holds: list[Hold] = Field(default_factory=list)
