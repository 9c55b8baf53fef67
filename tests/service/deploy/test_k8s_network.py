"""Who may talk to whom, worked out from the rendered NetworkPolicies: what is needed and nothing else."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest

from support.manifests import Document, of_kind, pods, rendered

Flow = tuple[str, str, int]  # from, to, port

META, SCHEMA, DISPATCHER, SORTER, API = (
    f"tistream-{name}" for name in ("meta", "schema", "dispatcher", "sorter", "api")
)
EXECUTOR = "tistream-executor"
PORTS = {API: 8000, META: 8001, SCHEMA: 8002, DISPATCHER: 8003, SORTER: 8004}
BETWEEN = {
    *((one, META, 8001) for one in PORTS),  # routes, heartbeats; a meta server asks the owner
    (DISPATCHER, SORTER, 8004),  # files
    (SCHEMA, SORTER, 8004),  # progress
    (API, SCHEMA, 8002),  # history
    (API, DISPATCHER, 8003),  # status
    (API, SORTER, 8004),  # progress, status
}
SPARK = {
    (EXECUTOR, SORTER, 7078),  # an executor registers with its driver
    (EXECUTOR, SORTER, 7079),  # and gets the code of a job
    (SORTER, EXECUTOR, 7079),  # the driver fetches large results
    (EXECUTOR, EXECUTOR, 7079),  # and executors from each other what one of them has
}
INSIDE = {
    *((one, "minio", 9000) for one in (*PORTS, "minio-bucket")),
    (META, "mariadb", 3306),
}


def _selects(selector: Document, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        wanted &= labels.get(expression["key"]) in expression["values"]
    return bool(wanted)


class Network:
    """The pods of an overlay, and what its policies say about them."""

    def __init__(self, overlay: str) -> None:
        documents = rendered(overlay)
        self.policies = list(of_kind(documents, "NetworkPolicy").values())
        self.pods = {name: pod["metadata"]["labels"] for name, pod in pods(documents).items()}
        self.ports = {
            name: {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0].get("ports", ())}
            for name, pod in pods(documents).items()
        }
        self.ports.setdefault(EXECUTOR, {})["blocks"] = 7079  # Spark opens it: the template names none

    def rules(self, pod: str, direction: str) -> list[Document] | None:
        """Those of all policies that select a pod; None if none does, so that everything is allowed."""
        of_pod = [
            policy["spec"]
            for policy in self.policies
            if _selects(policy["spec"]["podSelector"], self.pods[pod])
            and direction.capitalize() in policy["spec"]["policyTypes"]
        ]
        return [rule for spec in of_pod for rule in spec.get(direction, ())] if of_pod else None

    def _port_fits(self, rule: Document, to: str, port: int) -> bool:
        for one in rule.get("ports") or [{}]:
            named = one.get("port", port)
            number = self.ports[to].get(named) if isinstance(named, str) else named
            if number == port and one.get("protocol", "TCP") == "TCP":
                return True
        return False

    def _allows(self, pod: str, direction: str, peer: str, to: str, port: int) -> bool:
        rules = self.rules(pod, direction)
        if rules is None:
            return True
        side = "from" if direction == "ingress" else "to"
        return any(
            self._port_fits(rule, to, port)
            and any(
                "podSelector" in one
                and "namespaceSelector" not in one
                and _selects(one["podSelector"], self.pods[peer])
                for one in rule[side]
            )
            for rule in rules
        )

    def flows(self) -> set[Flow]:
        """Between pods of the namespace, over all ports that any has."""
        every = {port for ports in self.ports.values() for port in ports.values()} | {22, 80, 443}
        return {
            (source, target, port)
            for source in self.pods
            for target in self.pods
            for port in every
            if self._allows(source, "egress", target, target, port)
            and self._allows(target, "ingress", source, target, port)
        }

    def outside(self, direction: str) -> Iterator[tuple[str, str, int]]:
        """(pod, whom, port) of what goes to, or comes from, beyond the namespace."""
        for pod in self.pods:
            for rule in self.rules(pod, direction) or ():
                for peer in rule["from" if direction == "ingress" else "to"]:
                    whom = peer.get("ipBlock", {}).get("cidr") or _namespace(peer)
                    for port in rule["ports"] if whom else ():
                        yield pod, str(whom), self.ports[pod].get(port["port"], port["port"])


def _namespace(peer: Document) -> str | None:
    if "namespaceSelector" not in peer:
        return None
    [(key, value)] = peer["namespaceSelector"]["matchLabels"].items()
    return f"{key}={value}"


def test_in_dev_nothing_else_flows_and_nothing_leaves_the_namespace_but_names() -> None:
    network = Network("dev")
    assert network.flows() == BETWEEN | INSIDE
    assert set(network.outside("egress")) == {
        (pod, "kubernetes.io/metadata.name=kube-system", 53) for pod in network.pods
    }
    assert set(network.outside("ingress")) == {(API, "tistream-client=true", 8000)}


def test_in_prod_nothing_else_flows() -> None:
    network = Network("prod")
    assert network.flows() == BETWEEN | SPARK
    names = {(pod, "kubernetes.io/metadata.name=kube-system", 53) for pod in network.pods}
    bucket = {(pod, "0.0.0.0/0", 443) for pod in network.pods}
    own = {(META, "0.0.0.0/0", 3306), (SORTER, "0.0.0.0/0", 6443)}
    assert set(network.outside("egress")) == names | bucket | own
    metrics = {(pod, "kubernetes.io/metadata.name=monitoring", port) for pod, port in PORTS.items()}
    assert set(network.outside("ingress")) == metrics | {(API, "tistream-client=true", 8000)}


@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_no_pod_is_without_a_policy_and_none_reaches_the_machines_own_role(overlay: str) -> None:
    network = Network(overlay)
    for pod in network.pods:
        assert network.rules(pod, "ingress") is not None
        for rule in network.rules(pod, "egress") or pytest.fail(f"{pod} may go anywhere"):
            for peer in rule["to"]:
                if block := peer.get("ipBlock"):
                    role = ipaddress.ip_address("169.254.169.254")
                    assert any(role in ipaddress.ip_network(one) for one in block["except"])


def test_a_policy_that_is_missing_is_noticed() -> None:
    network = Network("prod")
    network.policies = [one for one in network.policies if one["metadata"]["name"] != "tistream-schema"]
    assert (API, SCHEMA, 8002) not in network.flows()
    network.policies = [one for one in network.policies if one["metadata"]["name"] != "default-deny"]
    assert (API, SCHEMA, 443) not in network.flows()
    assert (SCHEMA, SCHEMA, 443) not in network.flows()
