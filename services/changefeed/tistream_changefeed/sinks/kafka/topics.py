"""Creates the topics of a Kafka sink, and reads their partitions, ids, limits and offsets, through the broker's admin
API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType, TopicMetadata

from tistream.concurrency import sleep
from tistream_changefeed.core.failure import FeedFailed, failed, retry
from tistream_changefeed.sinks.kafka.clients import CONFLUENT, KafkaClients
from tistream_changefeed.sinks.kafka.faults import (
    UNSERVED,
    closed_before_answer,
    failure_of,
    names_cause,
    settings_refused,
)
from tistream_changefeed.sinks.kafka.target import (
    PARTITIONS_DEFAULT,
    KafkaTarget,
    common,
    message_limit,
    partitions_wanted,
)

log = logging.getLogger(__name__)

ANSWER_S = 20.0
SMALL_MAX = 20
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of brokers that know no ids of topics
LISTED_LOOKS, LISTED_PAUSE_S = 100, 0.1
_COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(8 << 20),  # a new holder reads the topic from its beginning
}
T = TypeVar("T")


class _Overheard:
    """A logger for a Kafka client. It also stores facts that the client reports only in its log."""

    def __init__(self) -> None:
        self.ended = False  # a connection, by the broker, before it has answered

    def log(self, level: int, text: str, *args: object) -> None:
        """Log a line of the client, and store the facts that the line states."""
        self.ended = self.ended or closed_before_answer(text % args if args else text)
        log.log(level, text, *args)


class Topics:
    """The topics of a Kafka sink. Every call may raise FeedFailed. `answer_s`: seconds to wait for each answer of the
    broker."""

    def __init__(
        self, target: KafkaTarget, client: str, answer_s: float = ANSWER_S, clients: KafkaClients = CONFLUENT
    ) -> None:
        self._answer_s = answer_s
        self._target = target
        conf: Any = {**common(target, client), "error_cb": self._remember}
        self._overheard = _Overheard()
        try:
            self._admin = clients.admin(conf, logger=self._overheard)
        except KafkaException as error:
            raise settings_refused(error.args[0].str(), target.where) from error
        self._last: KafkaError | None = None  # what the connection said, which a call that times out does not say
        self._known: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self._ids: dict[str, str] = {}

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic that are written. Creates the topic if it does not exist and the
        configuration permits that."""
        if topic not in self._known:
            there = self._count(topic)
            if there is None:
                there = self._create(topic, self._target.partition_num or PARTITIONS_DEFAULT, {})
            self._known[topic] = self._written(topic, there)
        return self._known[topic]

    def planned(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions of each of these topics would be written. Creates nothing. Raises FeedFailed if a topic
        does not exist and the configuration does not permit its creation."""
        counts, found = self._counts(), {}
        for topic in topics:
            there = counts.get(topic)
            if there is None and not self._target.auto_create:
                raise _no_topic(topic)
            wanted = self._target.partition_num or PARTITIONS_DEFAULT
            found[topic] = wanted if there is None else self._written(topic, there)
        return found

    def there(self, topics: Iterable[str]) -> list[str]:
        """Those of `topics` that exist."""
        counts = self._counts()
        return [topic for topic in topics if topic in counts]

    def small(self, topics: Iterable[str]) -> dict[str, int]:
        """The topics whose max.message.bytes is below `max-message-bytes`, each with its max.message.bytes.
        Only the first SMALL_MAX of those `topics` that exist are checked."""
        counts = self._counts()
        there = [topic for topic in topics if topic in counts][:SMALL_MAX]
        found = {topic: self._largest(topic) for topic in there}
        return {topic: most for topic, most in found.items() if most < self._target.max_message_bytes}

    def _written(self, topic: str, there: int) -> int:
        wanted = partitions_wanted(self._target, there)
        if not wanted:
            reason = (
                f"the topic has {there} partitions, fewer than partition-num={self._target.partition_num}: add "
                "partitions to it, or lower partition-num"
            )
            raise failed("sink", topic, reason)
        return wanted

    def keep(self, counts: Mapping[str, int]) -> None:
        """Record the numbers of partitions of these topics that are written from now on, whatever the configuration
        says."""
        self._known |= counts

    def known(self) -> Mapping[str, int]:
        """The topics whose partitions were counted by other calls, each with the number of partitions that are
        written."""
        return dict(self._known)

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The broker's ids of these topics, by name. A topic that is deleted and created again has another id. Topics
        without an id, on brokers that give none, are left out."""
        unknown = [topic for topic in topics if topic not in self._ids]
        if unknown:
            asked = self._admin.describe_topics(TopicCollection(unknown), request_timeout=self._answer_s)
            self._ids |= {topic: str(self._done(answer, topic).topic_id) for topic, answer in asked.items()}
        return {topic: self._ids[topic] for topic in topics if self._ids[topic] != NO_ID}

    def ensure_progress(self) -> None:
        """Create the topic of the progress records if it does not exist. Raises FeedFailed if it has more than one
        partition."""
        name = self._target.progress_topic
        there = self._count(name)
        if there is None:
            there = self._create(name, 1, _COMPACTED)
        if there != 1:
            raise failed("sink", name, f"the topic of progress records has {there} partitions, and must have one")

    def limit(self, topic: str) -> int:
        """The maximum size of key and value of a message in a topic, in bytes."""
        if topic not in self._limits:
            self._limits[topic] = message_limit(self._target, self._largest(topic))
        return self._limits[topic]

    def _largest(self, topic: str) -> int:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._done(self._admin.describe_configs([resource], request_timeout=self._answer_s)[resource], topic)
        return int(found["max.message.bytes"].value)

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """The end offset of every partition of these topics, by topic and number; empty for a topic that does not
        exist."""
        return {topic: self._served_ends(topic) for topic in topics}

    def _served_ends(self, topic: str) -> dict[int, int]:
        """The end offset of every partition of a topic. A broker lists a new topic before it serves the partitions, so
        it is asked again for some time."""
        for _ in range(LISTED_LOOKS):
            try:
                return self._ends(topic)
            except FeedFailed as error:
                if error.failure.cause not in UNSERVED:
                    raise
            sleep(LISTED_PAUSE_S)
        return self._ends(topic)

    def _ends(self, topic: str) -> dict[int, int]:
        count = self._count(topic) or 0
        if not count:
            return {}
        newest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): newest for number in range(count)}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=self._answer_s
        )
        return {at.partition: self._done(answer, topic).offset for at, answer in answers.items()}

    def _count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None if it does not exist."""
        found = self._listed().get(topic)
        if found is None:
            return None
        if found.error is not None:
            raise failure_of(found.error.name(), found.error.str(), topic)
        return len(found.partitions)

    def _counts(self) -> dict[str, int]:
        """The number of partitions of each topic that exists. Raises FeedFailed."""
        return {name: len(found.partitions) for name, found in self._listed().items() if found.error is None}

    def _listed(self) -> Mapping[str, TopicMetadata]:
        return self._asked(lambda: self._admin.list_topics(timeout=self._answer_s).topics, self._target.where)

    def _create(self, topic: str, partitions: int, config: dict[str, str]) -> int:
        if not self._target.auto_create:
            raise _no_topic(topic)
        new = NewTopic(topic, partitions, self._target.replication_factor, config=config)
        try:
            self._admin.create_topics([new], request_timeout=self._answer_s)[topic].result(self._answer_s)
            log.info("topic created", extra={"topic": topic, "partitions": partitions})
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise failure_of(error.args[0].name(), error.args[0].str(), topic) from error
        for _ in range(LISTED_LOOKS):
            there = self._count(topic)
            if there is not None:
                return there
            sleep(LISTED_PAUSE_S)  # brokers learn of a new topic one by one
        raise retry("sink", topic, "the topic was created, and the broker does not list it yet")

    def _done(self, answer: Future[T], topic: str) -> T:
        return self._asked(lambda: answer.result(self._answer_s), topic)

    def _asked(self, ask: Callable[[], T], where: str) -> T:
        try:
            return ask()
        except KafkaException as error:
            raise self._failure(error.args[0].name(), error.args[0].str(), where) from error
        except TimeoutError as error:
            raise self._failure("_TIMED_OUT", "", where) from error

    def _failure(self, name: str, text: str, where: str) -> FeedFailed:
        self._admin.poll(0)  # serves `_remember`
        last = self._last
        if last is not None and names_cause(last.name(), last.str()):
            return failure_of(last.name(), last.str(), where)
        return failure_of(name, text, where, ended=self._overheard.ended)

    def _remember(self, error: KafkaError) -> None:
        if self._last is None or names_cause(error.name(), error.str()):
            self._last = error


def _no_topic(topic: str) -> FeedFailed:
    return failed("sink", topic, "the topic does not exist, and auto-create-topic is false: create it")
