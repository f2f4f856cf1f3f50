"""What is exported: the model's own numbers in padded batches, and, by the loop of 40 lines, the engine's answers."""

from __future__ import annotations

import ast
import errno
import itertools
import json
import re
import runpy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import offramp
from offramp import OfframpError, exported_folder
from offramp.engine import Engine
from offramp.engine.onnx.graph import Graph
from offramp.engine.onnx.portable import PortableSegments
from offramp.engine.onnx.segments import ACTIVATIONS
from offramp.models import MultiExitModel
from offramp.policies import policy_from_text
from offramp.tasks.encoding import Row, find_model_tokenizer
from tests import tiny
from tests.exiting_models import MODELS
from tests.generated import WORDS, reviews
from tests.prediction.models import model_folder, write
from tests.tiny import FAMILIES, tiny_batch, tiny_model

ROOT = Path(__file__).parents[2]
LOOP = ROOT / "examples" / "onnx_loop.py"
LABELS = ("bad", "good", "so-so")
TEXTS = [text for text, _ in reviews(20)]
CLOSE = {"fp32": 1e-4, "int8": 0.1}
"""In int8 the last bit of a sum can move a number to the next of 256: with 16 numbers in a token, that shows."""


@cache
def loop() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(LOOP)))


# The graphs


def exit_logits(model: MultiExitModel, batch: dict[str, Tensor]) -> list[np.ndarray]:
    """What the exported files say at every exit, all rows at once."""
    segments = PortableSegments(model, int8=False)
    given = {name: value.numpy() for name, value in batch.items()}
    mask = given.pop("attention_mask")
    if model.backbone.config.type_vocab_size == 1:
        given.pop("token_type_ids", None)
    hidden, said = run(segments.embed(Graph()), **given), []
    for layer in range(1, model.backbone.depth + 1):
        hidden = run(segments.layer(layer - 1), hidden=hidden, attention_mask=mask)
        for exit in [exit for exit, at in enumerate(model.exits.layers) if at == layer]:
            said.append(run(segments.exit(exit), hidden=hidden, attention_mask=mask))
    return said


def run(graph: bytes, **given: np.ndarray) -> np.ndarray:
    onnx.checker.check_model(graph, full_check=True)
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"]).run(None, given)[0]


def check_batch(model: MultiExitModel, left: bool = False) -> None:
    batch = tiny_batch(6, 12, seed=5)
    batch["token_type_ids"] = torch.randint(0, model.backbone.config.type_vocab_size, (6, 12))
    if left:
        batch = {name: value.flip(1) for name, value in batch.items()}
    with torch.no_grad():
        expected = model(**batch).exit_logits
    for ours, theirs in zip(exit_logits(model, batch), expected, strict=True):
        largest = theirs[theirs > torch.finfo(torch.float32).min].abs().max()  # of spans, some hundreds
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * max(10, float(largest)))


@pytest.mark.parametrize("task", ["classification", "regression", "span"])
@pytest.mark.parametrize("family", FAMILIES)
def test_padded_batches_are_the_models(family: str, task: str) -> None:
    check_batch(MODELS[family, task])


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("bert", {}),
        ("bert", {"pooling": "mean"}),
        ("bert", {"pooling": "max", "poolers": 0}),
        ("roberta", {"pooling": "first+mean+max", "poolers": 1, "classifiers": 2}),
        ("bert", {"pooling": ["mean", "max+first", "mean", "first"]}),
        ("bert", {"poolers": 1, "classifiers": 1, "pooling": ["first", "mean", "max", "first"]}),
        ("bert", {"exit_layers": [1, 4, 4]}),
        ("elasticbert", {"pooler_size": 12}),
        ("bert", {"span": True, "poolers": 1}),
        ("bert", {"pooling": "first+max", "pool_padding": True}),
        ("bert", {"pooling": "mean", "pool_padding": True}),
        ("bert", {"span": True, "pool_padding": True}),
    ],
    ids=str,
)
def test_every_head(family: str, options: dict[str, Any], left: bool) -> None:
    torch.manual_seed(1)
    check_batch(tiny_model(family, **options), left)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiny.SHAPE, "hidden_act", activation)
    check_batch(tiny_model(layers=2))


# The folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


def exported(place: Path, family: str, precision: str = "fp32", task: str = "classification") -> tuple[Path, Path]:
    """A model folder and what was exported from it, made once."""
    source, folder = place / f"{family}-{task}", place / f"{family}-{task}-{precision}"
    if not source.exists() and task == "span":
        write(MODELS[family, task], source, None)
    elif not source.exists():
        model_folder(source, () if task == "regression" else LABELS, family=family)
    if not folder.exists():
        offramp.export(source, folder, precision=precision)
    return source, folder


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_standard_operators_only(place: Path, family: str, precision: str) -> None:
    _, folder = exported(place, family, precision)
    for file in folder.glob("*.onnx"):
        model = onnx.load(file)
        assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 20)]
        assert {node.domain for node in model.graph.node} == {""}
        products = sum(node.op_type == "MatMulInteger" for node in model.graph.node)
        assert products == (4 if precision == "int8" and file.name.startswith("layer") else 0)


