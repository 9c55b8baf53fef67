"""NetworkPolicies as packet filters of the nodes, as far as deploy/k8s uses them: pods, namespaces, blocks, ports.

A small reading of our own: no product's, which may differ in how soon a new pod is confined and in what else it does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from support.kubernetes.cluster import Cluster

Document = dict[str, Any]
_SIDES = {"Egress": ("to", "ip saddr", "ip daddr"), "Ingress": ("from", "ip daddr", "ip saddr")}


@dataclass(frozen=True)
class Pod:
    """A pod that has an address."""

    namespace: str
    labels: dict[str, str]
    address: str
    ports: dict[str, int]

    @staticmethod
    def all(found: Iterable[Document]) -> list[Pod]:
        """All pods with addresses, according to the API."""
        return [
            Pod(
                one["metadata"]["namespace"],
                one["metadata"].get("labels", {}),
                one["status"]["podIP"],
                {
                    port["name"]: port["containerPort"]
                    for container in one["spec"]["containers"]
                    for port in container.get("ports", ())
                    if "name" in port
                },
            )
            for one in found
            if one["status"].get("podIP") and one["status"]["phase"] in ("Pending", "Running")
        ]


def selects(selector: Document, labels: dict[str, str]) -> bool:
    """Whether a label selector selects these labels."""
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In", expression
        wanted &= labels.get(expression["key"]) in expression["values"]
    return bool(wanted)


def ruleset(policies: Sequence[Document], pods: Sequence[Pod], namespaces: dict[str, dict[str, str]]) -> str:
    """For nft, the same on every node. What is dropped is remembered in the set `dropped`."""
    text = ["add table ip policies", "delete table ip policies", "table ip policies {"]
    text.append(" set dropped { type ipv4_addr . ipv4_addr . inet_service; flags dynamic; size 4096; }")
    for kind in _SIDES:
        text += [f" chain {kind.lower()} {{", *(f"  {rule}" for rule in _rules(kind, policies, pods, namespaces)), " }"]
    text.append(" chain forward { type filter hook forward priority filter - 10; ct state established,related accept")
    text += ["  jump egress", "  jump ingress", " }", "}"]
    return "\n".join(text)


def _rules(
    kind: str, policies: Sequence[Document], pods: Sequence[Pod], namespaces: dict[str, dict[str, str]]
) -> Iterator[str]:
    side, own, other = _SIDES[kind]
    confined: set[str] = set()
    for policy in policies:
        spec, namespace = policy["spec"], policy["metadata"]["namespace"]
        if kind not in spec["policyTypes"]:
            continue
        chosen = [pod for pod in pods if pod.namespace == namespace and selects(spec["podSelector"], pod.labels)]
        confined |= {pod.address for pod in chosen}
        for rule in spec.get(kind.lower(), ()):
            for peer in rule.get(side) or [{"ipBlock": {"cidr": "0.0.0.0/0"}}]:
                block, peers = peer.get("ipBlock"), _peers(peer, namespace, pods, namespaces)
                for port in rule.get("ports") or [{}]:
                    for ours, theirs, what in _ports(kind, port, chosen, peers):
                        if ours and block:
                            outside = "".join(f" {other} != {one}" for one in block.get("except", ()))
                            yield f"{own} {_set(ours)} {other} {block['cidr']}{outside} {what} return"
                        elif ours and theirs:
                            yield f"{own} {_set(ours)} {other} {_set(theirs)} {what} return"
    if confined:
        who = f"{own} {_set(confined)}"
        yield f"{who} meta l4proto tcp update @dropped {{ ip saddr . ip daddr . tcp dport }}"
        yield f"{who} counter drop"


def _peers(peer: Document, namespace: str, pods: Sequence[Pod], namespaces: dict[str, dict[str, str]]) -> list[Pod]:
    if "ipBlock" in peer:
        return []
    inside = {namespace}
    if "namespaceSelector" in peer:
        inside = {name for name, labels in namespaces.items() if selects(peer["namespaceSelector"], labels)}
    return [pod for pod in pods if pod.namespace in inside and selects(peer.get("podSelector", {}), pod.labels)]


def _ports(
    kind: str, port: Document, chosen: Sequence[Pod], peers: Sequence[Pod]
) -> Iterator[tuple[list[str], list[str], str]]:
    """(our addresses, theirs, match of the port): a port's name is that of whoever is spoken to."""
    ours = [pod.address for pod in chosen]
    theirs = [pod.address for pod in peers]
    protocol, named = port.get("protocol", "TCP").lower(), port.get("port")
    if not isinstance(named, str):
        yield ours, theirs, f"{protocol} dport {named}" if named is not None else ""
        return
    target = chosen if kind == "Ingress" else peers
    for number in sorted({pod.ports[named] for pod in target if named in pod.ports}):
        having = [pod.address for pod in target if pod.ports.get(named) == number]
        yield (having, theirs, f"tcp dport {number}") if kind == "Ingress" else (ours, having, f"tcp dport {number}")


def _set(addresses: Iterable[str]) -> str:
    return f"{{ {', '.join(sorted(addresses))} }}"


class Enforcer:
    """Holds a cluster's nodes to its policies as they are at each call of `refresh`."""

    def __init__(self, running: Cluster) -> None:
        self._cluster = running
        self._text = ""
        self.dropped: set[tuple[str, str, int]] = set()  # (from, to, port), addresses

    def refresh(self) -> bool:
        """Whether anything was changed."""
        everything = ("-A",)
        text = ruleset(
            self._cluster.get("networkpolicies", *everything)["items"],
            Pod.all(self._cluster.get("pods", *everything)["items"]),
            {one["metadata"]["name"]: one["metadata"]["labels"] for one in self._cluster.get("namespaces")["items"]},
        )
        self.collect()
        changed, self._text = text != self._text, text
        if changed:
            for node in self._cluster.nodes.values():
                node.run("nft", "-f", "-", stdin=text)
        return changed

    def collect(self) -> None:
        """What was dropped since, into `dropped`."""
        for node in self._cluster.nodes.values():
            said = node.run("nft", "-j", "list", "set", "ip", "policies", "dropped", check=False)
            for entry in json.loads(said or "{}").get("nftables", ()):
                for element in entry.get("set", {}).get("elem", ()):
                    source, target, port = element["concat"]
                    self.dropped.add((source, target, port))
