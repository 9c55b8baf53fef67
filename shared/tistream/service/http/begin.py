"""The first steps of a service's process. They run before slow modules are imported."""

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
    """Read the settings, and start logs and traces. If TISTREAM_PARENT_PID is set, the process ends from now on when
    that parent process ends. If the settings are invalid, the process exits with status 2 and one line on stderr."""
    die_with_parent()
    with exit_on_settings_error():
        settings = load_settings(settings_class)
    configure_logging(settings.service_name(), settings.log_level)
    with exit_on_settings_error():
        begin_traces(settings)
    return settings


@contextmanager
def exit_on_settings_error() -> Iterator[None]:
    """Run a `with` block. If it raises SettingsError, exit the process with status 2 and one line on stderr. The block
    may be later than `begin`, because the files that settings name are read when they are needed."""
    try:
        yield
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_USAGE) from None
