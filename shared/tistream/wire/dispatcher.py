"""The answers of dispatchers about the stores that they read."""

from pydantic import Field

from tistream.wire.sorter import Chain, Hold, Wire


class StoreStatus(Wire):
    """An upstream store, as the dispatcher that reads it knows it. The position of a chain is the last file that was
    sent to the tasks. `hold` names the object that is missing or damaged. `read` is false while the store's dispatcher
    does not know yet which files the tasks have received."""

    cluster_id: str
    tenant_id: str
    store_id: int
    chains: list[Chain]
    last_file_ts: int
    quarantined: bool = False
    hold: Hold | None = None
    read: bool = True


class StoreList(Wire):
    """The answer of `GET /v1/stores[?cluster_id=&tenant_id=]`. `holds` are reasons for missing progress that concern no
    single store."""

    node_id: str
    stores: list[StoreStatus]
    holds: list[Hold] = Field(default_factory=list)
