"""How long the callers of a sorter wait for it: the network is httpx's own stand-in for one."""

from __future__ import annotations

import httpx
import pytest

from tistream.errors import Unavailable
from tistream.wire.clients.client import DEADLINE_S, HttpClient
from tistream.wire.clients.sorter_client import SorterClient

URL = "http://sorter"


def test_a_sorter_that_hangs_is_given_up_after_three_seconds_where_others_wait_behind_it() -> None:
    waited: list[float] = []

    def hang(request: httpx.Request) -> httpx.Response:
        waited.append(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("nothing came", request=request)

    with pytest.raises(Unavailable, match="ReadTimeout"):
        SorterClient(HttpClient(transport=httpx.MockTransport(hang))).tasks(URL)
    with pytest.raises(Unavailable, match="ReadTimeout"):
        SorterClient(HttpClient(transport=httpx.MockTransport(hang), deadline_s=1)).tasks(URL)
    with pytest.raises(Unavailable, match="ReadTimeout"):
        SorterClient(HttpClient(transport=httpx.MockTransport(hang))).post_files(URL, b"")
    assert waited == [3, 1, DEADLINE_S]
