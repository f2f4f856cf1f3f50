"""The reference: pages made from docstrings and from what the commands say of themselves, while the site is built."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import typer

SOURCE = Path(__file__).parents[2] / "src"
COMMANDS, PYTHON = "reference/commands", "reference/python"
INDEX = "reference/index.md"
INNER = ("offramp.engine.graphs",)
"""Packages with an `__all__` that only the one above them uses."""


def on_config(config: Any) -> None:
    """Put the pages that will be made at the end of the section."""
    [section] = [entry["Reference"] for entry in config.nav if "Reference" in entry]
    section.append({"Command line": [f"{COMMANDS}/{name}.md" for name in commands()]})
    section.append({"Python": [f"{PYTHON}/{package.path}.md" for package in public_packages()]})


def on_files(files: Any, config: Any) -> None:
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The reference's own front page lists what was made."""
    return f"{markdown}\n{listing()}" if page.file.src_uri == INDEX else markdown


def pages() -> dict[str, str]:
    """Name and text of every page."""
    of_commands = {f"{COMMANDS}/{name}.md": command_page(name, command) for name, command in commands().items()}
    return of_commands | {f"{PYTHON}/{package}.md": text for package, text in package_pages().items()}


def listing() -> str:
    """Every command and package in a line, with what it says of itself."""
    lines = ["## Command line", "", "| command | |", "|---|---|"]
    for name, command in commands().items():
        lines.append(f"| [`offramp {name}`](commands/{name}.md) | {first_line(command.help)} |")
    lines += ["", "## Python", "", "| package | |", "|---|---|"]
    for package in public_packages():
        said = first_line(package.docstring.value if package.docstring else "")
        lines.append(f"| [`{package.path}`](python/{package.path}.md) | {said} |")
    return "\n".join(lines)


def first_line(text: str) -> str:
    return text.strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


# The command line


def commands() -> dict[str, Any]:
    """Every command by its name, in the order of the alphabet."""
    from offramp.cli.app import app

    return dict(sorted(typer.main.get_command(app).commands.items()))  # type: ignore[attr-defined]


def options(command: Any) -> Iterator[tuple[str, str, str, str]]:
    """(panel, names, what it does, what holds without it) of each argument and option."""
    context = command.context_class(command, info_name=command.name)
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record is None or option.name == "help":
            continue
        help, _, more = record[1].partition("  [")
        panel = option.rich_help_panel or ("Arguments" if option.param_type_name == "argument" else "Options")
        yield panel, record[0], help, more.removesuffix("]")


def command_page(name: str, command: Any) -> str:
    """What it does, examples, and a table for each panel of its options."""
    lines = [f"# offramp {name}", "", plain(command.help), ""]
    examples = re.findall(r"^ +(\S.*)$", command.epilog or "", re.MULTILINE)
    lines += ["```sh", *examples, "```", ""] if examples else []
    panel = ""
    for title, names, help, more in sorted_by_panel(command):
        if title != panel:
            lines += ["</table>", ""] if panel else []
            lines += [f"## {title}", "", '<table class="options">']
            panel = title
        cells = f"<code>{html.escape(names)}</code>", html.escape(help), html.escape(more)
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join([*lines, "</table>", ""])


def sorted_by_panel(command: Any) -> list[tuple[str, str, str, str]]:
    """Panels in the order in which they first come, as `--help` shows them."""
    every = list(options(command))
    order = list(dict.fromkeys(panel for panel, *_ in every))
    return sorted(every, key=lambda row: order.index(row[0]))


def plain(text: str) -> str:
    """With the names of options as code, or they would be broken at their dashes."""
    return re.sub(r"(?<![`\w-])(--[\w-]+)", r"`\1`", re.sub(r"[ \t]+", " ", text.strip()))


# Python


@cache
def public_packages() -> list[Any]:
    """The package itself and every one below it that says what is public: those with an `__all__`."""
    whole = griffe.load("offramp", search_paths=[str(SOURCE)], allow_inspection=False)
    return [package for package in below(whole) if package.exports and package.path not in INNER]


def below(package: Any) -> Iterator[Any]:
    yield package
    for name in sorted(package.members):
        member = package.members[name]
        if not member.is_alias and member.is_module and member.is_init_module:
            yield from below(member)


def public_names(package: Any) -> dict[str, Any]:
    """What each name in `__all__` stands for."""
    names = [str(getattr(name, "name", name)) for name in package.exports]
    return {name: final(package[name]) for name in names}


def final(member: Any) -> Any:
    return member.final_target if member.is_alias else member


def package_pages() -> dict[str, str]:
    """A page for each package. A name that two of them export is explained in the first."""
    explained: dict[str, str] = {}
    made = {}
    for package in public_packages():
        lines = [f"# {package.path}", "", package.docstring.value if package.docstring else "", ""]
        for name, thing in public_names(package).items():
            if home := explained.get(thing.path):
                lines += [f"`{name}` is explained in [{home}]({home}.md).", ""]
            else:
                explained[thing.path] = package.path
                lines += [f"::: {package.path}.{name}", ""]
        made[package.path] = "\n".join(lines)
    return made


# What is missing


def undocumented() -> Iterator[str]:
    """Public names, their methods, commands and options that say nothing of themselves."""
    for package in public_packages():
        if not package.docstring:
            yield package.path
        for name, thing in public_names(package).items():
            if not thing.docstring:
                yield f"{package.path}.{name}"
            if thing.is_class:
                yield from (f"{package.path}.{name}.{method}" for method in silent_methods(thing))
    for name, command in commands().items():
        if not command.help:
            yield f"offramp {name}"
        yield from (f"offramp {name} {names}" for _, names, help, _ in options(command) if not help.strip())


def silent_methods(thing: Any) -> Iterator[str]:
    """Those without a docstring, here and in the class above that asks for them; torch's `forward` needs none."""
    for name, member in thing.members.items():
        if name.startswith("_") or name == "forward" or member.is_alias or not member.is_function:
            continue
        if not member.docstring and not any(name in base.members for base in thing.mro()):
            yield name
