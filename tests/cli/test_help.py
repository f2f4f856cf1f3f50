"""Every command explains itself, by examples that work."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
import typer

from offramp import __version__
from offramp.cli.app import app
from tests.command_line import Result

Run = Callable[..., Result]
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
EXAMPLES = {
    name: [" ".join(line.split()) for line in (command.epilog or "").splitlines() if f"offramp {name} " in line]
    for name, command in COMMANDS.items()
}
EVERY = [(name, example) for name, examples in EXAMPLES.items() for example in examples]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(run: Run, name: str) -> None:
    done = run(name, "--help")
    assert done.status == 0
    assert EXAMPLES[name], "no example"
    shown = re.sub(r"[\s│]+", " ", done.out)
    for example in EXAMPLES[name]:
        assert example in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_paragraphs_are_as_wide_as_the_terminal(name: str) -> None:
    """Line ends of the source would break them wherever they happen to stand."""
    assert all("\n" not in paragraph for paragraph in COMMANDS[name].help.split("\n\n"))


def test_version(run: Run) -> None:
    assert run("--version").out == f"offramp {__version__}\n"


@pytest.mark.parametrize(("name", "example"), EVERY, ids=[example for _, example in EVERY])
def test_examples_use_options_that_exist(name: str, example: str) -> None:
    """Read as the command reads it: every option is there, has its value, and nothing that is required is missing."""
    words = shlex.split(example.split("|")[-1] if example.startswith("cat ") else example)
    arguments = words[words.index(name) + 1 :]
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    context = COMMANDS[name].make_context(name, arguments)
    assert not context.args


def test_no_command_and_no_such_command(run: Run) -> None:
    listed = run("--help")
    assert listed.status == 0
    for name in COMMANDS:
        assert name in listed.out
    assert run("trian").status == 2
    assert run("train", "--epohcs", "3").status == 2
