"""Options that go together: each field of a dataclass is an option where its parameter stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer
from typer.testing import CliRunner

from dse.cli.group import grouped


@dataclass(frozen=True)
class Colour:
    name: Annotated[str, typer.Option("--name", help="Of the colour")]
    mixed: Annotated[list[str], typer.Option("--mixed", help="With others")] = field(default_factory=list)
    depth: Annotated[int, typer.Option("--depth", min=1)] = 3


def run(*words: str) -> tuple[int, str]:
    """The output of a command with options before, of and after a group."""
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @grouped
    def paint(
        wall: Annotated[str, typer.Argument()],
        *,
        coats: int = 2,
        colour: Colour,
        dry: Annotated[bool, typer.Option()] = False,
    ) -> None:
        """Paint a wall."""
        typer.echo((wall, coats, colour, dry))

    found = CliRunner().invoke(app, list(words))
    return found.exit_code, found.output


def test_a_command_gets_its_groups_whole() -> None:
    assert run("w", "--name", "red", "--mixed", "a", "--mixed", "b", "--coats", "1", "--dry") == (
        0,
        f"{('w', 1, Colour('red', ['a', 'b']), True)}\n",
    )
    assert run("w", "--name", "red") == (0, f"{('w', 2, Colour('red', [], 3), False)}\n")


def test_help_lists_the_options_in_order() -> None:
    said = run("--help")[1]
    assert "Paint a wall." in said
    places = [said.index(option) for option in ("--coats", "--name", "--mixed", "--depth", "--dry")]
    assert places == sorted(places)
    assert "Of the colour" in said


def test_an_option_that_is_missing_or_wrong_is_told() -> None:
    assert "Missing option '--name'" in run("w")[1]
    assert run("w", "--name", "red", "--depth", "0")[0] == 2
