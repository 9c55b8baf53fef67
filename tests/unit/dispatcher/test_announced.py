"""Announcements of files: how many are kept, and that repetitions take no room."""
# Attack: one file announced thousands of times: no LIST

from __future__ import annotations

from tistream_dispatcher.stores.announced import ANNOUNCED_MAX, AnnouncedFiles


def test_a_file_that_is_announced_again_takes_no_room() -> None:
    files = AnnouncedFiles()
    assert all(files.add(1, 5) for _ in range(ANNOUNCED_MAX + 1))
    assert all(files.add(2, ts) for ts in range(1, ANNOUNCED_MAX))
    assert not files.add(3, 6)
    assert files.add(1, 5), "it is there"
    found = files.pop_all()
    assert found.keys() == {1, 2}
    assert sum(map(len, found.values())) == ANNOUNCED_MAX
    assert files.add(3, 6)
