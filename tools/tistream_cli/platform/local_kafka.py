"""Runs a Kafka broker on 127.0.0.1 (KRaft, one process), with its data below one directory.

Kafka's jars are fetched by Maven once, in the versions that kafka_jars.xml names, and are kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tistream.clock import SystemClock
from tistream.service import java
from tistream_client.cli.errors import CliError

_JARS_FILE = "kafka_jars.xml"
_FETCH_SECONDS = 1_800
_READY_SECONDS = 300
_STOP_SECONDS = 60
_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 2.0
_CLUSTER = "tiStreamLocalKafkaAAAA"  # 16 bytes in base64
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SERVER, _FORMAT, _CONSOLE = "kafka.Kafka", "kafka.tools.StorageTool", "org.apache.kafka.tools.consumer.ConsoleConsumer"


def jars() -> Path:
    """The directory of Kafka's jars. The first call fetches them. Raises CliError, which states how to get them."""
    pom = resources.files("tistream_cli.platform").joinpath(_JARS_FILE).read_bytes()
    folder = Path.home() / ".cache" / "tistream" / f"kafka-{hashlib.sha256(pom).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise CliError("Kafka's jars come from Maven, and mvn is not on PATH: apt-get install maven")
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        (scratch / "pom.xml").write_bytes(pom)
        command = [maven, "-q", "-B", "-f", str(scratch / "pom.xml"), "dependency:copy-dependencies",
                   "-DincludeScope=runtime", f"-DoutputDirectory={scratch / 'jars'}"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
        if done.returncode:
            raise CliError(
                f"mvn could not fetch Kafka's jars: {(done.stdout + done.stderr)[-500:].strip()}: check the network "
                "or Maven's mirror (~/.m2/settings.xml), and run the command again"
            )
        try:
            (scratch / "jars").rename(folder)
        except OSError as error:  # another process has created it first
            if not folder.is_dir():
                raise CliError(f"cannot keep Kafka's jars in {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


@dataclass
class LocalKafka:
    """A broker on the port `port` of 127.0.0.1, and its controller on `controller_port`. `options`: further lines of
    server.properties. `prepare` is called in the child process before the broker starts."""

    directory: Path
    port: int
    controller_port: int
    options: tuple[str, ...] = ()
    prepare: Callable[[], None] | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """The address `host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the broker. It must be running."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> LocalKafka:
        """Start the broker with its existing data, and wait until it answers. Raises CliError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self.directory / "server.properties"
        settings.write_text("\n".join([*self._settings(), *self.options]) + "\n")
        if not (self.directory / "data" / "meta.properties").exists():
            made = subprocess.run(
                [*self._java(), _FORMAT, "format", "-t", _CLUSTER, "-c", str(settings)],
                capture_output=True,
                text=True,
                check=False,
            )
            if made.returncode:
                why = (made.stdout + made.stderr)[-500:].strip()
                raise CliError(f"Kafka could not format {self.directory / 'data'}: {why}: delete it to begin anew")
        with (self.directory / "kafka.log").open("ab") as out:
            self._process = subprocess.Popen(
                [*self._java(), _SERVER, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=self.prepare,  # noqa: PLW1509 - the caller's: it must leave no process behind
            )
        self._wait()
        return self

    def kill(self) -> None:
        """End the broker by SIGKILL; its data stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the broker with SIGTERM; with SIGKILL if that lasts too long."""
        self._end(signal.SIGTERM)

    def console_consumer(self, topic: str, *arguments: str) -> list[str]:
        """The command line of Kafka's own console consumer for a topic."""
        return [*self._java(), _CONSOLE, "--bootstrap-server", self.address, "--topic", topic, *arguments]

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _java(self) -> list[str]:
        try:
            home = java.find().home
        except java.JavaMissing as error:
            raise CliError(str(error)) from error
        return [str(home / "bin" / "java"), *_JVM, "-cp", f"{jars()}/*"]

    def _settings(self) -> list[str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        return [
            "process.roles=broker,controller",
            "node.id=1",
            f"listeners={listeners}",
            f"advertised.listeners=PLAINTEXT://{self.address}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"controller.quorum.voters=1@127.0.0.1:{self.controller_port}",
            f"log.dirs={self.directory / 'data'}",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "transaction.state.log.num.partitions=4",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "auto.create.topics.enable=false",
        ]

    def _wait(self) -> None:
        clock, pause = SystemClock(), threading.Event()
        deadline = clock.monotonic_ms() + _READY_SECONDS * 1000
        process = self._process
        assert process is not None
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        while True:
            try:
                client.list_topics(timeout=_ANSWER_SECONDS)
                return
            except KafkaException as error:
                if process.poll() is not None or clock.monotonic_ms() > deadline:
                    self.kill()
                    log = self.directory / "kafka.log"
                    end = log.read_text(errors="replace")[-500:].strip()
                    raise CliError(f"Kafka did not start: {error}; the end of {log}: {end}") from error
            pause.wait(_POLL_SECONDS)


@contextmanager
def local_kafka(directory: Path, port: int, controller_port: int) -> Iterator[LocalKafka]:
    """Run a broker for a `with` block. Raises CliError."""
    broker = LocalKafka(directory, port, controller_port).start()
    try:
        yield broker
    finally:
        broker.stop()
