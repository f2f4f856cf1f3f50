"""Everything public says what it is: names, methods, commands and options; and the reference shows it."""

from __future__ import annotations

import importlib
import sys

import pytest

pytest.importorskip("griffe", reason="pip install 'offramp[docs]'")

from docs.theme import reference


def test_everything_public_is_documented() -> None:
    assert not list(reference.undocumented()), "no docstring, or no help"


def test_public_names_are_there() -> None:
    """What the source says is public, Python finds, too."""
    for package in reference.public_packages():
        module = importlib.import_module(package.path)
        for name in reference.public_names(package):
            assert hasattr(module, name), f"{package.path}.{name}"


def test_what_is_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name, a method and an option that say nothing are all found."""
    packages = reference.public_packages()
    [policies] = [package for package in packages if package.path == "offramp.policies"]
    names = reference.public_names(policies)
    monkeypatch.setattr(names["Entropy"], "docstring", None)
    monkeypatch.setattr(names["Policy"]["to_json"], "docstring", None)
    commands = reference.commands()
    monkeypatch.setattr(commands["train"].params[1], "help", "")
    monkeypatch.setattr(reference, "public_packages", lambda: packages)
    monkeypatch.setattr(reference, "commands", lambda: commands)
    first = commands["train"].params[1].opts[0]
    found = list(reference.undocumented())
    assert {"offramp.policies.Entropy", "offramp.policies.Policy.to_json"} <= set(found)
    assert [line for line in found if line.startswith(f"offramp train {first}")]


def test_pages_show_every_command_option_and_name() -> None:
    pages = reference.pages()
    for name, command in reference.commands().items():
        page = pages[f"{reference.COMMANDS}/{name}.md"]
        for option in command.params:
            if option.param_type_name == "option":
                assert all(spelled in page for spelled in option.opts)
    whole = "\n".join(pages.values())
    for package in reference.public_packages():
        for name in reference.public_names(package):
            assert f"::: {package.path}.{name}\n" in whole or f"`{name}` is explained in" in whole


def test_the_listing_names_all_pages() -> None:
    listed = reference.listing()
    for page in reference.pages():
        assert f"]({page.removeprefix('reference/')})" in listed


def test_reference_needs_no_model_code() -> None:
    """The pages are made from the source as text: without torch the site could be built as well."""
    import subprocess

    code = (
        "import sys; sys.modules['torch'] = None; from docs.theme import reference; assert len(reference.pages()) > 20"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
