"""Imports point one way, take no time where nothing is computed, and can be stopped."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import offramp
from offramp.bench import SHAPES
from offramp.cli.app import app
from offramp.folded_folder import ROWS
from offramp.prediction.parts import ROWS_PER_PART
from offramp.recipes import REGISTRY

SOURCE = Path(offramp.__file__).parents[1]

LAYERS = (
    {"errors"},
    {
        "after_import",
        "broken_capture",
        "discovery",
        "lazy_names",
        "near_names",
        "ray_cluster",
        "stages",
        "typed_json",
        "whole_file",
        "whole_folder",
    },
    {"auto_classes", "shipped"},
    {"backbones", "policies"},
    {"models"},
    {"interop", "recipes"},
    {"tasks"},
    {"engine"},
    {"evaluation", "exported_folder", "folded_folder", "prediction"},
    {"bench", "calibration", "training"},
    {"adding_exits", "doctor", "quickstart", "serving"},
    {"cli"},
    {"__init__", "__main__"},
)
"""From the ground up: files and packages of offramp. Each imports what lies in the layers below, and nothing else."""

ON_PURPOSE = {
    ("offramp.backbones", "offramp.interop"): "from_pretrained is looked for there, and opens what interop opens",
}
"""Imports that point up, inside a function."""


class Import(NamedTuple):
    source: str
    target: str
    line: int
    at_once: bool
    """While the module is imported, rather than when a function is called or types are checked."""
    name: str | None = None
    """What is imported, as in `from home import name`."""
    home: str | None = None


def modules() -> dict[str, Path]:
    """Every module of offramp, and its file."""
    found = {}
    for path in (SOURCE / "offramp").rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(name: str, tree: ast.Module) -> Iterator[Import]:
    """Every import, wherever it stands."""

    def walk(node: ast.AST, at_once: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for one in child.names:
                    yield Import(name, one.name, child.lineno, at_once)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{name}:{child.lineno}: a relative import"
                for one in child.names:
                    full = f"{child.module}.{one.name}"
                    target = full if full in MODULES else str(child.module)
                    yield Import(name, target, child.lineno, at_once, one.name, child.module)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from walk(child, at_once and not inside and not for_types)

    return walk(tree, True)


IMPORTS = [
    one for name, path in MODULES.items() for one in imports_of(name, ast.parse(path.read_text(encoding="utf-8")))
]
OWN = [one for one in IMPORTS if one.target.split(".")[0] == "offramp"]


def unit(module: str) -> str:
    """The file or package of offramp that a module belongs to."""
    return (*module.split("."), "__init__")[1]


def test_every_file_and_package_has_its_layer() -> None:
    units = {unit(name) for name in MODULES}
    known = set().union(*LAYERS)
    assert units == known, "say in LAYERS, and in docs/design.md, what new parts may import"
    assert sum(map(len, LAYERS)) == len(known)


def test_imports_point_down() -> None:
    """Also those in functions and those for types: who knows whom is what matters. So there are no cycles, either."""
    height = {one: number for number, layer in enumerate(LAYERS) for one in layer}
    up = [
        f"{one.source}:{one.line} imports {one.target}"
        for one in OWN
        if unit(one.source) != unit(one.target)
        and height[unit(one.target)] >= height[unit(one.source)]
        and one.name != "__version__"
        and not (not one.at_once and (one.source, one.target) in ON_PURPOSE)
    ]
    assert not up, "\n".join(up)


def test_exceptions_are_needed() -> None:
    assert ON_PURPOSE.keys() <= {(one.source, one.target) for one in OWN}


def test_who_imports_transformers_tells_its_auto_classes() -> None:
    """`offramp.auto_classes` leaves it to them; but for backbones, which know nothing of models."""
    reached: dict[str, set[str]] = {name: set() for name in MODULES}
    for one in OWN:
        if one.at_once:
            target = one.target.split(".")
            reached[one.source] |= {".".join(target[:end]) for end in range(1, len(target) + 1)}
    for name in {one.source for one in IMPORTS if one.target.split(".")[0] == "transformers"}:
        if unit(name) in ("backbones", "cli"):
            continue
        parents = {".".join(name.split(".")[:end]) for end in range(1, name.count(".") + 2)}
        seen: set[str] = set()
        while new := parents - seen:
            seen |= new
            parents = set().union(*(reached.get(one, set()) for one in new))
        assert "offramp.models.modeling" in seen, name


LAZY = ("offramp", "offramp.evaluation", "offramp.tasks.squad")


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names_are_those_that_editors_see(package: str) -> None:
    [call] = [
        node
        for node in ast.walk(ast.parse(MODULES[package].read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_names"
    ]
    homes = ast.literal_eval(call.args[1])
    for_types = {one.name: one.home for one in OWN if one.source == package and not one.at_once}
    assert homes == for_types
    module = import_module(package)
    assert set(homes) <= set(module.__all__) <= set(dir(module))
    for name in homes:
        assert f"{package}.{name}" not in MODULES, "a module of that name takes its place once it is imported"
        assert getattr(module, name).__name__ == name
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        module.no_such_name  # noqa: B018


HEAVY = (
    *("torch", "transformers", "numpy", "scipy", "sklearn", "pandas", "datasets", "pyarrow", "safetensors"),
    *("accelerate", "huggingface_hub", "onnx", "onnxruntime", "ray", "fastapi", "matplotlib", "plotly"),
)
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
PROGRAMS = {
    "import offramp": ("import offramp", 1.0),
    "offramp --help": ("run('--help')", 1.5),
    "a misspelt option": ("run('train', '--epohcs', '3')", 1.5),
    "help of every command": (f"[run(name, '--help') for name in {list(COMMANDS)!r}]", 1.5 + 0.2 * len(COMMANDS)),
}
"""What is run, and the seconds it may take: of the processor, since others may be busy. Torch alone takes more."""
RUN = """
import contextlib, io, sys
def run(*arguments):
    from offramp.cli import run_command
    sys.argv = ['offramp', *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            run_command()
        except SystemExit:
            pass
"""


@pytest.mark.parametrize("what", PROGRAMS)
def test_nothing_heavy_is_imported(what: str) -> None:
    program, seconds = PROGRAMS[what]
    told = "import json, time\nprint(json.dumps([list(sys.modules), time.process_time()]))"
    whole = f"{RUN}\n{program}\n{told}"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True)
    imported, took = json.loads(done.stdout)
    assert "offramp" in imported
    assert what == "import offramp" or "offramp.cli.train" in imported
    assert not set(imported) & set(HEAVY)
    assert took < seconds


@pytest.mark.parametrize(
    ("command", "option", "told"),
    [
        ("train", "recipe", ", ".join(sorted(REGISTRY))),
        ("bench", "model", ", ".join(SHAPES)),
        ("predict", "rows_per_part", f"default: {ROWS_PER_PART}."),
        ("fold", "rows", ROWS),
    ],
)
def test_help_says_what_is_there(command: str, option: str, told: str | int) -> None:
    """Help may not import what it speaks of."""
    [found] = [one for one in COMMANDS[command].params if one.name == option]
    assert told == found.default or str(told) in found.help


@pytest.mark.parametrize("first", ["offramp", "transformers"])
def test_auto_classes_open_our_folders(first: str) -> None:
    """As the README has it: after `import offramp`, in whichever order."""
    program = f"import {first}, offramp\nfrom transformers import CONFIG_MAPPING\nCONFIG_MAPPING['offramp']"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


STOPPED = """
import os, signal, sys
from offramp.after_import import after_import
from offramp.cli import main
after_import({library!r}, lambda: os.kill(os.getpid(), signal.SIGINT))
sys.argv = ['offramp', 'bench', 'tiny']
main()
"""


@pytest.mark.parametrize("library", ["typer", "rich.console", "numpy", "torch._C"])
def test_ctrl_c_while_importing(library: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED.format(library=library)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


ABORTING = """
import atexit, ctypes
# As a library does whose destructors find a thread of its own running.
ctypes.pythonapi.Py_AtExit(ctypes.CDLL(None).abort)
atexit.register(print, "put away")
"""


def test_a_stopped_command_ends_before_libraries_abort() -> None:
    program = ABORTING + STOPPED.format(library="numpy")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "put away\n", "stopped\n")
