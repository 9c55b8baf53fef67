"""A command that an app gets after its first use is there."""

from __future__ import annotations

import typer
from typer import testing
from typer.testing import CliRunner


def test_commands_are_built_once_and_again_when_one_comes() -> None:
    app, group = typer.Typer(), typer.Typer()
    app.add_typer(group, name="group")
    for own in (app, group):
        own.command("one")(lambda: print("1"))
        own.command("two")(lambda: print("2"))
    first = testing._get_command(app)
    assert CliRunner().invoke(app, ["two"]).output == "2\n"
    assert testing._get_command(app) is first
    for own, words in ((app, ["three"]), (group, ["group", "three"])):
        assert CliRunner().invoke(app, words).exit_code == 2
        own.command("three")(lambda: print("3"))
        assert CliRunner().invoke(app, words).output == "3\n"
