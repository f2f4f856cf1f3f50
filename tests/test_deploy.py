"""What is shipped for deployment, as far as it can be checked without Docker: it fits together, and fits the server."""

from __future__ import annotations

import fnmatch
import http.server
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from offramp.cli.app import app
from offramp.serving.metrics import OUTCOMES, Metrics
from offramp.serving.settings import Settings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
OPTIONS = {
    f"OFFRAMP_SERVE_{parameter.name.upper()}"
    for parameter in typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
}


def read(name: str) -> Any:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


DASHBOARD = read("grafana/dashboards/offramp.json")
COMPOSE = read("compose.yaml")


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: (name, the rest), lines joined."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def copied() -> list[str]:
    """What the Dockerfile takes from the repository."""
    found = [shlex.split(rest)[:-1] for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    return [source for sources in found for source in sources]


# Metrics: what is asked for is there, and what is there is asked for.


def exported() -> set[str]:
    """The names of everything that /metrics can hold."""
    text = Metrics([2, 4], lambda: 0).text().decode()
    names: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names |= {f"{name}_{end}" for end in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return {name for name in names if not name.endswith("_created")}


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (variable["query"]["query"] for variable in DASHBOARD["templating"]["list"])
    yield from (rule["expr"] for group in read("alerts.yml")["groups"] for rule in group["rules"])


def test_metrics_that_are_asked_for_are_exported() -> None:
    there = exported()
    asked = {name for one in expressions() for name in re.findall(r"\b(?:offramp|process)_\w+", one)}
    assert len(asked) > 15
    assert asked - there == set()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    forgotten = {re.sub(r"_(bucket|sum|count)$", "", name) for name in there if name.startswith("offramp_")} - families
    assert not forgotten, "nobody will see them"


def test_labels_that_are_asked_for_are_there() -> None:
    known = {"outcome", "layer", "point", "le", "instance", "job"}
    for one in expressions():
        by = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", one) for label in labels.split(",")}
        matched = set(re.findall(r"(\w+)\s*=~?\s*\"", one))
        assert by | matched <= known, one
        for outcomes in re.findall(r"outcome=~?\"([^\"]*)\"", one):
            assert set(outcomes.split("|")) <= set(OUTCOMES), one
        assert one.count("(") == one.count(")"), one


def test_the_dashboard_is_whole() -> None:
    [source] = read("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    used = {target["datasource"]["uid"] for panel in panels for target in panel["targets"]}
    assert used == {source["uid"]}
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)), "panels lie on each other"
    assert max(x for x, _ in cells) < 24
    [provider] = read("grafana/provisioning/dashboards/offramp.yaml")["providers"]
    mounts = dict(volume.split(":")[:2][::-1] for volume in COMPOSE["services"]["grafana"]["volumes"])
    assert (DEPLOY / mounts[provider["options"]["path"]] / "offramp.json").is_file()


# The compose file and what it mounts.


def test_the_parts_of_the_compose_file_find_each_other() -> None:
    services = COMPOSE["services"]
    [scrape] = read("prometheus.yml")["scrape_configs"]
    [target] = scrape["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in services
    assert ("EXPOSE", port) in instructions()
    assert dict(_environment())["OFFRAMP_SERVE_PORT"] == port
    key = services["offramp"]["environment"]["OFFRAMP_SERVE_API_KEY_FILE"]
    assert scrape["authorization"]["credentials_file"] == key == f"/run/secrets/{services['offramp']['secrets'][0]}"
    assert read("grafana/provisioning/datasources/prometheus.yaml")["datasources"][0]["url"] == "http://prometheus:9090"
    build = services["offramp"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    for name, service in services.items():
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"]), name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), f"{name} is open to other machines"
        assert "@" in service["image"] or ":" in service["image"] or "build" in service, "a version that moves"
        for volume in service["volumes"]:
            place = volume.split(":")[0]
            known = (DEPLOY / place).exists() if place.startswith("./") else place in COMPOSE["volumes"]
            assert known or place.startswith("${OFFRAMP_MODEL"), volume
    assert read("prometheus.yml")["rule_files"] == ["alerts.yml"]


def test_it_may_take_as_long_to_stop_as_the_server_does() -> None:
    service = COMPOSE["services"]["offramp"]
    assert int(service["stop_grace_period"].removesuffix("s")) > service["environment"]["OFFRAMP_SERVE_DRAIN"]
    assert int(unit()["TimeoutStopSec"][0]) > max(Settings("m").drain, float(env_file()["OFFRAMP_SERVE_DRAIN"]))


def env_file() -> dict[str, str]:
    lines = (DEPLOY / "offramp.env").read_text().splitlines()
    return dict(re.fullmatch(r"#?(\w+)=(.*)", line).groups() for line in lines if re.match(r"#?\w+=", line))  # type: ignore[union-attr]


def _environment() -> Iterator[tuple[str, str]]:
    for name, rest in instructions():
        if name == "ENV":
            yield from (word.partition("=")[::2] for word in shlex.split(rest))


def test_variables_are_options_of_the_server() -> None:
    used = {name for name, _ in _environment()} | set(env_file()) | set(COMPOSE["services"]["offramp"]["environment"])
    assert {name for name in used if name.startswith("OFFRAMP_")} - OPTIONS == set()
    assert env_file()["OFFRAMP_SERVE_HOST"] == "127.0.0.1"


# The Dockerfile.


def test_the_image_is_slim_and_not_run_by_root() -> None:
    given = instructions()
    stages = [rest for name, rest in given if name == "FROM"]
    assert all("-slim" in stage for stage in stages)
    assert re.fullmatch(r".* AS wheel", stages[0])
    last = given[max(i for i, (name, _) in enumerate(given) if name == "FROM") :]
    names = [name for name, _ in last]
    [user] = [rest for name, rest in last if name == "USER"]
    assert user.split(":")[0] not in ("0", "root")
    assert not {"RUN", "COPY"} & set(names[names.index("USER") :]), "as that user, it could not"
    assert json.loads(dict(last)["ENTRYPOINT"]) == ["offramp", "serve"]
    for name, rest in given:
        if name == "RUN" and "pip install" in rest:
            assert "--no-cache-dir" in rest
            assert "--constraint /wheels/constraints.txt" in rest


def test_what_is_copied_is_there_and_let_through() -> None:
    rules = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert rules[0] == "*"
    for source in copied():
        assert (ROOT / source).exists()
        assert f"!{source}" in rules, f"{source} is kept out of the build"


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_tells(status: int, healthy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    [check] = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    program, option, code = json.loads(check[check.index("CMD") + 3 :])
    assert (program, option) == ("python", "-c")
    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OFFRAMP_SERVE_PORT", str(server.server_port))
        done = subprocess.run([sys.executable, option, code], capture_output=True)
        server.shutdown()
    assert (done.returncode == 0) == healthy, done.stderr


def test_the_wheel_it_installs(tmp_path: Path) -> None:
    """Built from what the Dockerfile copies, and nothing else; with the page, and the extras that it asks for."""
    pytest.importorskip("setuptools")
    (tmp_path / "source").mkdir()
    for source in copied():
        if (ROOT / source).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "model.safetensors")  # weights take long
            shutil.copytree(ROOT / source, tmp_path / "source" / source, ignore=left_out)
        else:
            shutil.copy(ROOT / source, tmp_path / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", tmp_path, tmp_path / "source"], check=True)
    [wheel] = tmp_path.glob("offramp-*.whl")
    [pip] = [rest for name, rest in instructions() if name == "RUN" and "offramp-*.whl" in rest]
    assert fnmatch.fnmatch(wheel.name, "offramp-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        [about] = [opened.read(name).decode() for name in names if name.endswith("METADATA")]
        [scripts] = [opened.read(name).decode() for name in names if name.endswith("entry_points.txt")]
    page = [path for path in (ROOT / "src" / "offramp" / "serving" / "page").iterdir() if path.is_file()]
    assert {f"offramp/serving/page/{path.name}" for path in page} <= names
    assert {"offramp/serving/app.py", "offramp/shipped/offramp-mini/config.json", "offramp/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]
    extras = re.search(r"\[([\w,]+)\]", pip)
    assert extras
    assert set(extras[1].split(",")) <= set(re.findall(r"^Provides-Extra: (\w+)", about, re.MULTILINE))
    assert "offramp = offramp.cli:main" in scripts


def test_versions_are_pinned() -> None:
    """The image is to be the same tomorrow: everything that the server needs has its version in constraints.txt."""
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE))
    pyproject = (ROOT / "pyproject.toml").read_text()
    for name in ("serve", "onnx"):
        extra = re.search(rf"^{name} = \[(.*?)\]", pyproject, re.MULTILINE | re.DOTALL)
        assert extra
        wanted = {re.match(r"[\w.-]+", one)[0] for one in re.findall(r'"([^"]+)"', extra[1])}  # type: ignore[index]
        assert {one.replace("-", "_") for one in wanted} <= {one.replace("-", "_") for one in pinned}
    assert "torch" in pinned


# The unit.


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "offramp.service").read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_runs_the_server() -> None:
    assert unit()["ExecStart"] == ["/opt/offramp/bin/offramp serve"]
    assert unit()["EnvironmentFile"] == ["/etc/offramp.env"]
    assert unit()["KillSignal"] == ["SIGTERM"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """As it is but for the program, which is not installed here; and it finds it locked down."""
    text = (DEPLOY / "offramp.service").read_text()
    path = tmp_path / "offramp.service"
    path.write_text(text.replace("/opt/offramp/bin/offramp", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "offramp" in line]) == (0, [])
    locked = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", path]
    assert subprocess.run(locked, capture_output=True, text=True).returncode == 0, "its exposure is above 2.0"
