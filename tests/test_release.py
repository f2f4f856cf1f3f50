"""A release: what the wheel and the sdist hold, that they run, and that all files about them agree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import offramp

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML = [
    *WORKFLOWS,
    *sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")),
    ROOT / ".pre-commit-config.yaml",
    ROOT / "CITATION.cff",
]
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
PAPERS = ("DeeBERT", "RomeBERT", "ElasticBERT", "ELBERT", "EBERT")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def package_files() -> set[str]:
    """Every file of the package as it lies here, by its path in a wheel; weights that are being replaced count."""
    source = ROOT / "src"
    return {
        path.relative_to(source).as_posix()
        for path in (source / "offramp").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist it was made from, by the backend that is installed here: no network."""
    folder = tmp_path_factory.mktemp("dist")
    home = copied_tree(tmp_path_factory.mktemp("tree"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def copied_tree(folder: Path) -> Path:
    """What a build may look at, with files that it must leave out. What an older build left here must not count."""
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for name in package_files():
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "src" / name, path)
    for stray in ("tests/test_x.py", "tests/golden/data/x.npz", "benchmarks/results/x.json", "docs/index.md"):
        (folder / stray).parent.mkdir(parents=True, exist_ok=True)
        (folder / stray).write_text("")
    (folder / "src" / "offramp" / "__pycache__").mkdir()
    (folder / "src" / "offramp" / "__pycache__" / "errors.cpython-311.pyc").write_bytes(b"")
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        about = f"offramp-{offramp.__version__}.dist-info"
        assert f"Version: {offramp.__version__}\n" in wheel.read(f"{about}/METADATA").decode()
    outside = {name for name in names if not name.startswith(f"{about}/")}
    assert outside == package_files()
    assert f"{about}/licenses/LICENSE" in names
    needed = ["py.typed", "evaluation/page/report.html", "serving/page/index.html", "evaluation/reference/minilm.json"]
    needed += ["shipped/offramp-mini/tokenizer.json", "shipped/offramp-mini-sst2/policy.json"]
    assert {f"offramp/{name}" for name in needed} <= outside


def test_the_sdist_builds_that_wheel_and_carries_no_tests(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        top = f"offramp-{offramp.__version__}/"
        names = {one.name.removeprefix(top) for one in sdist.getmembers() if one.isfile()}
    assert {f"src/{name}" for name in package_files()} <= names
    others = {name for name in names if not name.startswith(("src/offramp/", "src/offramp.egg-info/"))}
    about = {"pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
    assert others == about | {"PKG-INFO", "setup.cfg"}
    assert not any("__pycache__" in name for name in names)


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Installed with what it needs and no extra, away from this folder."""
    place = tmp_path / "empty env"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    programs = place / ("Scripts" if os.name == "nt" else "bin")
    install = [programs / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*install, "torch"], check=True)
    subprocess.run([*install, built[0]], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments: str) -> str:
        command = [programs / "offramp", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "predict" in run("--help")
    answer = json.loads(run("predict", "offramp-mini-sst2", "a clumsy, tiresome film that wastes a good cast"))
    assert answer["label"] in ("negative", "positive")
    assert 1 <= answer["exit_layer"] <= 12
    where = "import offramp; print(offramp.__version__, offramp.__file__)"
    said = subprocess.run([programs / "python", "-c", where], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert said.stdout.startswith(offramp.__version__)
    assert str(place) in said.stdout


def test_one_version_everywhere() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    headings = re.findall(r"^## \[(.+?)\] - (unreleased|\d{4}-\d\d-\d\d)$", changelog(), re.MULTILINE)
    assert headings[0][0] == offramp.__version__ == str(read(ROOT / "CITATION.cff")["version"])
    assert changelog().count("\n## ") == len(headings), "a heading that is no version and date"


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml(path: Path) -> None:
    assert isinstance(read(path), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved; the comment says which version the commit is."""
    text = path.read_text(encoding="utf-8")
    used = re.findall(r"uses: *(.*)", text)
    assert used
    for one in used:
        action, _, comment = one.partition(" # ")
        assert PINNED.fullmatch(action.strip()), one
        assert re.fullmatch(r"v\d+(\.\d+)*", comment), one
    assert len({one for one in used if one.startswith("actions/checkout@")}) == 1
    assert read(path)["permissions"] == {"contents": "read"}


def test_hooks_are_pinned_by_commit_and_exist_here() -> None:
    local = []
    for source in read(ROOT / ".pre-commit-config.yaml")["repos"]:
        if source["repo"] == "local":
            local += [hook["id"] for hook in source["hooks"]]
        else:
            assert re.fullmatch(r"[0-9a-f]{40}", source["rev"])
    assert local == ["ruff", "ruff-format", "mypy"]


def steps(workflow: str) -> Iterator[dict[str, Any]]:
    for job in read(ROOT / ".github" / "workflows" / workflow)["jobs"].values():
        yield from job["steps"]


def test_the_workflow_tests_what_the_project_claims() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]
    matrix = jobs["newest"]["strategy"]["matrix"]
    claimed = [c.split(" :: ")[-1] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", c)]
    assert matrix["python"] == claimed
    supported = SpecifierSet(PROJECT["requires-python"])
    assert all(version in supported for version in claimed)
    oldest = f"3.{int(claimed[0].split('.')[1]) - 1}"
    assert oldest not in supported, "an older Python is allowed than is tested"
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    pythons = [
        step["with"]["python-version"] for step in jobs["oldest"]["steps"] if "setup-python" in step.get("uses", "")
    ]
    assert pythons == claimed[:1]
    assert "3.11" in [
        step["with"]["python-version"] for step in steps("release.yml") if "setup-python" in step.get("uses", "")
    ]


def test_only_the_publishing_job_may_publish() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    assert not any("run" in step for step in jobs["publish"]["steps"]), "nothing of ours runs where we could publish"
    assert "password" not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8").split("#")[0]


def test_constraints_are_versions_that_are_allowed() -> None:
    """What CI runs with fits what the project asks for, and every direct dependency is pinned."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pinned = {_plain(name): version for name, version in pins.items()}
    extras = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    for text in [*PROJECT["dependencies"], *extras]:
        needed = Requirement(text)
        if needed.name != "offramp":
            assert needed.specifier, f"{needed.name} has no lower bound"
            assert pinned[_plain(needed.name)] in needed.specifier, text


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_citation() -> None:
    """The fields that CFF 1.2 asks for, and the five papers with their authors."""
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert all(citation[field] for field in ("message", "title", "authors"))
    assert citation["license"] == PROJECT["license"]
    cited = [f"{paper['title']} {paper.get('notes', '')}" for paper in citation["references"]]
    assert len(cited) == len(PAPERS)
    assert all(re.search(rf"\b{name}\b", one) for name, one in zip(PAPERS, cited, strict=True))
    for paper in citation["references"]:
        assert paper["type"] in ("article", "conference-paper")
        assert all(author["family-names"] and author["given-names"] for author in paper["authors"])
        assert paper.get("doi", "").startswith("10.") or paper["url"].startswith("https://arxiv.org/abs/")


def test_issue_forms() -> None:
    """GitHub takes a form only if its parts have these fields, and ids that differ."""
    forms = [path for path in YAML if path.parent.name == "ISSUE_TEMPLATE" and path.name != "config.yml"]
    assert {path.stem for path in forms} == {"bug", "feature", "question"}
    for path in forms:
        form = read(path)
        assert form["name"]
        assert form["description"]
        ids = [part["id"] for part in form["body"]]
        assert len(set(ids)) == len(ids)
        assert all(part["type"] in ("textarea", "input") and part["attributes"]["label"] for part in form["body"])
