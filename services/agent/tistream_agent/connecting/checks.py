"""Checks whether an agent can work with a TiKV cluster, and renders the results for the operator. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tistream.errors import FatalError
from tistream.model.tenant_kind import TenantKind

# The oldest TiKV. Older ones may send a resolved_ts of RawKV above the first write after a leader move
# (upstream-formats 6.7).
OLDEST = {TenantKind.TIDB: (6, 5, 0), TenantKind.RAW: (6, 2, 0)}
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, which is a line of the printed table. `why` says what was found and, if the check has
    failed, what to do. `later`: a server did not answer, so the same check may pass later."""

    name: str
    passed: bool
    why: str
    later: bool = False


class CannotConnect(FatalError):
    """Raised if a cluster or a tenant cannot be connected in its present state."""

    code = "cannot-connect"


class FailedCheck(CannotConnect):
    """Raised if a check has failed. Its result, with the remedy, was shown to the operator before."""

    def __init__(self, check: Check) -> None:
        super().__init__(f"{check.name}: {check.why}")
        self.later = check.later


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """A TiKV store, as PD lists it. `problem`: why it could not be reached; an empty text if it could."""

    store_id: int
    address: str
    version: str
    up: bool
    problem: str = ""


def version_check(stores: Sequence[StoreSeen], kind: TenantKind = TenantKind.TIDB) -> Check:
    """Check that the version of each store is one whose change stream the agent can read."""
    if not stores:
        return Check("TiKV versions", False, "PD lists no TiKV store: is --pd the address of PD, port 2379?")
    for store in stores:
        found = _VERSION.match(store.version)
        wanted = ".".join(map(str, OLDEST[kind]))
        if found is None:
            why = f"store {store.store_id} at {store.address} has version {store.version!r}: use a released TiKV"
            return Check("TiKV versions", False, why)
        if tuple(map(int, found.groups())) < OLDEST[kind]:
            why = f"store {store.store_id} at {store.address} is {store.version}: upgrade it to {wanted} or newer"
            return Check("TiKV versions", False, why)
    return Check("TiKV versions", True, ", ".join(sorted({store.version for store in stores})))


def reach_check(stores: Sequence[StoreSeen]) -> Check:
    """Check that each store can be reached from this machine."""
    for store in stores:
        if not store.up:
            why = f"store {store.store_id} at {store.address} is offline in PD: start it, or wait until it is removed"
            return Check("TiKV stores", False, why)
        if store.problem:
            why = (
                f"store {store.store_id} at {store.address} does not answer: {store.problem}; this machine must be "
                "able to connect to it"
            )
            return Check("TiKV stores", False, why, later=True)
    return Check("TiKV stores", True, f"{len(stores)} answer")


def raw_check(refusals: Mapping[int, str]) -> Check:
    """Check that each store streams the changes of RawKV. `refusals` has, by store id, the reason why it does not; an
    empty text if it does."""
    for store_id, refusal in refusals.items():
        if refusal:
            why = f"store {store_id} refuses RawKV: {refusal}"
            return Check("RawKV", False, why)
    return Check("RawKV", True, f"{len(refusals)} stores have storage.api-version = 2")


def table(checks: Sequence[Check]) -> str:
    """Format the results of checks as text, one on each line."""
    width = max((len(check.name) for check in checks), default=0)
    return "\n".join(f"{check.name:<{width}}  {'yes' if check.passed else 'NO '}  {check.why}" for check in checks)
