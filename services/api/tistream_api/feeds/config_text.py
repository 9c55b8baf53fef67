"""The body that creates a changefeed, with its configuration as a document or as the text of a TOML file. Pure."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from pydantic import Field

from tistream.errors import InvalidRequest
from tistream.wire.bulk.changefeeds import CreateChangefeed
from tistream_api.request.bodies import MEMBERS_MAX

TEXT_MAX = 65_536  # characters
DOTS_MAX = 400  # of a key, and of what stands before it on its line
_PARAMETER = {"parameter": "config_toml"}


class CreateBody(CreateChangefeed):
    """The body of CreateChangefeed. `config_toml`: the text of TiCDC's configuration file, instead of `config`. Only
    the API server knows it: other services get the document."""

    config_toml: str | None = Field(default=None, max_length=TEXT_MAX)

    def wanted(self) -> CreateChangefeed:
        """The request with its configuration as a document. Raises InvalidRequest if there are two configurations, or
        if the text is not TOML or has values that JSON does not have."""
        document = self.config
        if self.config_toml is not None:
            if document:
                raise InvalidRequest("the body has config and config_toml: send one of them", _PARAMETER)
            document = document_of(self.config_toml)
        return CreateChangefeed(
            changefeed_id=self.changefeed_id,
            sink_uri=self.sink_uri,
            start_ts=self.start_ts,
            end_ts=self.end_ts,
            config=document,
        )


def document_of(text: str) -> dict[str, Any]:
    """Parse the text of a configuration file. Raises InvalidRequest, which names the line if the text is not TOML."""
    if text.count("=") > MEMBERS_MAX:
        raise InvalidRequest(
            f"config_toml has more than {MEMBERS_MAX} keys, the most that are read: send fewer", _PARAMETER
        )
    if _key_dots(text) > DOTS_MAX:  # a key of n parts takes n * n / 2 of them in memory
        raise InvalidRequest(
            f"config_toml has a key with more than {DOTS_MAX} dots, those before it on its line included: shorten it, "
            "or write what stands before it on a line of its own",
            _PARAMETER,
        )
    try:
        found: dict[str, Any] = json.loads(json.dumps(tomllib.loads(text), allow_nan=False))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidRequest(f"config_toml is not TOML: {error}", _PARAMETER) from error
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            f"config_toml has a value that no key of a changefeed accepts: {error}: use texts, numbers, true and false",
            _PARAMETER,
        ) from error
    return found


def _key_dots(text: str) -> int:
    """Count the dots of possible TOML keys without parsing the text, and return the highest count. A possible key is
    what stands before the last equals sign of a line, or a whole line that begins with `[`. The count may be too high,
    never too low: an equals sign may be part of a quoted key."""
    lines = text.split("\n")
    keys = [line.rpartition("=")[0] for line in lines]
    names = [line for line in lines if line.lstrip().startswith("[")]
    return max((one.count(".") for one in (*keys, *names)), default=0)
