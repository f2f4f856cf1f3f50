"""Answers from logits: the best legal span over all windows, no answer, n-best; the table for sweeps says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import OfframpError
from offramp.tasks.encoding import Row
from offramp.tasks.squad import (
    Questions,
    Window,
    WindowEncoder,
    best_spans,
    find_answers,
    squad_scores,
    write_answers,
)
from tests.tasks.squad_made import TOKENIZERS, WORDS, asked, bert_tokenizer, questions, random_logits

CONTEXT = "the rhine flows north from basel to cologne"
LONG = " ".join(WORDS[(i * i + i // 3 + 1) % len(WORDS)] for i in range(60))


def made(version2: bool, *, max_length: int = 30) -> tuple[Questions, list[Window]]:
    """Questions with one window, many, none of context."""
    asks = [
        asked("one", CONTEXT, "basel", "from basel"),
        asked("many", LONG, " ".join(LONG.split()[30:33])),
        asked("two", LONG[:150]),
    ]
    asks += [asked("empty", "" if version2 else " ", "x")]
    if not version2:
        asks[2] = asked("two", LONG[:150], " ".join(LONG.split()[8:10]))
    found = questions(*asks, version2=version2)
    return found, WindowEncoder(bert_tokenizer(), max_length, stride=7)(found)


def logits_for(windows: list[Window], spans: dict[int, tuple[str, str, float]], null: float = 0.0) -> list[Any]:
    """Flat logits, but for the start and end words of the windows given."""
    tokenizer = bert_tokenizer()
    found = []
    for number, window in enumerate(windows):
        logits = np.zeros((len(window.row), 2), dtype=np.float32)
        logits[0] = null
        if number in spans:
            start, end, score = spans[number]
            first, last = (window.row.input_ids.index(token) for token in tokenizer.convert_tokens_to_ids([start, end]))
            logits[first, 0] = logits[last, 1] = score
        found.append(logits)
    return found


def test_the_best_span_is_cut_out_of_the_text_as_it_is_written() -> None:
    asks = questions(asked("a", "The Rhine  flows, NORTH.", "NORTH"))
    windows = WindowEncoder(bert_tokenizer())(asks)
    (answer,) = find_answers(asks, windows, logits_for(windows, {0: ("rhine", "north", 5.0)}))
    assert (answer.text, answer.best, answer.null_odds) == ("Rhine  flows, NORTH", "Rhine  flows, NORTH", 0.0)
    assert len(answer.nbest) == 20
    assert sum(candidate.probability for candidate in answer.nbest) == pytest.approx(1)
    assert [c.start_logit + c.end_logit for c in answer.nbest] == sorted(
        (c.start_logit + c.end_logit for c in answer.nbest), reverse=True
    )
    assert len({candidate.text for candidate in answer.nbest}) == 20


def test_answers_are_no_longer_than_asked_for_and_do_not_end_before_they_start() -> None:
    asks = questions(asked("a", CONTEXT, "basel"))
    windows = WindowEncoder(bert_tokenizer())(asks)
    far = logits_for(windows, {0: ("rhine", "cologne", 5.0)})
    assert find_answers(asks, windows, far, max_answer_tokens=7)[0].text == "rhine flows north from basel to cologne"
    short = find_answers(asks, windows, far, max_answer_tokens=6)[0]
    assert short.text != "rhine flows north from basel to cologne"
    assert all(len(candidate.text.split()) <= 6 for candidate in short.nbest)
    backwards = logits_for(windows, {0: ("cologne", "rhine", 5.0)})
    assert sum((c.start_logit + c.end_logit == 10) for c in find_answers(asks, windows, backwards)[0].nbest) == 0


def test_no_answer_in_version_2() -> None:
    """No answer scores 2 + 2, the lowest of the windows; the best span 3 + 3: odds −2."""
    asks = questions(asked("a", LONG, "rhine"), version2=True)
    windows = WindowEncoder(bert_tokenizer(), max_length=30, stride=7)(asks)
    logits = logits_for(windows, {0: ("rhine", "rhine", 3.0)}, null=7.0)
    logits[-1][0] = 2.0
    for threshold, text in ((0.0, "rhine"), (-2.0, "rhine"), (-2.1, "")):
        (answer,) = find_answers(asks, windows, logits, null_threshold=threshold)
        assert (answer.text, answer.best, answer.null_odds) == (text, "rhine", -2.0)
    last = answer.nbest[-1]
    assert (last.text, last.start_logit, last.end_logit) == ("", 2.0, 2.0)
    one = find_answers(questions(*asks.questions), windows, logits, null_threshold=-9.0)[0]
    assert (one.text, one.null_odds, "" in [candidate.text for candidate in one.nbest]) == ("rhine", 0.0, False)


@pytest.mark.parametrize("version2", [False, True])
def test_every_question_is_answered(version2: bool) -> None:
    asks, windows = made(version2)
    answers = find_answers(asks, windows, [np.zeros((len(window.row), 2)) for window in windows])
    assert [answer.id for answer in answers] == ["one", "many", "two", "empty"]
    assert (answers[-1].text, answers[-1].best) == ("", "")
    assert all(answer.best for answer in answers[:-1])
    assert [answer.id for answer in find_answers(asks, [], [])] == ["one", "many", "two", "empty"]


@pytest.mark.parametrize("family", TOKENIZERS)
def test_perfect_logits_give_perfect_scores(family: str) -> None:
    context = f"{LONG} Köln – 1200 km\u3000in all. {LONG}"
    asks = questions(
        *(asked(text, context, text) for text in ("Köln", "1200 km", "in all.", " ".join(LONG.split()[-5:])))
    )
    windows = WindowEncoder(TOKENIZERS[family](), max_length=80, stride=20)(asks)
    logits = [np.zeros((len(window.row), 2)) for window in windows]
    for window, scores in zip(windows, logits, strict=True):
        scores[window.start, 0] = scores[window.end, 1] = 9.0
    answers = find_answers(asks, windows, logits, max_answer_tokens=60)
    assert squad_scores({answer.id: answer.text for answer in answers}, asks) == {"exact": 1.0, "f1": 1.0}


def _by_hand(asks: Questions, windows: list[Window], logits: list[Any], most: int) -> list[tuple[str, float]]:
    """The best span and its score, by looking at every one."""
    best = [("", -np.inf)] * len(asks)
    for window, scores in zip(windows, logits, strict=True):
        context = asks.questions[window.question].context
        for start, first in enumerate(window.characters):
            for end in range(start, min(start + most, len(window.row))):
                last = window.characters[end]
                if first and last and window.best_context[start]:
                    score = float(scores[start, 0]) + float(scores[end, 1])
                    if score > best[window.question][1]:
                        best[window.question] = context[first[0] : last[1]], score
    return best


@given(
    seed=st.integers(0, 10_000),
    version2=st.booleans(),
    coarse=st.booleans(),
    threshold=st.floats(-20, 20),
    most=st.integers(1, 35),
)
def test_the_table_says_what_the_answers_say(
    seed: int, version2: bool, coarse: bool, threshold: float, most: int
) -> None:
    asks, windows = MADE[version2]
    logits = random_logits(windows, exits=3, seed=seed, coarse=coarse)
    exits = np.random.default_rng(seed).integers(0, 3, len(windows))
    chosen = [scores[exit] for scores, exit in zip(logits, exits, strict=True)]
    answers = find_answers(asks, windows, chosen, null_threshold=threshold, max_answer_tokens=most, n_best=3)
    by_hand = _by_hand(asks, windows, chosen, most)
    assert [answer.best for answer in answers] == [text for text, _ in by_hand]
    table = best_spans(asks, windows, logits, most).scores(exits, threshold)
    odds = {answer.id: answer.null_odds for answer in answers}
    told = squad_scores({answer.id: answer.best for answer in answers}, asks, odds, threshold)
    assert table == pytest.approx(told)
    cut = squad_scores({answer.id: answer.text for answer in answers}, asks)
    assert {name: table[name] for name in cut} == pytest.approx(cut)


MADE = {version2: made(version2) for version2 in (False, True)}


def test_the_table_is_made_in_pieces() -> None:
    asks = questions(*(asked(str(i), LONG, "rhine") for i in range(12)))
    windows = WindowEncoder(bert_tokenizer(), max_length=30, stride=7)(asks)
    assert len(windows) > 70
    logits = random_logits(windows, exits=2, seed=1, coarse=False)
    table = best_spans(asks, windows, logits)
    for exit in (0, 1):
        answers = find_answers(asks, windows, [scores[exit] for scores in logits])
        told = squad_scores({answer.id: answer.text for answer in answers}, asks)
        assert table.scores(np.full(len(windows), exit)) == pytest.approx(told)


def test_logits_that_do_not_fit_are_refused() -> None:
    asks, windows = MADE[True]
    logits = random_logits(windows, exits=1, seed=0, coarse=False)
    with pytest.raises(OfframpError, match=r"logits of window 0 are \(1, \d+, 2\): expected"):
        find_answers(asks, windows, logits)
    with pytest.raises(OfframpError, match="expected one for each"):
        find_answers(asks, windows, [])
    with pytest.raises(OfframpError, match="not those of 4 questions"):
        best_spans(asks, windows[1:], logits[1:])
    table = best_spans(asks, windows, logits)
    with pytest.raises(OfframpError, match="there are exits 0 to 0"):
        table.scores(np.ones(len(windows), dtype=int))
    with pytest.raises(OfframpError, match="expected one for each of"):
        table.scores(np.zeros(1, dtype=int))
    logits[0][0, 3] = np.nan
    with pytest.raises(OfframpError, match="logits of window 0 are not all numbers"):
        best_spans(asks, windows, logits)


@pytest.mark.parametrize("version2", [False, True])
def test_the_files(version2: bool, tmp_path: Path) -> None:
    asks, windows = MADE[version2]
    logits = [scores[0] for scores in random_logits(windows, exits=1, seed=0, coarse=False)]
    answers = find_answers(asks, windows, logits)
    paths = write_answers(tmp_path / "out", answers, version2)
    written = {path.name: json.loads(path.read_text()) for path in paths}
    names = ["predictions_.json", "nbest_predictions_.json", "null_odds_.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names[: 2 + version2])
    assert written["predictions_.json"] == {answer.id: answer.text for answer in answers}
    best = written["nbest_predictions_.json"]["one"][0]
    assert list(best) == ["text", "probability", "start_logit", "end_logit"]
    assert best["text"] == answers[0].best
    if version2:
        assert written["null_odds_.json"] == {answer.id: answer.null_odds for answer in answers}


def window_of(*characters: tuple[int, int] | None, question: int = 0) -> Window:
    real = tuple(place is not None for place in characters)
    return Window(Row([1] * len(characters)), question, characters, real, 0, 0)


def test_an_answer_does_not_end_on_white_space() -> None:
    window = window_of(None, (0, 2), (3, 3), (4, 6), None)
    logits = np.zeros((5, 2))
    logits[1] = 5, 4
    logits[2, 1] = 9
    [answer] = find_answers(questions(asked("a", "ab  cd", "ab")), [window], [logits])
    assert answer.text == "ab"
    assert all(candidate.end_logit != 9 for candidate in answer.nbest)


def test_a_text_in_two_windows_counts_by_the_better() -> None:
    window = window_of(None, (0, 2))
    better, worse = np.array([[0.0, 0.0], [3.0, 3.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    for logits in ([better, worse], [worse, better]):
        [answer] = find_answers(questions(asked("a", "ab", "ab"), version2=True), [window, window], logits)
        assert (answer.null_odds, answer.nbest[0].start_logit) == (-6, 3)


def test_an_empty_context_in_the_table() -> None:
    asks = questions(asked("a", ""), asked("b", "ab", "ab"), version2=True)
    windows = [window_of(None, None), window_of(None, (0, 2), question=1)]
    logits = [np.array([[2.0, 2.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [3.0, 3.0]])]
    answers = find_answers(asks, windows, logits)
    odds = {answer.id: answer.null_odds for answer in answers}
    expected = squad_scores({answer.id: answer.best for answer in answers}, asks, odds, 0.0)
    assert best_spans(asks, windows, [one[None] for one in logits]).scores(np.zeros(2, dtype=int)) == expected
