"""A real Kubernetes on this machine: its own programs, each of its machines a set of namespaces. Nothing outlives it.

One machine has etcd, the API server, the controllers and the scheduler; the others have a container runtime, a kubelet
and a kube-proxy. Volumes are folders that every machine sees, as if by a network. There is nobody who enforces
NetworkPolicies, and no metrics server.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.compose.engine import docker
from support.kubernetes.identity import Authority
from support.kubernetes.machine import Machine, plug, plug_in_here
from support.kubernetes.programs import programs

_API = "10.78.0.1"
_URL = f"https://{_API}:6443"
_WIRE, _HERE, _THERE = "kubernetes0", "10.78.255.1", "10.78.255.2"  # by which an operator on this machine comes to it
_SERVICES = "10.80.0.0/16"
_NAMES = "10.80.0.10"  # where pods ask for names
_PODS = "10.79.{number}.0/24"
_CGROUPS = Path("/sys/fs/cgroup")
_KUBELET = Path("/var/lib/kubelet")  # the path stands in the kubelet's code; each machine has its own there
_TUNABLES = {
    "vm/overcommit_memory": "1",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_VOLUMES = {"10Gi": 1, "2Gi": 1}
_UP_SECONDS = 600
_LOAD_SECONDS = 900


def waited(ready: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until `ready` returns true. Raises AssertionError, which names `what`, after the timeout."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"after {seconds} s: {what}"
        time.sleep(0.5)


class Cluster:
    """`folder` gets everything: logs, data, images' layers. Raises NoKubernetes."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self.folder = folder
        self._programs = programs()
        self._authority = Authority(folder / "identity")
        self.control = Machine("control", folder / "control")
        self.nodes: dict[str, Machine] = {}
        self._admin = self._authority.kubeconfig("admin", "admin", "system:masters", f"https://{_THERE}:6443")
        try:
            self._start_control()
            for number in range(1, nodes + 1):
                self.add_node(number)
            self._add_names_and_volumes()
        except BaseException:
            self.close()
            raise

    # --- what an operator has ----------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, timeout: float = 300) -> str:
        """Run kubectl; returns its output. Raises AssertionError with the error output."""
        command = self.kubectl_command(*arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout)
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout[-3_000:]}{done.stderr[-3_000:]}"
        return done.stdout

    def kubectl_command(self, *arguments: str) -> list[str]:
        """As it may be said on this machine."""
        return [str(self._programs / "kubectl"), "--kubeconfig", str(self._admin), *arguments]

    def get(self, *arguments: str) -> Any:
        """The objects that `kubectl get ARGUMENTS` returns."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def load(self, *images: str) -> None:
        """Copy images from the Docker engine to every node."""
        file = self.folder / "images.tar"
        docker("save", "--output", str(file), *images, timeout=_LOAD_SECONDS)
        for node in self.nodes.values():
            node.run("ctr", "-n", "k8s.io", "images", "import", str(file), timeout=_LOAD_SECONDS)
        file.unlink()

    def tag(self, image: str, name: str) -> None:
        """Add another name for an image that every node has."""
        for node in self.nodes.values():
            node.run("ctr", "-n", "k8s.io", "images", "tag", f"docker.io/library/{image}", f"docker.io/library/{name}")

    # --- machines ----------------------------------------------------------------------------------------------------

    def _program(self, name: str, **flags: object) -> list[str]:
        return [str(self._programs / name), *(f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items())]

    def _start_control(self) -> None:
        control, identity = self.control, self._authority.folder
        for command in (
            ["link", "add", "nodes", "type", "bridge"],
            ["addr", "add", f"{_API}/24", "dev", "nodes"],
            ["link", "set", "nodes", "up"],
        ):
            control.run("ip", *command)
        plug_in_here(control, _WIRE, _HERE, _THERE)
        control.start(*self._program("etcd", data_dir=self.folder / "etcd", unsafe_no_fsync="true"))
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        serving = self._authority.certify("api", "kube-apiserver", where=(_API, _THERE, "10.80.0.1", *names))
        to_kubelets = self._authority.certify("api-to-kubelets", "kube-apiserver-kubelet-client", "system:masters")
        accounts = identity / "service-accounts-key.pem"
        control.start(
            *self._program(
                "kube-apiserver",
                etcd_servers="http://127.0.0.1:2379",
                advertise_address=_API,
                service_cluster_ip_range=_SERVICES,
                authorization_mode="Node,RBAC",
                enable_admission_plugins="NodeRestriction",
                client_ca_file=self._authority.file,
                tls_cert_file=serving[0],
                tls_private_key_file=serving[1],
                kubelet_preferred_address_types="InternalIP",
                kubelet_client_certificate=to_kubelets[0],
                kubelet_client_key=to_kubelets[1],
                service_account_issuer="https://kubernetes.default.svc.cluster.local",
                service_account_signing_key_file=accounts,
                service_account_key_file=accounts,
            )
        )
        waited(lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok", _UP_SECONDS, "no API server")
        manager, scheduler = (
            self._authority.kubeconfig(name, f"system:{name}", "", _URL)
            for name in ("kube-controller-manager", "kube-scheduler")
        )
        control.start(
            *self._program(
                "kube-controller-manager",
                kubeconfig=manager,
                use_service_account_credentials="true",
                service_account_private_key_file=accounts,
                root_ca_file=self._authority.file,
            )
        )
        control.start(*self._program("kube-scheduler", kubeconfig=scheduler))

    def add_node(self, number: int) -> str:
        """Add a machine that runs pods; returns its name once it is ready."""
        name, address = f"node-{number}", f"10.78.0.{number + 10}"
        folder = self.folder / name
        machine = self.nodes[name] = Machine(name, folder)
        plug(machine, self.control, address, bridge="nodes", gateway=_API)
        self.control.run("ip", "route", "add", _PODS.format(number=number), "via", address)
        self.control.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        machine.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self._prepare(machine, name)
        self._start_runtime(machine, number)
        file = self._authority.kubeconfig(name, f"system:node:{name}", "system:nodes", _URL)
        machine.start(
            *self._program(
                "kubelet",
                config=_written(folder / "kubelet.json", self._kubelet(name, folder)),
                kubeconfig=file,
                hostname_override=name,
                node_ip=address,
                root_dir=_KUBELET,
            )
        )
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "hostnameOverride": name,
            "clientConnection": {
                "kubeconfig": str(self._authority.kubeconfig(f"proxy-{number}", "system:kube-proxy", "", _URL))
            },
            # Limits of the whole kernel are not this namespace's to set.
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        machine.start(*self._program("kube-proxy", config=_written(folder / "proxy.json", proxy)))
        waited(lambda: self._ready(name), _UP_SECONDS, f"{name} is not ready")
        return name

    def _ready(self, name: str) -> bool:
        said = self.kubectl(
            "get", "node", name, "-o", 'jsonpath={.status.conditions[?(@.type=="Ready")].status}', check=False
        )
        return said.strip() == "True"

    def _prepare(self, machine: Machine, name: str) -> None:
        """Folders and cgroups of its own; and what a kubelet would set for the whole kernel looks set."""
        for controller in sorted(_CGROUPS.iterdir()):
            (controller / f"tistream-{name}").mkdir(exist_ok=True)
        cpuset = _CGROUPS / "cpuset"
        for file in ("cpuset.cpus", "cpuset.mems"):
            (cpuset / f"tistream-{name}" / file).write_text((cpuset / file).read_text())
        _KUBELET.mkdir(parents=True, exist_ok=True)
        (machine.folder / "kubelet").mkdir()
        machine.run("mount", "--bind", str(machine.folder / "kubelet"), str(_KUBELET))
        machine.run("mount", "--make-rshared", str(_KUBELET))
        for path, value in _TUNABLES.items():
            file = machine.folder / path.replace("/", "-")
            file.write_text(f"{value}\n")
            machine.run("mount", "--bind", str(file), f"/proc/sys/{path}")

    def _kubelet(self, name: str, folder: Path) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"x509": {"clientCAFile": str(self._authority.file)}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/tistream-{name}",
            "failCgroupV1": False,
            "clusterDNS": [_NAMES],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "resolvConf": _written(folder / "resolv.conf", "nameserver 127.0.0.1\n"),
            "podLogsDir": str(folder / "pods"),
            "volumePluginDir": str(folder / "plugins"),
            # The disk is this machine's: how full it is is nobody's here.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
        }

    def _start_runtime(self, machine: Machine, number: int) -> None:
        folder = machine.folder
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(folder / "addresses"),
                        "ranges": [[{"subnet": _PODS.format(number=number)}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        _written(folder / "cni" / "10-pods.conflist", network)
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        config = f"""
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[{cri}]
  sandbox_image = "tistream-local/pause:here"
  restrict_oom_score_adj = true
