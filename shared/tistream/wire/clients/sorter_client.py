"""Calls to the HTTP routes of a sorter."""

from __future__ import annotations

from tistream.wire.clients.client import HttpClient, parse
from tistream.wire.file_batch import CONTENT_TYPE
from tistream.wire.sorter import FilesReceipt, ProgressPage, TaskList

TASKS_DEADLINE_S = 3.0  # short, so that a sorter that hangs does not delay calls to the others


class SorterClient:
    """A client of the sorters. Each call names the base URL of one sorter, and raises Unavailable if that sorter does
    not answer."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def tasks(self, base_url: str, cluster_id: str | None = None, tenant_id: str | None = None) -> TaskList:
        """The tasks that the sorter holds: those of one tenant, or all."""
        params = {"cluster_id": cluster_id, "tenant_id": tenant_id}
        return self._http.get(f"{base_url}/v1/tasks", TaskList, params, deadline_s=TASKS_DEADLINE_S)

    def progress(self, base_url: str, boot: str = "", after: int = 0, wait_ms: int = 0) -> ProgressPage:
        """The progress of the tasks that have changed since an earlier answer, which `boot` and `after` identify
        (ProgressPage). If none has, the sorter waits up to `wait_ms` for one; a sorter of an older version does not."""
        url = f"{base_url}/v1/progress"
        params: dict[str, str | int | None] = {"boot": boot, "after": after}
        return self._http.get(url, ProgressPage, params, wait_ms=wait_ms, deadline_s=TASKS_DEADLINE_S)

    def post_files(self, base_url: str, body: bytes) -> FilesReceipt:
        """Send an encoded FileBatch. Idempotent. Raises PeerBusy if the sorter has no memory left for it."""
        url = f"{base_url}/v1/files"
        return parse(url, self._http.request("POST", url, content=body, content_type=CONTENT_TYPE), FilesReceipt)
