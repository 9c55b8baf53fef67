"""What holds for every test of real services: the limits of calls between them are long, Java compiles little,
and there is one MariaDB and one Kafka for all, and one platform for those that only read.

A call that is given up too soon is made again by whoever needs its answer, or tells a user to come again. A thread that
stalls for some seconds must not make a test see that; tests of a limit set it themselves. All of it ends with the
module, so that tests of another tier may run after it in the same process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support import golden
from support.access_world import Guarded, guarded
from support.api_world import Platform, platform
from support.certificates import Authority
from support.mariadb import MariaDb, running
from support.one_worker import ACCESS, READS, group_of
from support.patient_calls import patient
from support.pull import Consumer
from support.secured_kafka import SecuredKafka, secured_kafka
from support.short_java import OPTIONS, VARIABLE
from tistream_cli.platform.local_kafka import LocalKafka

# MariaDB's data: what is tried is not the disk, so it is in memory where there is room for that.
MEMORY = Path("/dev/shm")
QUICK = ("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin", "--innodb-log-file-size=8M")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A real server, one for all tests."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    scratch = tempfile.TemporaryDirectory(prefix="tistream-mariadb-", dir=where)
    with scratch as directory:
        authority = Authority(Path(directory), "authority")  # TLS is there for clients that want it
        signed = authority.sign("server")
        secured = (f"--ssl-ca={authority.file}", f"--ssl-cert={signed.cert_file}", f"--ssl-key={signed.key_file}")
        with running(Path(directory), options=(*QUICK, *secured)) as server:
            server.authority = authority
            yield server


@pytest.fixture(scope="session")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A real Kafka, one for all tests: one process runs them (tests/support/one_worker.py)."""
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as one:
        yield one


@pytest.fixture(scope="session")
def broker(secured_broker: SecuredKafka) -> LocalKafka:
    """The same, for who wants its plain listener alone."""
    return secured_broker.broker


_shared: dict[str, tuple[ExitStack, Any]] = {}  # by group


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """The platform of a group is stopped after its last test: one that is idle still takes a part of a core."""
    yield
    for group in [*_shared]:
        if nextitem is None or group_of(nextitem.nodeid) != group:
            _shared.pop(group)[0].close()


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Platform, Consumer]:
    """A platform with the set `everything` as a tenant, which nothing changes; other tenants may come beside it. One
    process runs the tests that read it (tests/support/one_worker.py)."""
    if READS not in _shared:
        loaded = golden.load("everything")
        with ExitStack() as stack:
            one = stack.enter_context(platform(tmp_path_factory.mktemp("world"), ranges=4))
            consumer = one.create(loaded)
            one.put(*loaded.deliveries)
            consumer.wait_for(loaded.end_ts)
            _shared[READS] = stack.pop_all(), (one, consumer)
    found: tuple[Platform, Consumer] = _shared[READS][1]
    return found


@pytest.fixture(scope="module")
def up(everything: tuple[Platform, Consumer]) -> Platform:
    return everything[0]


@pytest.fixture(scope="module")
def loaded(everything: tuple[Platform, Consumer]) -> Consumer:
    return everything[1]


@pytest.fixture(scope="module")
def guarded_api(tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    """Two tenants whose API wants tokens, for the group ACCESS. Tokens and tenants may come; what else a file changes
    of it, it ends by `spent`."""
    if ACCESS not in _shared:
        with ExitStack() as stack:
            one = stack.enter_context(guarded(tmp_path_factory.mktemp("guarded")))
            _shared[ACCESS] = stack.pop_all(), one
    found: Guarded = _shared[ACCESS][1]
    return found


@pytest.fixture(scope="module")
def spent(guarded_api: Guarded) -> Iterator[None]:
    """After this file nothing else uses the platform of ACCESS: the next one starts its own."""
    yield
    _shared.pop(ACCESS)[0].close()


@pytest.fixture
def mysql_url(mariadb: MariaDb) -> str:
    """An empty database there."""
    return mariadb.new_database()


@pytest.fixture(scope="module", autouse=True)
def patient_calls() -> Iterator[None]:
    with patient():
        yield


@pytest.fixture(scope="module", autouse=True)
def no_jvm_is_left() -> Iterator[None]:
    """PySpark would give the sessions of later modules the settings and the environment of this one's JVM."""
    yield
    pyspark = sys.modules.get("pyspark")
    assert pyspark is None or pyspark.SparkContext._gateway is None, "a JVM is left: use support.spark.own_jvm"


@pytest.fixture(scope="module", autouse=True)
def short_lived_java() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if OPTIONS:
            patch.setenv(VARIABLE, OPTIONS)
        yield
