"""Converts an error of the Kafka client to a Failure. Pure: it takes the error's name, not the client."""

from __future__ import annotations

from tistream_changefeed.config.sink_uri import unreadable_pem
from tistream_changefeed.core.failure import FeedFailed, failed, refused, retry

_TOO_LARGE = frozenset(("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "_MSG_SIZE_TOO_LARGE"))
_REFUSED = {
    "TOPIC_AUTHORIZATION_FAILED": "the broker refuses writes to the topic: grant WRITE and DESCRIBE of it",
    "CLUSTER_AUTHORIZATION_FAILED": "the broker refuses idempotent writes: grant IDEMPOTENT_WRITE of the cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "the broker refuses the transactional id: grant WRITE and DESCRIBE of "
    "those that begin with `tistream-`, "
    'or set delivery = "at-least-once"',
    "INVALID_TOPIC_EXCEPTION": "the broker does not accept the topic's name",
    "INVALID_PARTITIONS": "the broker does not accept partition-num",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "the broker is too old for transactions",
    "UNSUPPORTED_VERSION": "the broker is too old for what the feed needs",
}
CONNECTING = {
    "_AUTHENTICATION": "the broker refuses sasl-user, sasl-password or sasl-mechanism: put the secret again",
    "_SSL": "TLS with the broker fails: check the secrets of ca, cert and key",
}
_PEM = {"ssl.ca.pem": "ca", "ssl.certificate.pem": "cert", "ssl.key.pem": "key"}
"""The options that have PEM texts, by the names of librdkafka's properties, which its errors quote."""
_PLAIN = "security.protocol"
"""The client says so when a broker closes a connection before it has answered. A broker that ends does so too."""
UNSERVED = frozenset(("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH",
                      "FENCED_LEADER_EPOCH", "UNKNOWN_TOPIC_OR_PART"))  # fmt: skip
"""Errors of a partition that its broker does not serve yet, or not any more."""
_FENCED = frozenset(("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"))


def names_cause(name: str, text: str) -> bool:
    """Whether the error of a connection names a more specific cause than that no broker answers, such as refused
    credentials."""
    return name in CONNECTING or _PLAIN in text


def failure_of(name: str, text: str, where: str, *, ended: bool = False) -> FeedFailed:
    """Build the FeedFailed for an error with this name and text. `where` names the sink. `ended`: brokers have closed
    connections before they answered.

    Errors that may pass by themselves are retried; no change is lost in the meantime. The error of a fenced producer is
    retried, too: the holder then reads the progress, which shows which worker owns the shard.
    """
    if name in _TOO_LARGE:
        return failed("sink", where, f"a message is larger than the broker takes ({text}): raise max.message.bytes of "
                      "the topic, and max-message-bytes of the sink URI", name)  # fmt: skip
    if name in _REFUSED:
        return failed("sink", where, f"{_REFUSED[name]} ({text})", name)
    if name in CONNECTING:
        return refused(where, f"{CONNECTING[name]} ({text})", name)
    return retry("sink", where, _passing(name, text, ended=ended), name)


def settings_refused(text: str, where: str) -> FeedFailed:
    """Build the FeedFailed for settings with which the client cannot be built; `text` is its error. `where` names the
    sink. A PEM text that cannot be read is named by its option."""
    option = next((option for name, option in _PEM.items() if name in text), None)
    if option is not None:
        return refused(where, unreadable_pem(option), "_SSL")
    return failed("sink", where, f"the Kafka client does not take the settings of the feed ({text})", "_INVALID_ARG")


def closed_before_answer(line: str) -> bool:
    """Whether a line of the client's log says that a broker closed a connection before it had answered at all. The
    broker may require TLS or SASL; the client's errors do not say so."""
    return "Disconnected" in line and "APIVERSION_QUERY" in line


def _passing(name: str, text: str, *, ended: bool) -> str:
    """The text for an error that is retried, with advice if its name or text suggests a cause."""
    if name in _FENCED:
        return (
            f"another producer has the feed's transactional id ({name}); if that lasts, another feed of an earlier "
            "release has the same id: create this one under another changefeed_id"
        )
    if _PLAIN in text or ended:
        return f"the broker ends connections: does it want enable-tls=true, or a sasl-user? ({text or name})"
    if name == "INVALID_REPLICATION_FACTOR":  # also while a broker restarts
        return f"fewer brokers are up than replication-factor: start them, or lower it ({text})"
    if name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
        return f"no broker answers ({text or name}): check that it runs and that workers reach it"
    return f"{text or name} ({name})"
