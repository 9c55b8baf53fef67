"""The differences between versions of TiKV and of its clients, and the negotiation of a stream's features.

Pure. The versions come from TiKV's pull requests where they are known (10073, 14213, 14923, 17656).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[-+].*)?\Z")
Version = tuple[int, int, int]

MULTIPLEXING = "stream-multiplexing"


def parse_version(text: str) -> Version:
    """A semantic version without a leading `v`; any other text gives 0.0.0, as in TiKV."""
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
        """The quirks of a TiKV version, such as 6.5.0."""
        version = parse_version(text.removeprefix("v"))
        return cls(
            multiplexing=version >= (7, 3, 0),
            clips=version >= (8, 5, 0),
            index=version < (7, 5, 5) or (7, 6, 0) <= version < (8, 3, 0),
            repeats_long=version < (8, 5, 0),
        )


@dataclass(frozen=True, slots=True)
class Features:
    """The features that one stream's client supports. `version` is the one in its first request."""

    multiplexing: bool
    version: Version

    @property
    def batched(self) -> bool:
        """Whether resolved timestamps come as one message for many regions."""
        return self.version >= (4, 0, 8)

    @property
    def checks_cluster(self) -> bool:
        """Whether the client's cluster id is checked."""
        return self.version >= (5, 3, 0)

    @property
    def silent(self) -> bool:
        """Whether no resolved ts is sent at all: multiplexing with a version that does not parse, or is too old."""
        return self.multiplexing and not self.batched
