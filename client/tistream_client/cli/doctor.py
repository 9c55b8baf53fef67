"""`tistream doctor`: sends requests to the API and to every service, and reports each fault with what to do about it.
Findings are derived from the answers without I/O."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import tistream_client
from tistream_client.cli import trust
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import TOKEN_FILE, CliError, Refused
from tistream_client.cli.output import cell, json_wanted, print_table, show_document
from tistream_client.cli.times import now_ms, shown_seconds
from tistream_client.cli.wire import FAILURES, Server
from tistream_client.core.asking import document_of
from tistream_client.core.errors import Forbidden, Unauthenticated
from tistream_client.core.steps import Answer

OK, WARNING, WRONG, UNKNOWN = "ok", "warning", "wrong", "unknown"
_SKEW_S = 2.0  # the Date header has whole seconds
_LATE_S = 60.0
_REACH_S = 2.0
_TOKEN_DO = f"`tistream --token-file FILE doctor` or {TOKEN_FILE} names a file with a valid token"
_SHOWN = 80
# What to do about a tenant that is held, by the stage that holds it.
_HELD_DO = {
    "push": "look at what pushes its files, the agent or the stores; of a store that has left its cluster: tistream "
    "store retire",
    "dispatch": "look at the dispatchers and their logs: tistream node list",
    "sort": "look at the sorters and their logs, and at their object store: tistream node list",
    "schema": "look at the schema registry and its log: tistream node list",
    "damaged": "push the damaged file again as it was, or begin a new chain; tistream inspect shows the file",
    "node": "start what the reason names: tistream node list",
}
_ROLES = ("dispatcher", "sorter", "schema", "api")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: `what` was checked, its `state` (OK, WARNING, WRONG or UNKNOWN), what was `seen`, and
    what to `do` if the state is not OK."""

    what: str
    state: str
    seen: str
    do: str = ""


def clock_finding(what: str, date: str | None, at_ms: int) -> Finding:
    """Compare a server's clock with that of this machine. `date` is the header `Date` of an answer, which arrived at
    `at_ms` (Unix ms). Without the header the finding is unknown."""
    if date is None:
        return Finding(what, UNKNOWN, "the answer has no date")
    ahead = parsedate_to_datetime(date).timestamp() + 0.5 - at_ms / 1000
    if abs(ahead) <= _SKEW_S:
        return Finding(what, OK, f"within {_SKEW_S:g} s of this machine's")
    seen = f"{shown_seconds(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine's"
    return Finding(what, WARNING, seen, "synchronise both clocks (NTP): ages such as --since 10m and lags rest on them")


def version_finding(what: str, version: str, wanted: str) -> Finding:
    """Compare the version of a process with the one that it should have."""
    if version == wanted:
        return Finding(what, OK, version)
    do = "finish the upgrade: install the newer version where the older one runs, and start that process again"
    return Finding(what, WARNING, f"{version}, and not {wanted}", do)


def tenant_finding(name: str, status: Mapping[str, Any]) -> Finding:
    """Judge the status document of a tenant."""
    held, lag = status["held_by"], status["lag_seconds"]
    if held is not None:
        where = ", ".join(f"{one} {held[one]}" for one in ("store_id", "region_id", "object") if held.get(one))
        seen = f"held by {held['stage']}{f' ({where})' if where else ''}: {held['reason']}"
        return Finding(name, WRONG, seen, _HELD_DO.get(held["stage"], "see tistream tenant status"))
    if lag is None:
        return Finding(name, WRONG, "no snapshot was read", "push schema_snap, or add a source: tistream source add")
    state = OK if lag < _LATE_S else WARNING
    return Finding(name, state, f"lag {shown_seconds(lag)}", "" if state == OK else "see tistream tenant status")


