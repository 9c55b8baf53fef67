"""A Kubernetes on this machine, with the images of deploy/k8s on it, until Ctrl-C: `make kubernetes`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from support.compose.engine import NoEngine
from support.kubernetes import images
from support.kubernetes.cluster import cluster
from support.kubernetes.programs import NoKubernetes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="for logs and data; else a temporary one")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="tistream-kubernetes-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        images.make()
        with cluster(folder, arguments.nodes) as running:
            images.load(running)
            print(f"alias kubectl='{' '.join(running.kubectl_command())}'", flush=True)
            signal.pause()
    except (NoKubernetes, NoEngine) as reason:
        print(f"no Kubernetes here: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
