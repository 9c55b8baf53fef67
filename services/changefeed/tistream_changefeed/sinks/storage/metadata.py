"""The object `metadata` at the root of a storage sink: TiCDC's checkpoint, and the progress of the feed. Pure.

    {"checkpoint-ts":N,"tistream":{"version":1,"feed":"CLUSTER/TENANT/FEED","window_end":"…","files":{DIR:NUMBER},
     "progress":{…},"windows":[[…]]}}

`checkpoint-ts` is what readers of TiCDC's layout expect: all rows at or below it are in files that index files name.
`progress` is that of core/progress.py; it may be ahead of `checkpoint-ts` for a moment. `files` are the last data files
of the directories that the newest transaction wrote to, whose index files may be missing after a crash. `window_end` is
the commit_ts at which the next window ends, unless its first row lies above that (file_windows.py). `windows` are the
fingerprints of the newest windows (fingerprints/windows.py); it is absent before the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tistream.model.ids import TenantKey
from tistream_changefeed.core import progress as progresses
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.fingerprints import windows
from tistream_changefeed.fingerprints.windows import SentWindow

_VERSION = 1
_LEVELS = 3  # at least, above a data file of a window: database, table, version


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of `metadata`. `shown_ts` is the member `checkpoint-ts`. `files` has the number of the last data file
    by directory."""

    shown_ts: int
    progress: Progress
    window_end: int
    files: Mapping[str, int] = field(default_factory=dict)
    windows: Sequence[SentWindow] = ()

    def encode(self, tenant: TenantKey, feed_id: str) -> bytes:
        """The content of `metadata` as JSON."""
        own = {
            "version": _VERSION,
            "feed": feed_name(tenant, feed_id),
            "window_end": str(self.window_end),
            "files": self.files,
            "progress": json.loads(progresses.encode(tenant, self.progress)),
            **({"windows": [one.members() for one in self.windows]} if self.windows else {}),
        }
        return json.dumps({"checkpoint-ts": self.shown_ts, "tistream": own}, separators=(",", ":")).encode()


def manifest(through_ts: int, files: Sequence[str]) -> bytes:
    """The content of the manifest of a window, which has the rows up to `through_ts` that earlier windows do not have.
    `files` are the keys of its data files below its directory."""
    shown = {"version": _VERSION, "through_ts": str(through_ts), "files": files}
    return json.dumps(shown, separators=(",", ":")).encode()


def files_of(content: bytes) -> tuple[int, list[str]]:
    """Parse a manifest: its `through_ts` and its files. Raises ValueError if no feed has written it."""
    try:
        shown = json.loads(content)
        through_ts, files = int(shown["through_ts"]), [str(one) for one in shown["files"]]
    except (KeyError, TypeError) as error:
        raise ValueError("it is no manifest of a window") from error
    for file in files:
        if file.count("/") < _LEVELS:
            raise ValueError(f"it names {file}, which is no data file of a table")
    return through_ts, files


def decode(content: bytes, tenant: TenantKey, feed_id: str, where: str) -> Metadata:
    """Parse the content of `metadata`. `where` names it in errors. Raises FeedFailed if another feed or program has
    written it."""
    try:
        members: dict[str, Any] = json.loads(content)
        own = members["tistream"]
        if own["version"] != _VERSION:
            raise failed("sink", where, f"it has version {own['version']}; this program knows {_VERSION}: upgrade the "
                         "workers")  # fmt: skip
        name = feed_name(tenant, feed_id)
        if own["feed"] != name:
            raise failed("sink", where, f"feed {own['feed']} writes there: give feed {name} another path")
        return Metadata(
            int(members["checkpoint-ts"]),
            progresses.decode(tenant, json.dumps(own["progress"]).encode(), where),
            int(own["window_end"]),
            {str(directory): int(number) for directory, number in own["files"].items()},
            [windows.parse(one) for one in own.get("windows", ())],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = "another program has written it: give the feed a path of its own"
        raise failed("sink", where, f"{reason} ({type(error).__name__})") from error


def feed_name(tenant: TenantKey, feed_id: str) -> str:
    """The name of a feed, which no feed of another tenant has."""
    return f"{tenant.cluster_id}/{tenant.tenant_id}/{feed_id}"
