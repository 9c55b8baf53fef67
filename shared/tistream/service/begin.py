"""The first thing that a service's process does, before it loads what takes long."""

from __future__ import annotations

import sys
from typing import TypeVar

from tistream.service.lifetime import die_with_parent
from tistream.service.logging import configure_logging
from tistream.service.settings import ServiceSettings, SettingsError, load_settings

EXIT_USAGE = 2

S = TypeVar("S", bound=ServiceSettings)


def begin(settings_class: type[S]) -> S:
    """The settings; from here on the process logs, and ends with its parent.

    Wrong settings end it with status 2 and one line on stderr.
    """
    die_with_parent()
    try:
        settings = load_settings(settings_class)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_USAGE) from None
    configure_logging(settings.service_name(), settings.log_level)
    return settings