@pytest.mark.parametrize(
    ("family", "options", "layers", "exits"),
    [
        ("bert", {"layers": 3}, [1, 2, 3], [1, 2, 3]),
        ("albert", {"layers": 3}, [1, 1, 1], [1, 2, 3]),
        ("albert", {"layers": 4, "groups": 2}, [1, 1, 3, 3], [1, 2, 3, 4]),
        ("bert", {"layers": 3, "poolers": 1, "classifiers": 1}, [1, 2, 3], [1, 1, 1]),
        ("bert", {"layers": 3, "poolers": 0, "classifiers": 2}, [1, 2, 3], [1, 1, 3]),
    ],
    ids=str,
)
def test_what_shares_weights_shares_a_file(
    family: str,
    options: dict[str, Any],
    layers: list[int],
    exits: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if groups := options.get("groups"):
        monkeypatch.setitem(tiny.SHAPE, "num_hidden_groups", groups)
    model = tiny_model(family, **{name: value for name, value in options.items() if name != "groups"})
    manifest = offramp.export(write(model, tmp_path / "model", None), tmp_path / "exported")
    assert manifest["layers"] == [f"layer_{number:02}.onnx" for number in layers]
    assert [exit["file"] for exit in manifest["exits"]] == [f"exit_{number:02}.onnx" for number in exits]
    written = {path.name for path in (tmp_path / "exported").glob("*.onnx")}
    assert written == {"embed.onnx", *manifest["layers"], *(exit["file"] for exit in manifest["exits"])}


def test_the_manifest(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", LABELS, layers=3, exit_layers=[2, 3, 3])
    (folder / "policy.json").write_text(json.dumps({"policy": "fixed", "layer": 3}))
    given = offramp.export(folder, tmp_path / "exported", precision="int8", max_length=9)
    assert given == json.loads((tmp_path / "exported" / "segments.json").read_text(encoding="utf-8"))
    assert given == {
        "format": 1,
        "offramp": offramp.__version__,
        "precision": "int8",
        "task": "classification",
        "labels": list(LABELS),
        "max_length": 9,
        "token_types": True,
        "policy": {"policy": "fixed", "layer": 3},
        "embed": "embed.onnx",
        "layers": ["layer_01.onnx", "layer_02.onnx", "layer_03.onnx"],
        "exits": [
            {"layer": 2, "file": "exit_01.onnx", "asked": False},
            {"layer": 3, "file": "exit_02.onnx", "asked": False},
            {"layer": 3, "file": "exit_03.onnx", "asked": True},
        ],
    }
    page = (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")
    assert "# exported\n" in page
    assert "`fixed(3)`" in page
    assert "one text at a time" in page
    assert "{" not in page


def test_a_model_in_memory_brings_its_tokenizer(place: Path, tmp_path: Path) -> None:
    source, folder = exported(place, "bert")
    model, tokenizer = offramp.load(source), loaded(source)[1]
    model.name_or_path = ""
    with pytest.raises(OfframpError, match="there is no tokenizer with the model"):
        offramp.export(model, tmp_path / "new")
    offramp.export(model, tmp_path / "new", tokenizer=tokenizer)
    for file in folder.iterdir():
        if file.name != "README.md":  # which says the folder's name
            assert (tmp_path / "new" / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize(
    ("fault", "seen", "message"),
    [
        (OSError(errno.ENOSPC, "No space left"), OfframpError, r"could not be written \(No space left\)"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
    ids=["full disk", "Ctrl-C"],
)
def test_whole_or_not_at_all(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
    seen: type[BaseException],
    message: str | None,
) -> None:
    source, _ = exported(place, "bert")
    before = offramp.export(source, tmp_path / "there", policy="fixed(1)")
    write_graph, calls = exported_folder.write_graph, itertools.count()

    def fails_halfway(path: Path, graph: bytes) -> None:
        if next(calls) % 4 == 3:
            raise fault
        write_graph(path, graph)

    monkeypatch.setattr(exported_folder, "write_graph", fails_halfway)
    for name in ("there", "new"):
        with pytest.raises(seen, match=message):
            offramp.export(source, tmp_path / name, policy="fixed(2)", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert json.loads((tmp_path / "there" / "segments.json").read_text()) == before
    monkeypatch.undo()
    offramp.export(source, tmp_path / "there", policy="fixed(2)", overwrite=True)
    assert json.loads((tmp_path / "there" / "segments.json").read_text())["policy"]["layer"] == 2


# The loop


@cache
def opened(folder: Path) -> tuple[dict[str, Any], dict[str, Any], Any]:
    about, sessions, tokenizer = loop().open_folder(folder)
    return about, sessions, tokenizer


@cache
def loaded(source: Path) -> tuple[MultiExitModel, Any]:
    model = offramp.load(source)
    return model, find_model_tokenizer(model)


def check_loop(source: Path, folder: Path, policy: str, precision: str, texts: list[Any]) -> None:
    """Label and exit layer are the engine's, and so, nearly, are the logits."""
    about, sessions, tokenizer = opened(folder)
    rule, layers_of_exits = policy_from_text(policy), [exit["layer"] for exit in about["exits"]]
    exits = [{**exit, "asked": rule.asks(number, layers_of_exits)} for number, exit in enumerate(about["exits"])]
    about = {**about, "policy": rule.to_json(), "exits": exits}
    pairs = [text if isinstance(text, tuple) else (text,) for text in texts]
    model, models_own = loaded(source)
    engine = Engine(model, policy, "cpu", precision, "onnx", threads=1, tokenizer=models_own)
    encoded = [tokenizer.encode(*pair) for pair in pairs]
    if about["task"] == "span":
        rows = [Row(tokens.ids, tokens.type_ids if about["token_types"] else None) for tokens in encoded]
    else:
        rows = [engine.encoder(*([part] for part in pair))[0] for pair in pairs]
    layers = set()
    for tokens, expected in zip(encoded, engine.answer_rows(rows), strict=True):
        z, layer = loop().answer(about, sessions, tokens)
        assert layer == expected.exit_layer
        logits = z.T if about["task"] == "span" else z[0]
        np.testing.assert_array_equal(logits.argmax(0), expected.logits.argmax(0))
        np.testing.assert_allclose(logits, expected.logits, rtol=1e-4, atol=CLOSE[precision])
        layers.add(layer)
    assert len(layers) > 1 or policy.startswith("fixed")


@pytest.mark.parametrize("policy", ["entropy(0.4313)", "confidence(0.8317)", "patience(1)"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_loop_gives_the_engines_answers(place: Path, family: str, precision: str, policy: str) -> None:
    check_loop(*exported(place, family, precision), policy, precision, TEXTS)


@pytest.mark.parametrize(
    "policy",
    [
        "fixed(3)",
        "patience(2)",
        "entropy(0.4313, normalised=True)",
        "entropy([0.1, 0.2, 0.7, 0.3, 0.0])",
        "confidence([1, 0.9, 0.5, 0.7, 0.0])",
        "entropy(0.4313, temperature=[2.0, 0.5, 1.5, 0.7, 1.0])",
    ],
)
def test_other_settings(place: Path, policy: str) -> None:
    pairs = [(text, "the plot was good") for text in TEXTS]
    check_loop(*exported(place, "bert"), policy, "fp32", pairs)
    check_loop(*exported(place, "roberta"), policy, "fp32", pairs)


@pytest.mark.parametrize(
    ("task", "policy", "precision"),
    [
        ("regression", "patience(1, tolerance=0.6)", "fp32"),
        ("regression", "patience(1, tolerance=0.6)", "int8"),
        ("span", "entropy(1.31)", "fp32"),
        ("span", "entropy(0.5171, normalised=True)", "fp32"),
        ("span", "confidence(0.3137)", "fp32"),
        ("span", "patience(1)", "fp32"),
    ],
)
def test_numbers_and_spans(place: Path, task: str, policy: str, precision: str) -> None:
    texts: list[Any] = TEXTS if task == "regression" else [("the plot", text) for text in TEXTS]
    check_loop(*exported(place, "bert", precision, task), policy, precision, texts)


def test_the_loop_cuts_long_texts_as_the_engine_does(place: Path, tmp_path: Path) -> None:
    source, _ = exported(place, "bert")
    offramp.export(source, tmp_path / "short", max_length=8)
    _, _, tokenizer = loop().open_folder(tmp_path / "short")
    long, other = " ".join(WORDS[5:20]), "a good film is a good film"
    encoder = Engine(source, max_length=8).encoder
    assert tokenizer.encode(long).ids == encoder([long])[0].input_ids
    assert tokenizer.encode(long, other).ids == encoder([long], [other])[0].input_ids


def test_of_two_exits_after_one_layer_the_last_answers(tmp_path: Path) -> None:
    source = model_folder(tmp_path / "model", LABELS, layers=3, exit_layers=[2, 3, 3])
    offramp.export(source, tmp_path / "exported")
    check_loop(source, tmp_path / "exported", "fixed(3)", "fp32", TEXTS)


def test_the_loop_says_what_it_knows(place: Path) -> None:
    _, folder = exported(place, "bert")
    about, sessions, tokenizer = opened(folder)
    about = {**about, "policy": policy_from_text("window(2)").to_json()}
    known = f"{', '.join(exported_folder.LOOP_RULES[:-1])} and {exported_folder.LOOP_RULES[-1]}"
    with pytest.raises(SystemExit, match=f"does not know the rule window: it knows {known}"):
        loop().answer(about, sessions, tokenizer.encode("a film"))


def test_the_loop_is_40_lines_and_the_pages() -> None:
    source = LOOP.read_text(encoding="utf-8")
    page = (ROOT / "docs" / "how-to" / "export.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^```python title=[^\n]*\n(.*?)^```", page, re.M | re.S)
    assert shown == source
    said = set()  # lines of docstrings
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node):
            said |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code = [
        line
        for number, line in enumerate(source.splitlines(), start=1)
        if number not in said and line.strip() and not line.lstrip().startswith("#")
    ]
    assert len(code) <= 40
