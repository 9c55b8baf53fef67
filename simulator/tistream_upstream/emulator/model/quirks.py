"""The differences between versions of TiKV and of its clients, and which features a stream has as a result.

Pure. The versions come from TiKV's pull requests where they are known (10073, 14213, 14923, 17656).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[-+].*)?\Z")
Version = tuple[int, int, int]

MULTIPLEXING = "stream-multiplexing"


def parse_version(text: str) -> Version:
    """Parse a semantic version without a leading `v`. Any other text gives 0.0.0, as in TiKV."""
    found = _SEMVER.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Quirks:
    """The behaviour of one version of TiKV.

    `multiplexing`: it has EventFeedV2. `clips`: it leaves out rows outside of the requested range. `index`: its events
    have the Raft index. `repeats_long`: a lock that is written again with a long value is sent with an empty value.
    """

    multiplexing: bool = True
    clips: bool = True
    index: bool = False
    repeats_long: bool = False

    @classmethod
    def of(cls, text: str) -> Quirks:
        """The behaviour of a TiKV version, such as 6.5.0."""
        version = parse_version(text.removeprefix("v"))
        return cls(
            multiplexing=version >= (7, 3, 0),
            clips=version >= (8, 5, 0),
            index=version < (7, 5, 5) or (7, 6, 0) <= version < (8, 3, 0),
            repeats_long=version < (8, 5, 0),
        )


@dataclass(frozen=True, slots=True)
class Features:
    """The features of one stream, which depend on the client. `version` is the client's, from its first request."""

    multiplexing: bool
    version: Version

    @property
    def batched(self) -> bool:
        """Whether the client accepts one message with the resolved timestamps of many regions."""
        return self.version >= (4, 0, 8)

    @property
    def checks_cluster(self) -> bool:
        """Whether TiKV checks the client's cluster id."""
        return self.version >= (5, 3, 0)

    @property
    def silent(self) -> bool:
        """Whether the client gets no resolved ts at all, because it uses EventFeedV2 with a version that is malformed
        or too old."""
        return self.multiplexing and not self.batched
