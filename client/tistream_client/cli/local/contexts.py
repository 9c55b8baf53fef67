"""Contexts: named sets of a URL, a cluster, a tenant and credentials, in a file of the user. An option of the command
line counts first, then the environment, then the context."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tistream_client.cli.errors import CliError

CONFIG, CONTEXT = "TISTREAM_CONFIG", "TISTREAM_CONTEXT"
_FILE = "tistream/contexts.json"
FILES = ("token_file", "ca_file", "cert_file", "key_file")
MEMBERS = ("url", "cluster", "tenant", *FILES)
Values = Mapping[str, str]
_OF_CONTEXT = "DEFAULT_MAP"  # click's name of the source of a value that `defaults` gives


def path_of(environ: Mapping[str, str]) -> Path:
    """The file of contexts: $TISTREAM_CONFIG, or a file below the user's directory of settings."""
    if given := environ.get(CONFIG):
        return Path(given)
    home = environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path(environ.get("HOME", "~")).expanduser() / ".config") / _FILE


class Contexts:
    """The contexts in a file. `current` names the one in use."""

    def __init__(self, path: Path) -> None:
        """Read the file; if it does not exist, there are no contexts. Raises CliError if it cannot be read or
        parsed."""
        self._path = path
        try:
            stored: Any = json.loads(path.read_text("utf-8"))
            self.all: dict[str, dict[str, str]] = {
                name: {member: str(values[member]) for member in MEMBERS if values.get(member) is not None}
                for name, values in stored["contexts"].items()
            }
            self.current: str | None = stored.get("current")
        except FileNotFoundError:
            self.all, self.current = {}, None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CliError(
                f"{path} cannot be read as contexts ({error}): correct it, or delete it and run `tistream context add`"
            ) from error

    def values(self, name: str | None) -> Values:
        """The members of a context. `name` None: of the current one; empty if no context is in use. Raises CliError for
        an unknown name."""
        wanted = self.current if name is None else name
        return {} if wanted is None else self.all[self._known(wanted)]

    def add(self, name: str, values: Values) -> None:
        """Store a context, and use it if it is the only one. A context of the same name is replaced."""
        self.all[name] = dict(values)
        self.current = name if len(self.all) == 1 else self.current
        self._write()

    def use(self, name: str | None) -> None:
        """Use a context in later commands; None: no context. Raises CliError for an unknown name."""
        self.current = None if name is None else self._known(name)
        self._write()

    def remove(self, name: str) -> None:
        """Remove a context. Raises CliError for an unknown name."""
        del self.all[self._known(name)]
        self.current = None if self.current == name else self.current
        self._write()

    def _known(self, name: str) -> str:
        if name in self.all:
            return name
        near = get_close_matches(name, self.all, 1)
        raise CliError(
            f"no context {name!r}; did you mean {near[0]}?"
            if near
            else f"no context {name!r}: `tistream context list` has them, `tistream context add {name}` makes one"
        )

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        part.write_text(json.dumps({"current": self.current, "contexts": self.all}, indent=2) + "\n", "utf-8")
        part.replace(self._path)


def names() -> list[str]:
    """The names of the contexts, for the completion of a shell; none if they cannot be read."""
    try:
        return sorted(Contexts(path_of(os.environ)).all)
    except CliError:
        return []


def defaults(command: Any, values: Values) -> dict[str, Any]:
    """The defaults of a command's parameters in a context, by name; for a group, a dict for each command. A context
    sets required parameters, and optional ones that an environment variable can set too. Any other `--cluster` is a
    filter, which a context does not set. An optional `--cluster` is set only together with `--tenant`."""
    if hasattr(command, "commands"):
        return {name: defaults(one, values) for name, one in command.commands.items()}
    both = "cluster" in values and "tenant" in values
    return {
        param.name: values[param.name]
        for param in command.params
        if param.name in values
        and (param.required or (param.envvar and (both or param.name == "url")))
        and "-" in param.opts[0]
    }


def tenant_of(ctx: Any, cluster: str | None, tenant: str | None) -> str | None:
    """The tenant that a command with an optional `--cluster` and `--tenant` must use. None if only the tenant comes
    from the context: the cluster that the user named has other tenants. `ctx` is Typer's context of the command."""
    own = cluster is None or ctx.get_parameter_source("cluster").name == _OF_CONTEXT
    return tenant if own or ctx.get_parameter_source("tenant").name != _OF_CONTEXT else None


def at_url(command: Any, told: Callable[[str], None]) -> None:
    """Arrange that `told` is called with the URL that a command (or each command of a group) uses, once its options are
    parsed. The credentials of a context are for the context's URL only, and an option or the environment may name
    another server."""
    if hasattr(command, "commands"):
        for one in command.commands.values():
            at_url(one, told)
        return
    for param in command.params:
        if param.name == "url":
            param.callback = _telling(param.callback, told)


def _telling(check: Callable[..., Any] | None, told: Callable[[str], None]) -> Callable[..., Any]:
    def checked(ctx: Any, param: Any, value: Any) -> Any:
        url = value if check is None else check(ctx, param, value)
        if url is not None:
            told(url)
        return url

    return checked
