"""SIZE: how much work a case has, for those that can be run at more than one size."""

from __future__ import annotations

import os


def size(usual: int) -> int:
    """The environment variable SIZE (such as 1e8; `make bench CASE=point-read SIZE=1e8`), else the usual size."""
    return int(float(os.environ.get("SIZE", usual)))
