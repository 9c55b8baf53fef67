"""A model of a Kafka cluster and of its client library, in memory: what the sink of a changefeed asks of them, and what
they promise.

Transactions become visible whole or not at all, partition by partition, once their markers are written. A producer that
initialises its transactional id fences the ones before it, and aborts what they have left open. A commit may happen
although its answer is lost. A transaction that stays open for too long is aborted, and its producer fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tistream_changefeed.sinks.kafka.clients import KafkaClients
from tistream_changefeed.sinks.kafka.target import TRANSACTION_MS

MESSAGE_BYTES_MAX = 1 << 20
BATCHES = (1, 7, 50)  # messages that a producer collects before it sends them
SILENCE_S = 2.0  # until a client gives up a request whose answer does not come


@dataclass
class Transaction:
    """`number`: of all that were begun. `state`: open, committed, aborted. `order`, `at_ms`: when it was decided, among
    all transactions, and in time."""

    number: int
    begun_ms: int
    state: str = "open"
    order: int = 0
    at_ms: int = 0
    marked_ms: dict[tuple[str, int], int] = field(default_factory=dict)  # when its marker is in each partition
    places: set[tuple[str, int]] = field(default_factory=set)  # the partitions that it has records in


@dataclass(frozen=True)
class Record:
    """One record of a partition. `marker`: it ends its transaction there, and no reader sees it."""

    key: bytes | None
    value: bytes | None
    transaction: Transaction | None
    marker: bool = False


@dataclass
class _Id:
    """A transactional id."""

    epoch: int = 0
    open: Transaction | None = None
    last: Transaction | None = None


class Lost(Exception):
    """A request or its answer is lost."""


@dataclass
class Faults:
    """The probabilities of faults of a request. `refused`: a batch that the partition's replicas never take.
    `doubtful`: a commit whose outcome the client never learns."""

    lost: float = 0.0
    unanswered: float = 0.0
    refused: float = 0.0
    doubtful: float = 0.0


@dataclass
class ModelKafka:
    """The cluster. `down`: no broker answers. Its state is durable."""

    now_ms: Callable[[], int]
    rng: Random
    faults: Faults = field(default_factory=Faults)
    down: bool = False
    unserved: int = 0  # answers that are still to come of a broker that lists partitions and does not serve them yet
    topics: dict[str, list[list[Record]]] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    decided: int = 0
    fenced: int = 0  # requests of producers that were fenced
    lost_commits: int = 0  # commits whose answer was lost
    timed_out: int = 0
    _ids: dict[str, _Id] = field(default_factory=dict)
    _stable: dict[tuple[str, int], int] = field(default_factory=dict)  # the last answers of `stable`
    _created: list[list[list[Record]]] = field(default_factory=list)  # topics, by their ids

    # ---- what readers see

    def committed(self, topic: str, partition: int, start: int = 0) -> Iterator[tuple[int, Record]]:
        """The records from offset `start` on that a reader of committed messages gets now, with their offsets."""
        log = self.topics[topic][partition]
        for offset in range(start, self.stable(topic, partition)):
            record = log[offset]
            one = record.transaction
            if not record.marker and (one is None or one.state == "committed"):
                yield offset, record

    def stable(self, topic: str, partition: int) -> int:
        """The last stable offset: that of the first record whose transaction is not ended in the partition."""
        self._time_out()
        now_ms, place = self.now_ms(), (topic, partition)
        log = self.topics[topic][partition]
        offset = self._stable.get(place, 0)  # what is ended stays ended
        while offset < len(log):
            one = log[offset].transaction
            if one is not None and (one.state == "open" or one.marked_ms.get(place, 0) > now_ms):
                break
            offset += 1
        self._stable[place] = offset
        return offset

    def settled(self) -> bool:
        """Whether readers see the end of every transaction that was decided: its markers are written."""
        now_ms = self.now_ms()
        return all(at_ms <= now_ms for one in self.transactions for at_ms in one.marked_ms.values())

    def topic_id(self, topic: str) -> str:
        """The id of a topic; one that is created again has another."""
        log = self.topics[topic]
        if not any(one is log for one in self._created):
            self._created.append(log)
        return next(f"id{at}" for at, one in enumerate(self._created) if one is log)

    # ---- what producers ask

    def init(self, name: str) -> int:
        """Fence the producers of an id, and abort what is open. Returns the new epoch."""
        self._time_out()
        of = self._ids.setdefault(name, _Id())
        of.epoch += 1
        if of.open is not None:
            self._decide(of, "aborted")
        return of.epoch

    def marked(self, name: str) -> bool:
        """Whether all markers of the id's last transaction are written."""
        last = self._ids[name].last
        return last is None or all(at_ms <= self.now_ms() for at_ms in last.marked_ms.values())

    def append(self, name: str | None, epoch: int, messages: Sequence[tuple[str, int, Any, Any]]) -> None:
        """Append messages, to a transaction if `name` is an id."""
        one = None
        if name is not None:
            of = self._checked(name, epoch)
            if of.open is None:
                of.open = Transaction(len(self.transactions), self.now_ms())
                self.transactions.append(of.open)
            one = of.open
        for topic, partition, key, value in messages:
            self.topics[topic][partition].append(Record(key, value, one))
            if one is not None:
                one.places.add((topic, partition))

    def end(self, name: str, epoch: int, state: str, number: int | None) -> None:
        """Commit or abort. `number`: of the transaction that the producer has begun; a repeated end changes nothing."""
        of = self._checked(name, epoch)
        if of.open is not None:
            self._decide(of, state)
        elif number is not None and (of.last is None or (of.last.number, of.last.state) != (number, state)):
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "no such transaction"))

    def number(self, name: str) -> int | None:
        """The number of the transaction that is open under an id."""
        one = self._ids[name].open
        return None if one is None else one.number

    def _checked(self, name: str, epoch: int) -> _Id:
        self._time_out()
        of = self._ids[name]
        if of.epoch != epoch:
            self.fenced += 1
            raise KafkaException(KafkaError(KafkaError._FENCED, "a newer producer has the id", True))
        return of

    def _decide(self, of: _Id, state: str) -> None:
        one = of.open
        assert one is not None
        self.decided += 1
        one.state, one.order, one.at_ms = state, self.decided, self.now_ms()
        for topic, number in sorted(one.places):
            one.marked_ms[topic, number] = self.now_ms() + self.rng.choice((0, 30, 300))
            self.topics[topic][number].append(Record(None, None, one, marker=True))
        of.open, of.last = None, one

    def _time_out(self) -> None:
        for of in self._ids.values():
            if of.open is not None and of.open.begun_ms + TRANSACTION_MS < self.now_ms():
                self._decide(of, "aborted")
                of.epoch += 1
                self.timed_out += 1

    # ---- clients

    def clients(self, pause: Callable[[float], None], reached: Callable[[], bool]) -> KafkaClients:
        """The client library of one process. `pause` lets so many seconds pass; the process may die in it. `reached`:
        whether the process reaches the cluster."""
        line = _Line(self, pause, reached)
        make: Any = SimpleNamespace(
            producer=lambda conf, **_: ModelProducer(line, conf),
            consumer=lambda conf, **_: ModelConsumer(line),
            admin=lambda conf, **_: ModelAdmin(line),
        )
        return KafkaClients(make.producer, make.consumer, make.admin)