[{cri}.cni]
  bin_dir = "{self._programs}"
  conf_dir = "{folder}/cni"
[{cri}.containerd]
  snapshotter = "overlayfs"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
        machine.start("containerd", "--config", _written(folder / "containerd.toml", config))
        waited(
            lambda: (
                "SERVER" in machine.run("ctr", "version", check=False).upper()
                and "REVISION" in machine.run("ctr", "version", check=False).upper()
            ),
            30,
            "no containerd",
        )
        file = folder / "own-images.tar"
        _own_images(self._programs, file)
        machine.run("ctr", "-n", "k8s.io", "images", "import", str(file))

    # --- what every cluster has --------------------------------------------------------------------------------------

    def _add_names_and_volumes(self) -> None:
        self.kubectl("apply", "-f", str(Path(__file__).with_name("names.yaml")))
        documents: list[dict[str, Any]] = [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {
                    "name": "standard",
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        ]
        linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
        for size, count in _VOLUMES.items():
            for number in range(count):
                path = self.folder / "volumes" / f"{size}-{number}"
                path.mkdir(parents=True)
                spec = {
                    "capacity": {"storage": size},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "standard",
                    "persistentVolumeReclaimPolicy": "Retain",
                    "local": {"path": str(path)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [linux]}]}},
                }
                name = f"volume-{size.lower()}-{number}"
                documents.append(
                    {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
                )
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)))
        self.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=10m", timeout=630)

    # --- its end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the cluster. Only `folder` is left."""
        for machine in (*self.nodes.values(), self.control):
            machine.close()
        for name in self.nodes:
            for controller in _CGROUPS.iterdir():
                _remove_cgroup(controller / f"tistream-{name}")
        with contextlib.suppress(OSError):
            _KUBELET.rmdir()


@contextlib.contextmanager
def cluster(folder: Path, nodes: int = 2) -> Iterator[Cluster]:
    """A cluster for a `with` block; its data are removed, logs stay."""
    made = Cluster(folder, nodes)
    try:
        yield made
    finally:
        made.close()
        for path in (folder / "etcd", folder / "volumes", *(folder / name / "containerd" for name in made.nodes)):
            shutil.rmtree(path, ignore_errors=True)


def _written(file: Path, content: object) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return str(file)


def _own_images(folder: Path, file: Path) -> None:
    """Of CoreDNS and of what holds a pod: each is one program."""
    names = []
    for program in ("coredns", "pause"):
        name = f"tistream-local/{program}:here"
        names.append(name)
        archive = subprocess.Popen(["tar", "-C", str(folder), "-c", program], stdout=subprocess.PIPE)
        change = f'ENTRYPOINT ["/{program}"]'
        subprocess.run(
            ["docker", "import", "--change", change, "-", name], stdin=archive.stdout, check=True, capture_output=True
        )
        archive.wait()
    docker("save", "--output", str(file), *names)
    docker("rmi", *names)


def _remove_cgroup(path: Path) -> None:
    if path.is_dir():
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
