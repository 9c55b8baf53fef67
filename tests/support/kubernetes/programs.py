"""Kubernetes' own programs, built of their Go modules once and kept; or why they cannot be had."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from support.kept import alone, folder

SOURCE = Path(__file__).parent / "build"
VERSION = "v1.34.4"
_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
_PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    **{name: f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES},
    **{name: f"kubernetes-here/{name}" for name in ("coredns", "pause")},
    **{name: f"github.com/containernetworking/plugins/plugins/main/{name}" for name in ("ptp", "loopback")},
    "host-local": "github.com/containernetworking/plugins/plugins/ipam/host-local",
}
_FOUND = ("containerd", "ctr", "runc", "iptables", "ip", "nsenter", "unshare", "mount", "docker")


class NoKubernetes(Exception):
    """The reason why no cluster can run on this machine."""


def programs() -> Path:
    """The folder that they are in. The first time takes half an hour of two processors. Raises NoKubernetes."""
    missing = [name for name in _FOUND if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        raise NoKubernetes(f"needed: root, and {', '.join(missing) or 'nothing else'}")
    texts = [path.read_bytes() for path in sorted(SOURCE.rglob("*")) if path.is_file()]
    kept = folder().parent / f"kubernetes-{VERSION}-{hashlib.sha256(b''.join(texts)).hexdigest()[:8]}"
    with alone(kept.name):
        if not kept.exists():
            if shutil.which("go") is None:
                raise NoKubernetes("no Go to build Kubernetes with")
            _build(kept)
    return kept


def _build(kept: Path) -> None:
    """Beside it first: a build that was broken off leaves nothing that looks whole."""
    unfinished = kept.with_name(f"{kept.name}.unfinished")
    shutil.copytree(SOURCE, unfinished, dirs_exist_ok=True)
    made = unfinished / "bin"
    made.mkdir(exist_ok=True)
    numbers = VERSION.removeprefix("v").split(".")
    version = {"gitVersion": VERSION, "gitMajor": numbers[0], "gitMinor": numbers[1], "gitCommit": "module"}
    stamp = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in version.items())
    flags = f"{os.environ.get('GOFLAGS', '')} -mod=mod -buildvcs=false -trimpath"
    for name, package in _PACKAGES.items():
        command = ["go", "build", "-ldflags", f"-s -w {stamp}", "-o", str(made / name), package]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": flags}
        done = subprocess.run(command, cwd=unfinished, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoKubernetes(f"{name} cannot be built: {done.stderr[-1_000:]}")
    made.replace(kept)
    shutil.rmtree(unfinished)