def role_findings(nodes: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding for each kind of service without a live node, and for each node that is suspect or lost."""
    for role in _ROLES:
        if not any(node["role"] == role and node["state"] != "lost" for node in nodes):
            yield Finding(role, WRONG, "no node is alive", f"start a {role}; its log has the reason if it ended")
    for node in nodes:
        if node["state"] in ("suspect", "lost"):
            seen = f"{node['state']}: it sends the owner no heartbeat"
            yield Finding(node["node_id"], WRONG, seen, f"look at the process behind {node['url']}, and at its log")


def api_finding(url: str, health: Answer) -> Finding:
    """Judge an API server by its answer to /healthz."""
    version = document_of(health).get("version")
    if version is None:
        do = "is --url that of a TiStream API server, and not of a proxy's page? tistream context list"
        return Finding("api", WRONG, f"{url} answers, but not as TiStream does: {_begin_of(health)}", do)
    return Finding("api", OK, f"{url} answers, version {version}")


def refused_finding(what: str, error: CliError, do: str) -> Finding:
    """The finding about `what` after a failed call: unknown if the token does not grant the call, otherwise wrong, with
    the advice `do`."""
    if isinstance(error, Refused) and isinstance(error.refusal, Forbidden):
        return Finding(what, UNKNOWN, f"not looked at: {error}")
    return Finding(what, WRONG, str(error), do)


def node_finding(name: str, health: Answer, ready: Answer, version: str) -> Finding:
    """Judge a node by its answers to /healthz and /readyz. `version`: the one that it should have."""
    if ready.status >= 400:
        seen = f"{ready.status}: {document_of(ready).get('detail') or _begin_of(ready)}"
        return Finding(name, WRONG, seen, f"the log of {name} has more")
    own = document_of(health).get("version")
    if own is None:
        do = f"does a proxy answer instead of {name}? Its address is in `tistream node list`"
        return Finding(name, UNKNOWN, f"its answer is not of TiStream: {_begin_of(health)}", do)
    return version_finding(name, str(own), version)


def silent_findings(silent: list[Mapping[str, Any]], asked: int) -> Iterator[Finding]:
    """Judge the nodes that did not answer. `asked` is the number of nodes that were asked. If none of them answered,
    this machine cannot reach the network of the services, which says nothing about them."""
    if silent and len(silent) == asked:
        seen = "none can be reached from this machine; those that are not named send heartbeats"
        yield Finding("nodes", UNKNOWN, seen, "run doctor beside them, for example by `kubectl exec`, to see more")
        return
    for node in silent:
        seen = f"no answer from {node['url']}, and other nodes answer"
        yield Finding(node["node_id"], WRONG, seen, f"look at the process {node['node_id']}, and at its log")


def run_doctor(client: ApiClient, cluster: str | None, tenant: str | None) -> None:
    """Check the API, every service, and the tenant (None: no tenant), and print the findings. Raises CliError if one of
    them is WRONG."""
    if (cluster is None) != (tenant is None):
        raise CliError("--cluster and --tenant are needed together: give both, or neither")
    found = list(_look(client, None if cluster is None or tenant is None else (cluster, tenant)))
    if json_wanted():
        show_document({"findings": [asdict(one) for one in found]})
    else:
        print_table(("", "what", "seen"), [(one.state, one.what, one.seen) for one in found])
        for one in found:
            if one.do:
                sys.stdout.write(f"{one.what}: {one.do}\n")
    wrong = [one.what for one in found if one.state == WRONG]
    if wrong:
        raise CliError(f"{len(wrong)} wrong: {', '.join(wrong)}")


def _look(client: ApiClient, tenant: tuple[str, str] | None) -> Iterator[Finding]:
    try:
        health = client.answer("GET", "/healthz")
    except CliError as error:
        yield Finding("api", WRONG, str(error), "is --url right, and the API server up? tistream context list")
        return
    api = api_finding(client.url, health)
    yield api
    if api.state != OK:
        return
    version = str(document_of(health)["version"])
    yield version_finding("this client", tistream_client.__version__, version)
    yield clock_finding("clock of the api", health.headers.get("date"), now_ms())
    try:
        yield _asked(client, "services of pulls", "/readyz", "all were ready", "start what the text names")
        yield _asked(client, "meta and its database", "/v1/owner", "a meta server is the owner",
                     "look at the meta servers' logs, and whether they reach their database")  # fmt: skip
        yield from _nodes(client, version)
        if tenant is not None:
            yield from _tenant(client, tenant)
    except _NoToken as error:
        yield Finding("token", WRONG, str(error), _TOKEN_DO)


class _NoToken(Exception):
    """Raised if the token is missing or not valid, so that the API answers no call."""


def _asked(client: ApiClient, what: str, path: str, seen: str, do: str) -> Finding:
    try:
        _called(client, path)
    except CliError as error:
        return refused_finding(what, error, do)
    return Finding(what, OK, seen)


def _tenant(client: ApiClient, tenant: tuple[str, str]) -> Iterator[Finding]:
    name = f"tenant {'/'.join(tenant)}"
    try:
        yield tenant_finding(name, _called(client, tenant_path(*tenant, "status")))
    except CliError as error:
        yield refused_finding(name, error, "see tistream tenant list, and the logs of the API server")
        return
    do = "see the logs of the API server, and whether it reaches the object store"
    yield _asked(client, "object store", tenant_path(*tenant, "databases"), "the API has read the tenant's objects", do)


def _called(client: ApiClient, path: str) -> Any:
    try:
        return client.call("GET", path)
    except Refused as error:
        if isinstance(error.refusal, Unauthenticated):
            raise _NoToken(error.refusal.detail) from error
        raise


def _nodes(client: ApiClient, version: str) -> Iterator[Finding]:
    try:
        nodes = _called(client, "/v1/nodes")["nodes"]
    except CliError as error:
        yield refused_finding("nodes", error, "see the logs of the API server")
        return
    yield from role_findings(nodes)
    tls, silent = trust.tls_context(), []
    alive = [node for node in nodes if node["state"] != "lost"]
    for node in alive:
        server = Server(node["url"], _REACH_S, _REACH_S, tls)
        try:
            health, ready = (server.ask("GET", page, {}, None) for page in ("/healthz", "/readyz"))
        except FAILURES:
            silent.append(node)
            continue
        yield node_finding(node["node_id"], health, ready, version)
        skew = clock_finding(f"clock of {node['node_id']}", health.headers.get("date"), now_ms())
        if skew.state != OK:
            yield skew
    yield from silent_findings(silent, len(alive))


def _begin_of(answer: Answer) -> str:
    return cell(answer.body[:_SHOWN].decode("utf-8", "replace").strip()) or f"status {answer.status}, without a text"
