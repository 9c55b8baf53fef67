"""A process that watches its parent, as real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.waiting import PATIENCE_S

# The parent ends at once. The child says so as soon as it notices, in place of ending.
_WATCHES = """
import os, sys
from tistream.service import lifetime

def refused(_pid):
    raise OSError("not this kernel")

def said(status):
    print("the parent has ended", status, flush=True)
    sys.exit()

if sys.argv[1] == "without":
    os.pidfd_open = refused
parent = os.getpid()
if os.fork() == 0:
    os._exit = said
    lifetime._watch(parent)
os._exit(0)
"""


@pytest.mark.parametrize("pidfd", ["with", "without"])
def test_a_process_notices_that_its_parent_has_ended(pidfd: str) -> None:
    command = [sys.executable, "-c", _WATCHES, pidfd]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "the parent has ended 1\n"