@dataclass
class _Line:
    """The connection of a process."""

    kafka: ModelKafka
    pause: Callable[[float], None]
    reached: Callable[[], bool]

    def ask(self, act: Callable[[], Any], timeout_s: float = SILENCE_S) -> Any:
        """One request. Raises Lost; then it was done, or not."""
        kafka, rng = self.kafka, self.kafka.rng
        self.pause(rng.uniform(0.0002, 0.003))
        if not self._answers() or rng.random() < kafka.faults.lost:
            self.pause(min(timeout_s, SILENCE_S))
            raise Lost
        found = act()
        unanswered = rng.random() < kafka.faults.unanswered
        self.pause(rng.uniform(0.0002, 0.003))
        if unanswered or not self._answers():
            self.pause(min(timeout_s, SILENCE_S))
            raise Lost
        return found

    def _answers(self) -> bool:
        return self.reached() and not self.kafka.down


class ModelProducer:
    """As confluent_kafka.Producer."""

    def __init__(self, line: _Line, conf: Mapping[str, Any]) -> None:
        self._line, self._kafka = line, line.kafka
        self._id: str | None = conf.get("transactional.id")
        self._delivered = conf.get("on_delivery")
        self._epoch = 0
        self._queue: list[tuple[str, int, Any, Any]] = []
        self._batch = line.kafka.rng.choice(BATCHES)
        self._number: int | None = None  # of the transaction, once something was sent
        self._failed = False

    def init_transactions(self, _timeout: float) -> None:
        assert self._id is not None
        name = self._id
        self._epoch = self._retriable(lambda: self._kafka.init(name))
        while not self._kafka.marked(name):
            self._line.pause(0.01)

    def begin_transaction(self) -> None:
        assert not self._queue, "the last transaction was not ended"
        self._number, self._failed = None, False

    def produce(self, topic: str, value: Any, key: Any, partition: int) -> None:
        self._queue.append((topic, partition, key, value))
        if len(self._queue) >= self._batch:
            self._send()

    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        self._send()
        left = len(self._queue)
        return left

    def purge(self) -> None:
        self._queue.clear()

    def commit_transaction(self, _timeout: float) -> None:
        self._send()
        if self._failed or self._queue:
            raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "a batch was not taken", False, False, True))
        self._end("committed")

    def abort_transaction(self, _timeout: float) -> None:
        self._queue.clear()
        self._end("aborted")

    def _end(self, state: str) -> None:
        if self._number is None:
            return  # nothing was sent: the broker knows of no transaction
        assert self._id is not None
        name, number, before = self._id, self._number, self._kafka.decided
        doubtful = state == "committed" and self._kafka.rng.random() < self._kafka.faults.doubtful
        if doubtful and self._kafka.rng.random() < 0.3:
            raise KafkaException(KafkaError(KafkaError._STATE, "the coordinator does not answer"))
        try:
            self._retriable(lambda: self._kafka.end(name, self._epoch, state, number))
        except KafkaException:
            self._kafka.lost_commits += state == "committed" and self._kafka.decided > before
            raise
        if doubtful:
            self._kafka.lost_commits += 1
            raise KafkaException(KafkaError(KafkaError._STATE, "the coordinator does not answer"))

    def _send(self) -> None:
        """Send what is queued. An idempotent producer repeats a batch whose answer is lost, and the broker drops the
        repeat."""
        taken = 0

        def append() -> None:
            nonlocal taken
            if not taken:
                self._kafka.append(self._id, self._epoch, batch)
                if self._id is not None:
                    self._number = self._kafka.number(self._id)
            taken = len(batch)

        if self._kafka.rng.random() < self._kafka.faults.refused:
            self._failed = True
            return
        while self._queue and not self._failed:
            batch, taken = self._queue[: self._batch], 0
            for _ in range(5):
                try:
                    self._line.ask(append)
                    break
                except Lost:
                    continue
            else:
                self._failed = True
                if self._delivered is not None:
                    self._delivered(KafkaError(KafkaError._MSG_TIMED_OUT), None)
                return
            del self._queue[: len(batch)]

    def _retriable(self, act: Callable[[], Any]) -> Any:
        try:
            return self._line.ask(act)
        except Lost as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", False, True)) from error


