"""As much of Kubernetes as a Spark driver asks for: an API of pods, and a kubelet that runs each as a process.

No cluster: nothing is scheduled, limited or kept apart, and the image is this Python. What is real is what Spark asks,
the pods that it makes of our template, and their processes. Every request is noted as (verb, resource).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support import short_java

Pod = dict[str, Any]
_PATH = re.compile(r"/api/v1/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?$")
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class TinyKubernetes:
    """`pods` by name, as Spark made them; `asked`: what it asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: dict[str, Pod] = {}
        self.made: list[Pod] = []
        self.asked: set[tuple[str, str]] = set()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watchers: list[queue.Queue[bytes | None]] = []
        self._lock = threading.RLock()
        self._version = 1

    def add(self, pod: Pod) -> None:
        """One that Spark did not make: the driver's."""
        with self._lock:
            self.pods[pod["metadata"]["name"]] = self._stamped(pod, "Running")

    def create(self, pod: Pod) -> Pod:
        """Take a pod, and run its container."""
        with self._lock:
            self.made.append(json.loads(json.dumps(pod)))
            self._tell("ADDED", self._stamped(pod, "Pending"))
            self.pods[pod["metadata"]["name"]] = pod
            process = self._start(pod)
            self.processes[pod["metadata"]["name"]] = process
            self._tell("MODIFIED", self._stamped(pod, "Running"))
        threading.Thread(target=self._wait, args=(pod, process), daemon=True).start()
        return pod

    def delete(self, names: list[str]) -> None:
        """End pods as a kubelet does: SIGTERM; here nothing is waited for."""
        with self._lock:
            for name in names:
                pod = self.pods.pop(name, None)
                if name in self.processes:
                    self.processes[name].terminate()
                if pod is not None:
                    self._tell("DELETED", pod)

    def selected(self, selector: str) -> list[Pod]:
        """Those whose labels are as `a=b,c!=d` says."""
        with self._lock:
            return [pod for pod in self.pods.values() if _fits(pod["metadata"].get("labels", {}), selector)]

    def running(self) -> list[str]:
        """Names of the pods whose process lives."""
        return sorted(name for name, process in self.processes.items() if process.poll() is None)

    def watch(self) -> queue.Queue[bytes | None]:
        """Lines of events from now on; None at the end."""
        with self._lock:
            found: queue.Queue[bytes | None] = queue.Queue()
            self._watchers.append(found)
            return found

    def close(self) -> None:
        """End everything."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        for watcher in self._watchers:
            watcher.put(None)

    def _stamped(self, pod: Pod, phase: str) -> Pod:
        self._version += 1
        name = pod["metadata"]["name"]
        pod["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(self._version), "namespace": "tistream"}
        pod["metadata"].setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
        containers = pod["spec"].get("containers", [])
        state: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if phase == "Running" else {}
        if phase in ("Failed", "Succeeded"):
            state = {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1, "reason": phase}}
        pod["status"] = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "conditions": ready,
            "containerStatuses": [
                {"name": one["name"], "ready": phase == "Running", "restartCount": 0, "image": "", "imageID": "",
                 "state": state}
                for one in containers
            ],
        }  # fmt: skip
        return pod

    def _tell(self, kind: str, pod: Pod) -> None:
        line = json.dumps({"type": kind, "object": pod}).encode() + b"\n"
        for watcher in self._watchers:
            watcher.put(line)

    def _start(self, pod: Pod) -> subprocess.Popen[bytes]:
        [container] = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        mounts = {one["mountPath"]: self.folder / name / one["name"] for one in container.get("volumeMounts", ())}
        for mounted in mounts.values():
            mounted.mkdir(parents=True, exist_ok=True)
        environ = {}
        for entry in container.get("env", ()):
            value = entry.get("value", "")
            if "valueFrom" in entry:
                value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            for path, mounted in mounts.items():
                value = str(mounted) + value[len(path) :] if value.startswith(path) else value
            environ[entry["name"]] = value
        command = [*container.get("command", ()), *container.get("args", ())]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {
            key: os.environ[key]
            for key in ("PYTHONPATH", "JAVA_HOME", "HOME", short_java.VARIABLE)
            if key in os.environ
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                env={**kept, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **environ},
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def _wait(self, pod: Pod, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with self._lock:
            if pod["metadata"]["name"] in self.pods:
                self._tell("MODIFIED", self._stamped(pod, "Succeeded" if status == 0 else "Failed"))


def _fits(labels: dict[str, str], selector: str) -> bool:
    for part in filter(None, selector.split(",")):
        name, operator, value = re.fullmatch(r"([^!=]+)(!=|==?)(.*)", part).groups()  # type: ignore[union-attr]
        if (labels.get(name) == value) != (operator != "!="):
            return False
    return True


@contextmanager
def tiny_kubernetes(folder: Path) -> Iterator[tuple[TinyKubernetes, str]]:
    """It, and its URL."""
    kubernetes = TinyKubernetes(folder)
    handler = type("Handler", (_Handler,), {"kubernetes": kubernetes})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kubernetes, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        kubernetes.close()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    kubernetes: TinyKubernetes
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answered()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def _answered(self) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = _PATH.fullmatch(parts.path)
        if found is None:
            self._json(404, {"kind": "Status", "status": "Failure", "code": 404, "message": self.path})
            return
        _, resource, name = found.groups()
        verb = _VERBS[self.command]
        if name is None and verb == "get":
            verb = "watch" if asked.get("watch") == "true" else "list"
        if name is None and verb == "delete":
            verb = "deletecollection"
        self.kubernetes.asked.add((verb, resource))
        if resource != "pods":
            self._json(200, {"kind": "List", "items": [], "metadata": {"resourceVersion": "1"}})
        elif verb == "watch":
            self._watch(asked)
        else:
            self._pods(verb, name, asked, body)

    def _pods(self, verb: str, name: str | None, asked: dict[str, str], body: bytes) -> None:
        kubernetes = self.kubernetes
        if verb == "create":
            self._json(201, kubernetes.create(json.loads(body)))
        elif verb == "list":
            items = kubernetes.selected(asked.get("labelSelector", ""))
            self._json(
                200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
            )
        elif verb == "deletecollection":
            kubernetes.delete([pod["metadata"]["name"] for pod in kubernetes.selected(asked.get("labelSelector", ""))])
            self._json(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        elif name not in kubernetes.pods:
            self._json(
                404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
            )
        elif verb == "delete":
            kubernetes.delete([str(name)])
            self._json(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        else:
            self._json(200, kubernetes.pods[str(name)])

    def _watch(self, asked: dict[str, str]) -> None:
        if self.headers.get("Upgrade"):  # a client that is told so goes on without a web socket
            self._json(200, {})
            return
        events = self.kubernetes.watch()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            while (line := events.get()) is not None:
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()

    def _json(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
