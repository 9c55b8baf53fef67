"""The implementation of `tistream consume`: it opens the topics and the target, and reads until a signal or the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tistream.consume.consumer import FeedConsumer, Target
from tistream.consume.kafka_topics import KafkaTopics
from tistream.consume.mysql_target import MySqlRows
from tistream.consume.ndjson_target import NdjsonFile, NdjsonStream
from tistream.consume.source_url import SourceUrl, parse_source_url
from tistream.errors import InvalidRequest, TiStreamError, Unavailable
from tistream.service.signals import stop_signals
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.targets.mysql_url import parse_mysql_url
from tistream_client.cli.errors import AGAIN, FIX, USAGE, CliError

FORMS = "ndjson, ndjson:FILE, or mysql://user:password@host:port"
_NDJSON = "ndjson"


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The options of `tistream consume`. `repeats`: the producer may have sent an event several times."""

    source: str
    into: str | None
    into_file: Path | None
    topics: tuple[str, ...]
    name: str | None
    password_file: Path | None
    repeats: bool
    until: int | None


def run_consume(options: ConsumeOptions) -> None:
    """Read the topics into the target until the ts `until`, SIGTERM or Ctrl-C. Raises CliError."""
    password = None if options.password_file is None else _text(options.password_file, "--password-file")
    try:
        source = _source(options.source, password)
        with _target(options, source) as target, _topics(source, options.topics) as topics, stop_signals() as stopped:
            consumer = FeedConsumer(topics, source.decode, target, repeats=options.repeats)
            while not stopped.is_set() and (options.until is None or consumer.ts < options.until):
                consumer.step()
    except TargetFailed as error:
        raise CliError(str(error), AGAIN if error.no_answer else FIX) from error
    except TiStreamError as error:
        raise CliError(str(error), AGAIN if isinstance(error, Unavailable) else FIX) from error


def _source(text: str, password: str | None) -> SourceUrl:
    try:
        return parse_source_url(text, password)
    except InvalidRequest as error:
        raise CliError(str(error), USAGE) from error


@contextmanager
def _topics(source: SourceUrl, topics: tuple[str, ...]) -> Iterator[KafkaTopics]:
    reader = KafkaTopics(source, topics)
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def _target(options: ConsumeOptions, source: SourceUrl) -> Iterator[Target]:
    if (options.into is None) == (options.into_file is None):
        raise CliError(
            f"give exactly one of --into ({FORMS}) and --into-file FILE, whose content is the text of --into",
            USAGE,
        )
    text = options.into if options.into_file is None else _text(options.into_file, "--into-file")
    form, _, place = (text or "").partition(":")
    if form == _NDJSON and not place:
        yield NdjsonStream(sys.stdout)
    elif form == _NDJSON:
        try:
            file = NdjsonFile(Path(place))
        except OSError as error:
            raise CliError(f"--into: {place} cannot be opened: {error.strerror}") from error
        try:
            yield file
        finally:
            file.close()
    else:
        try:
            url = parse_mysql_url(text or "")
        except ValueError as error:
            raise CliError(f"--into: {error}; or use {_NDJSON} or {_NDJSON}:FILE", USAGE) from None
        with MySqlTarget(url) as server:
            yield MySqlRows(server, options.name or source.topic)


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{option} {path} cannot be read: {error}", USAGE) from error