class ModelConsumer:
    """As confluent_kafka.Consumer with read_committed, one partition and enable.partition.eof."""

    def __init__(self, line: _Line) -> None:
        self._line, self._kafka = line, line.kafka
        self._place = ("", 0)
        self._at, self._told = 0, -1

    def assign(self, places: Sequence[Any]) -> None:
        self._place = (places[0].topic, places[0].partition)
        self._at = max(0, places[0].offset)  # those that name a place, as the beginning, are negative

    def poll(self, timeout: float) -> Any:
        before = self._at, self._told
        try:
            return self._line.ask(self._next, timeout)
        except Lost:
            self._at, self._told = before  # it fetches again
            return None

    def _next(self) -> Any:
        for offset, record in self._kafka.committed(*self._place, self._at):
            self._at = offset + 1
            return _message(record, offset, None)
        end = self._kafka.stable(*self._place)
        if end > self._told:
            self._at = self._told = max(end, self._at)
            return _message(None, end, KafkaError(KafkaError._PARTITION_EOF))
        self._line.pause(0.05)
        return None

    def close(self) -> None:
        self._at = 0


class ModelAdmin:
    """As confluent_kafka.admin.AdminClient."""

    def __init__(self, line: _Line) -> None:
        self._line, self._kafka = line, line.kafka

    def poll(self, _timeout: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> Any:
        def listed() -> Any:
            counts = {name: range(len(partitions)) for name, partitions in self._kafka.topics.items()}
            topics = {name: SimpleNamespace(error=None, partitions=numbers) for name, numbers in counts.items()}
            return SimpleNamespace(topics=topics)

        try:
            return self._line.ask(listed, timeout)
        except Lost as error:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker answers")) from error

    def create_topics(self, topics: Sequence[Any], request_timeout: float) -> dict[str, Future[None]]:
        def created() -> None:
            for one in topics:
                if one.topic in self._kafka.topics:
                    raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
                self._kafka.topics[one.topic] = [[] for _ in range(one.num_partitions)]

        return {topics[0].topic: self._answered(created, request_timeout)}

    def describe_configs(self, resources: Sequence[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        limit = {"max.message.bytes": SimpleNamespace(value=str(MESSAGE_BYTES_MAX))}
        return {resources[0]: self._answered(lambda: limit, request_timeout)}

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        names = topics.topic_names
        return {
            name: self._answered(
                lambda name=name: SimpleNamespace(topic_id=self._kafka.topic_id(name)), request_timeout
            )
            for name in names
        }

    def list_offsets(self, asked: Mapping[Any, Any], request_timeout: float, **_: Any) -> dict[Any, Future[Any]]:
        def ends() -> dict[Any, int]:
            if self._kafka.unserved:
                self._kafka.unserved -= 1
                raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
            return {place: len(self._kafka.topics[place.topic][place.partition]) for place in asked}

        whole = self._answered(ends, request_timeout)
        out: dict[Any, Future[Any]] = {}
        for place in asked:
            out[place] = one = Future()
            if (error := whole.exception()) is not None:
                one.set_exception(error)
            else:
                one.set_result(SimpleNamespace(offset=whole.result()[place]))
        return out

    def _answered(self, act: Callable[[], Any], timeout_s: float) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(self._line.ask(act, timeout_s))
        except Lost:
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")))
        except KafkaException as error:
            future.set_exception(error)
        return future


def _message(record: Record | None, offset: int, error: KafkaError | None) -> Any:
    return SimpleNamespace(
        error=lambda: error,
        offset=lambda: offset,
        key=lambda: None if record is None else record.key,
        value=lambda: None if record is None else record.value,
    )
