"""`python -m support.needs compose|kubernetes`: what the machine lacks for such a run, and how to get it, a line each.

Exit status 1 if anything is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

ENGINE = "a Docker engine that answers; as root: apt-get install docker.io iptables, then start `dockerd` and leave it"
ROOT_USER = "root: clusters and disks are made of namespaces and mounts"
KUBERNETES_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
CUTS_PROGRAMS = {"ip": "iproute2"}
ANSWER_S = 120


def engine_answers() -> bool:
    """Whether a Docker engine is there."""
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=ANSWER_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def missing(
    run: str,
    answers: Callable[[], bool] = engine_answers,
    which: Callable[[str], str | None] = shutil.which,
    user: Callable[[], int] = os.geteuid,
) -> list[str]:
    """What a run (`compose`, `kubernetes`, or `cuts`: chaos that cuts services off) lacks, a line each."""
    found = [] if run == "cuts" or answers() else [ENGINE]
    if user() != 0:
        found.append(ROOT_USER)
    programs = {"kubernetes": KUBERNETES_PROGRAMS, "cuts": CUTS_PROGRAMS}.get(run, {})
    if lacking := [name for name in programs if which(name) is None]:
        packages = " ".join(sorted({programs[name] for name in lacking}))
        found.append(f"{', '.join(lacking)} on PATH: apt-get install {packages}")
    if run == "kubernetes" and which("go") is None:
        found.append("go on PATH, to build Kubernetes of its modules the first time (half an hour)")
    return found


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    if len(arguments) != 1 or arguments[0] not in ("compose", "kubernetes"):
        print("usage: python -m support.needs compose|kubernetes", file=sys.stderr)
        return 2
    lacks = missing(arguments[0])
    for line in lacks:
        print(f"missing: {line}", file=sys.stderr)
    return 1 if lacks else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
