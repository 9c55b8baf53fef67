"""The first steps of a service's process, before it loads what takes long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from tistream.service.http.traces import begin_traces
from tistream.service.lifetime import die_with_parent
from tistream.service.observe.logging import configure_logging
from tistream.service.settings import ServiceSettings, SettingsError, load_settings

EXIT_USAGE = 2

S = TypeVar("S", bound=ServiceSettings)


def begin(settings_class: type[S]) -> S:
    """Read the settings, and start logs and traces. From then on this process ends when its parent process ends.
    Invalid settings end the process with status 2 and one line on stderr."""
    die_with_parent()
    with wrong_settings_end_it():
        settings = load_settings(settings_class)
    configure_logging(settings.service_name(), settings.log_level)
    with wrong_settings_end_it():
        begin_traces(settings)
    return settings


@contextmanager
def wrong_settings_end_it() -> Iterator[None]:
    """Run a `with` block, and end the process with status 2 and one line on stderr if it raises SettingsError. It
    serves also for settings whose files are read later."""
    try:
        yield
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_USAGE) from None
