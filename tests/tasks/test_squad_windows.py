"""Windows: every token of a context is in one, each answer where it is, the special tokens of each family."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import OfframpError
from offramp.tasks.squad import Question, Window, WindowEncoder, window_encoder
from offramp.tasks.squad.windows import _best_contexts, _pieces
from tests.generated import backbone_folder
from tests.tasks.squad_made import TOKENIZERS, WORDS, asked, bert_tokenizer, questions
from tests.tiny import tiny_model

CONTEXT = "The Rhine flows north\tfrom Basel, to  Köln – 1200 km\u3000in all. "
LONG = " ".join(WORDS[i % len(WORDS)] for i in range(100))


@pytest.mark.parametrize("family", TOKENIZERS)
def test_a_window_is_what_the_tokenizer_makes_of_the_pair(family: str) -> None:
    tokenizer = TOKENIZERS[family]()
    pair = tokenizer("from where ?", CONTEXT, return_token_type_ids=True)
    (window,) = WindowEncoder(tokenizer)(questions(asked("a", CONTEXT, "Basel")))
    assert (window.row.input_ids, window.row.token_type_ids) == (pair["input_ids"], pair["token_type_ids"])
    (plain,) = WindowEncoder(tokenizer, token_types=False)(questions(asked("a", CONTEXT, "Basel")))
    assert plain.row.token_type_ids is None
    in_context = [kind == 1 for kind in pair.sequence_ids(0)]
    assert [place is not None for place in window.characters] == in_context == list(window.best_context)


@pytest.mark.parametrize("family", TOKENIZERS)
@pytest.mark.parametrize("answer", ["Basel", "north\tfrom Basel", "Köln", "1200 km", "– 1200", "The", "all."])
@pytest.mark.parametrize("max_length", [384, 40])
def test_the_gold_tokens_say_the_answer_in_every_window_that_holds_it(
    family: str, answer: str, max_length: int
) -> None:
    encoder = WindowEncoder(TOKENIZERS[family](), max_length, stride=6, max_question=8)
    windows = encoder(questions(asked("a", CONTEXT, answer)))
    holding = [window for window in windows if window.start]
    assert holding
    for window in holding:
        first, last = window.characters[window.start], window.characters[window.end]
        assert first is not None
        assert last is not None
        assert CONTEXT[first[0] : last[1]] == answer
    assert all(window.end == 0 for window in windows if not window.start)


def test_the_first_answer_that_is_in_the_context_counts() -> None:
    made = Question("a", "?", "from basel to cologne", ("Rome", "cologne", "basel"), (-1, 14, 5), impossible=False)
    (window,) = WindowEncoder(bert_tokenizer())(questions(made))
    assert window.characters[window.start] == (14, 21)


@given(tokens=st.integers(0, 120), room=st.integers(1, 50), stride=st.integers(1, 60))
def test_every_token_is_covered_and_is_best_in_exactly_one_window(tokens: int, room: int, stride: int) -> None:
    pieces = _pieces(tokens, room, min(stride, room))
    best = _best_contexts(pieces)
    covered = [token for first, end in pieces for token in range(first, end)]
    assert set(covered) == set(range(tokens))
    assert all(end - first <= room for first, end in pieces)
    assert sum(map(sum, best)) == tokens
    for token in range(tokens):
        inside = [w for w, (first, end) in enumerate(pieces) if first <= token < end]
        context = {w: min(token - pieces[w][0], pieces[w][1] - 1 - token) for w in inside}
        (chosen,) = [w for w in inside if best[w][token - pieces[w][0]]]
        assert context[chosen] + 0.01 * (pieces[chosen][1] - pieces[chosen][0]) == pytest.approx(
            max(context[w] + 0.01 * (pieces[w][1] - pieces[w][0]) for w in inside)
        )


def test_windows_begin_a_stride_apart_until_one_reaches_the_end() -> None:
    """100 tokens of context, 30 − 3 − 3 = 24 in a window: the last begins at 80, since 70 + 24 < 100."""
    windows = WindowEncoder(bert_tokenizer(), max_length=30, stride=10)(
        questions(asked("a", LONG, "rhine", question="from ? to"))
    )
    firsts = [next(place for place in window.characters if place)[0] for window in windows]
    words = [place[0] for place in _context_places(WindowEncoder(bert_tokenizer())(questions(asked("a", LONG)))[0])]
    assert firsts == [words[start] for start in range(0, 81, 10)]


def _context_places(window: Window) -> list[tuple[int, int]]:
    return [place for place in window.characters if place]


def test_a_long_question_is_cut_and_a_question_without_context_has_a_window(caplog: pytest.LogCaptureFixture) -> None:
    encoder = WindowEncoder(bert_tokenizer(), max_length=80)
    cut, no_context, no_question = encoder(
        questions(
            asked("a", "from basel", "basel", question="to " * 500),
            asked("b", ""),
            asked("c", "from basel", "basel", question=""),
        )
    )
    assert "1 questions are longer than 64 tokens and are cut" in caplog.text
    assert len(cut.row) == 3 + 64 + 2
    assert cut.characters[cut.start] == (5, 10)
    assert set(no_context.characters) == {None}
    assert no_question.row.input_ids[:2] == [2, 3]
    batch = encoder.pad([cut.row, no_question.row])
    assert batch["attention_mask"].sum(1).tolist() == [69, 5]


def test_settings_that_cannot_work_are_refused() -> None:
    made = questions(asked("a", LONG, "rhine", question="to " * 30))
    with pytest.raises(OfframpError, match=r"a window of 20 tokens has no room for question 'a' \(30 tokens\)"):
        WindowEncoder(bert_tokenizer(), max_length=20)(made)
    with pytest.raises(OfframpError, match="stride 0: expected 1 token or more"):
        WindowEncoder(bert_tokenizer(), stride=0)
    with pytest.raises(OfframpError, match="object does not say where in a text its tokens lie"):
        WindowEncoder(object())


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_the_encoder_of_a_model(family: str, tmp_path: Path) -> None:
    model = tiny_model(family, span=True)
    encoder = window_encoder(model, tokenizer=bert_tokenizer())
    longest = model.backbone.max_length
    assert (encoder.max_length, encoder.stride, encoder.max_question) == (longest, 128, longest // 2)
    assert encoder.token_types == (family != "roberta")
    assert window_encoder(model, 24, 5, bert_tokenizer()).max_length == 24
    model.config.max_text_tokens = 20
    assert window_encoder(model, tokenizer=bert_tokenizer()).max_length == 20
    with pytest.raises(OfframpError, match="max length 384: the model takes 8 to"):
        window_encoder(model, 384, tokenizer=bert_tokenizer())
    with pytest.raises(OfframpError, match="there is no tokenizer with the model"):
        window_encoder(model)
    model.name_or_path = str(backbone_folder(tmp_path / "bert"))
    assert window_encoder(model)(questions(asked("a", "a good film", "good")))[0].start > 0


def test_a_stride_wider_than_a_window_leaves_nothing_out() -> None:
    asks = questions(asked("a", " ".join(WORDS[i % len(WORDS)] for i in range(60)), WORDS[0]))
    windows = WindowEncoder(bert_tokenizer(), 20, stride=128)(asks)
    assert len({place for window in windows for place in _context_places(window)}) == 60


def test_an_answer_does_not_take_in_the_token_it_touches() -> None:
    asks = questions(asked("a", "north-basel to cologne", "basel"))
    [window] = WindowEncoder(bert_tokenizer(), 30)(asks)
    assert window.characters[window.start] == window.characters[window.end] == (6, 11)
