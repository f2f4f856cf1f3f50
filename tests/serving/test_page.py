"""The page as a reader sees it, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.serving.http_server import serving, settings_of
from tests.serving.page_server import StubService, comes_near, made_up, points_of

HOSTILE = (
    """<img src=x onerror="document.title='owned'"></script><script>document.title='owned'</script>&amp; {{key}}"""
)
STILL = {"reduced_motion": "reduce"}
TURNS = "slow at first, but it grew on me"
"""Positive at the first exits, negative from the sixth on."""

Serve = Callable[..., str]
Open = Callable[..., Any]


def asked(page: Any, text: str) -> Any:
    page.get_by_label("Text", exact=True).fill(text)
    with page.expect_response(lambda response: "/page/trace" in response.url):  # what is shown may be an earlier answer
        page.get_by_role("button", name="Answer").click()
    page.wait_for_selector("#answer .number")
    return page


def states(page: Any) -> list[str]:
    rows = page.locator("#exits li[data-state]").all()
    return [row.get_attribute("data-state") for row in rows]


def leaves_after(layer: int, of: int = 12) -> list[str]:
    return ["passed"] * (layer - 1) + ["left"] + ["skipped"] * (of - layer)


def test_type_and_see_where_it_leaves(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(StubService()), **STILL)
    page.wait_for_selector("#exits li")
    assert states(page) == ["waiting"] * 12
    asked(page, "a fine film")
    assert states(page) == leaves_after(3)
    answer = page.locator("#answer").inner_text()
    assert "positive 97.3" in answer
    assert "Left after layer 3 of 12: 9\xa0layers saved, 75\xa0% of the work." in answer
    assert "Full depth says the same, >99.9" in answer
    assert "Took 3.7\xa0ms" in page.locator("#took").inner_text()
    assert page.locator("[data-state=left]").inner_text().split()[2:] == ["positive", "97.3", "%", "left", "here"]
    assert page.title() == "sst2-reviews · offramp"


def test_exits_light_up_one_after_the_other(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(StubService()))
    page.wait_for_selector("#exits li")
    page.evaluate("""() => {
        window.seen = [];
        new MutationObserver(() => window.seen.push([...document.querySelectorAll("#exits li[data-state]")]
            .map((row) => row.dataset.state[0]).join(""))).observe(document.getElementById("exits"),
            { subtree: true, attributes: true, attributeFilter: ["data-state"] });
    }""")
    asked(page, "a fine film")
    assert list(dict.fromkeys(page.evaluate("window.seen"))) == [
        "wwwwwwwwwwww", "pwwwwwwwwwww", "ppwwwwwwwwww", "pplwwwwwwwww", "pplsssssssss",
    ]  # fmt: skip


def test_the_newest_text_counts(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(StubService()))
    page.get_by_label("Text", exact=True).fill(TURNS)
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-state=passed]")  # while its exits light up
    page.get_by_label("Text", exact=True).fill("a fine film")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer .number")
    assert states(page) == leaves_after(3)
    page.wait_for_timeout(1200)  # longer than the first would have taken
    assert states(page) == leaves_after(3)
    assert page.locator("#answer .number").inner_text().startswith("positive")


def test_an_answer_is_not_shown_under_another_text(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(StubService()))
    page.route("**/page/trace", lambda route: "fine" in route.request.post_data or route.continue_())
    for text in (TURNS, "a fine film"):  # of which the second has no answer yet
        page.get_by_label("Text", exact=True).fill(text)
        page.keyboard.press("Enter")
        if text == TURNS:
            page.wait_for_selector("[data-state=passed]")
    page.wait_for_timeout(1500)  # longer than the first would have taken
    assert states(page) == ["waiting"] * 12
    assert page.locator("#answer .number").count() == 0


def test_slider(serve: Serve, open_page: Open) -> None:
    page = asked(open_page(serve(StubService()), **STILL), TURNS)
    sent: list[str] = []
    page.on("request", lambda request: "stats" in request.url or sent.append(request.url))
    slider = page.get_by_role("slider", name="How much is saved, how much may be lost")
    assert slider.input_value() == "3"
    left, figures = [], []
    for place in range(6):
        slider.fill(str(place))
        left.append((states(page).index("left") + 1, page.locator("#answer .number").inner_text().split()[0]))
        figures.append(page.locator("#figures").inner_text().split("\n"))
        assert states(page) == leaves_after(left[-1][0])
    assert left == [(1, "positive"), (10, "negative"), *[(12, "negative")] * 4]
    assert figures[0] == [
        "Mean layers",
        "2.52 of 12",
        "Speed-up",
        "4.8×",
        "Score",
        "84.4\xa0%",
        "Expected loss",
        "6.8\xa0%",
    ]
    assert figures[5] == ["Mean layers", "12 of 12", "Speed-up", "1.0×", "Score", "91.2\xa0%"]
    assert not sent
    slider.fill("0")
    assert page.locator("#point-name").inner_text() == "At most 10 % of accuracy is lost"
    assert page.locator("#asked-with").inner_text() == 'A request asks for it with "max_loss": 0.1'
    assert "Full depth says negative instead" in page.locator("#answer").inner_text()
    assert page.locator("#curve circle.here").count() == 1
    assert page.locator("#took").is_hidden()  # what was measured belongs to another point


def test_a_text_is_asked_at_the_place_of_the_slider(serve: Serve, open_page: Open) -> None:
    service = StubService()
    page = open_page(serve(service), **STILL)
    page.wait_for_selector("#exits li")
    page.get_by_role("slider").fill("0")
    asked(page, "a fine film")
    assert [(text, point.name) for text, point in service.asked] == [("a fine film", "max_loss=0.1")]
    assert states(page) == leaves_after(1)


def test_keyboard_only(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(StubService()), **STILL)
    page.wait_for_selector("#text:focus")
    page.keyboard.type("slow at first, but")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("fine")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer .number")
    assert page.locator("#text").input_value() == "slow at first, but\nfine"
    passed = []
    for _ in range(10):
        page.keyboard.press("Tab")
        passed.append(page.evaluate("document.activeElement.id"))
        if passed[-1] == "slider":
            break
    assert passed == ["send", "add-second", "slider"]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Home")
    assert states(page) == leaves_after(1)
    assert page.locator("#slider").get_attribute("aria-valuetext") == "At most 10 % of accuracy is lost"
    page.keyboard.press("ArrowRight")
    assert states(page) == leaves_after(10)


def test_live_histogram(serve: Serve, open_page: Open) -> None:
    service = StubService()
    page = open_page(serve(service), **STILL)
    page.get_by_text("No text has been answered yet").wait_for()
    asked(page, "a fine film")
    page.get_by_text("Percent of 1\xa0answer that left after each layer; most after layer\xa01.").wait_for()
    service.exits |= {1: 600, 2: 300, 12: 100}
    service.per_second[-2] = 250
    service.agreement |= {"audited": 40, "agreed": 30, "share": 0.75, "promised": 0.98, "below_promise": True}
    page.get_by_text("Percent of 1,000\xa0answers").wait_for()
    columns = page.locator("#histogram .column").all_inner_texts()
    assert [column.split() for column in columns] == [
        ["60", "1"],
        ["30", "2"],
        *[[str(n)] for n in range(3, 12)],
        ["10", "12"],
    ]
    heights = [column.bounding_box()["height"] for column in page.locator("#histogram .bar").all()]
    assert heights[0] == pytest.approx(2 * heights[1], abs=1)
    assert heights[2] == 0
    assert page.locator("#live-figures").inner_text().split("\n")[:2] == ["Answered", "1,000"]
    assert "the busiest had 250" in page.locator("#rate-words").inner_text()
    assert "75.0\xa0%. That is below 98.0\xa0%" in page.locator("#agreement").inner_text()


def test_a_hidden_tab_asks_nothing(serve: Serve, open_page: Open) -> None:
    service = StubService()
    page = open_page(serve(service), **STILL)
    page.locator("#live-state:has-text('live')").wait_for()
    turn = """(hidden) => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange")); }"""
    page.evaluate(turn, True)
    page.wait_for_timeout(200)
    before = service.looks
    page.wait_for_timeout(1200)
    assert service.looks == before
    page.evaluate(turn, False)
    page.wait_for_timeout(1200)
    assert before + 1 <= service.looks <= before + 3


def test_server_down_and_up_again(open_page: Open) -> None:
    service = StubService(exits={1: 7})
    with serving(made_up(), service) as address:
        page = open_page(address, may_say="ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET", **STILL)
        asked(page, "a fine film")
    page.get_by_text("The figures below are the last ones seen").wait_for()
    assert page.locator("#live-state").inner_text() == "not connected"
    page.get_by_role("button", name="Answer").click()
    page.locator("#refused").get_by_text("The server does not answer.").wait_for()
    assert states(page) == ["waiting"] * 12  # nothing that could be taken for the answer to what was typed
    with serving(made_up(), service, port=int(address.rsplit(":", 1)[1])):
        page.locator("#trouble").wait_for(state="hidden")
        asked(page, "a fine film")
        assert page.locator("#refused").is_hidden()


def test_refused_texts(serve: Serve, open_page: Open) -> None:
    service = StubService()
    page = open_page(serve(service), may_say="422", **STILL)
    page.get_by_role("button", name="Answer").click()
    assert page.locator("#refused").inner_text() == "Type a text first."
    service.error = f"no answer to {HOSTILE}"
    page.get_by_label("Text", exact=True).fill(HOSTILE)
    page.keyboard.press("Enter")
    page.get_by_text("no answer to <img").wait_for()
    assert page.title() != "owned"
    service.error = None
    asked(page, "fine")
    assert page.locator("#refused").is_hidden()


def test_names_and_texts_are_text(serve: Serve, open_page: Open) -> None:
    labels = (HOSTILE, f"1{HOSTILE}", f"2{HOSTILE}", f"3{HOSTILE}")
    page = open_page(serve(StubService(name=HOSTILE, labels=labels)), width=360, **STILL)
    asked(page, HOSTILE)
    page.locator("#more-scores summary").click()
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("#answer .number").inner_text().startswith("1<img src=x onerror=")
    assert page.locator("main img").count() == page.locator("main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_pairs(serve: Serve, open_page: Open) -> None:
    service = StubService()
    page = open_page(serve(service), **STILL)
    page.get_by_role("button", name="Add a second text").click()
    page.keyboard.type("the second")
    page.get_by_label("First text").fill("the first")
    page.get_by_label("Second text").fill("")
    page.keyboard.press("Enter")
    assert page.locator("#refused").inner_text() == "Type the second text, too."
    page.keyboard.type("the second")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer .number")
    page.get_by_role("button", name="One text only").click()
    asked(page, "alone")
    assert [text for text, _ in service.asked] == [("the first", "the second"), "alone"]


def test_a_model_of_pairs(tmp_path: Path, serve: Serve, open_page: Open) -> None:
    (tmp_path / "training.json").write_text('{"task": {"name": "glue/mrpc"}}')
    page = open_page(serve(StubService(folder=str(tmp_path))), **STILL)
    page.get_by_label("Second text").wait_for()
    assert page.get_by_role("button", name="second").count() == 0


KINDS: dict[str, dict[str, Any]] = {
    "calibrated": {},
    "24 layers": {"layers": 24},
    "one layer": {"layers": 1, "points": points_of(1, "uncalibrated")},
    "20 labels": {"labels": [f"label number {number}" for number in range(20)]},
    "uncalibrated": {"points": points_of(12, "uncalibrated")},
    "numbers": {"regression": True, "labels": (), "says": comes_near, "points": points_of(12, "own")},
    "long names": {"name": "name" * 60, "labels": ("negative" * 20, "positive" * 20)},
}

CONTRAST = """() => {
    const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => numbers(colour).slice(0, 3).map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, number) => sum + part * [0.2126, 0.7152, 0.0722][number], 0);
    const below = (one) => { for (; one; one = one.parentElement) {
        const colour = getComputedStyle(one).backgroundColor;
        if (numbers(colour)[3] !== 0) return colour;
    } };
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), poor = [];
    while (walker.nextNode()) {
        const one = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !one.checkVisibility()) continue;
        const style = getComputedStyle(one), ink = one instanceof SVGElement ? style.fill : style.color;
        const [a, b] = [light(ink), light(below(one))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) poor.push([walker.currentNode.data, ink, below(one)].join(" "));
    }
    return poor;
}"""


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model(name: str, serve: Serve, open_page: Open) -> None:
    page = open_page(serve(StubService(**KINDS[name])), scheme="dark", **STILL)
    asked(page, TURNS)
    page.wait_for_selector("#live-figures .number")
    layers = KINDS[name].get("layers", 12)
    assert states(page).count("left") == 1
    assert len(states(page)) == page.locator("#histogram .column").count() == layers
    assert page.get_by_role("slider").count() == ("uncalibrated" not in name and layers > 1)
    words = page.locator("main").inner_text()
    assert not any(wrong in words for wrong in ("undefined", "NaN", "null", "[object"))
    for width in (360, 760, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []


def test_numbers_and_their_words(serve: Serve, open_page: Open) -> None:
    page = asked(open_page(serve(StubService(**KINDS["numbers"])), **STILL), "a")
    assert states(page) == leaves_after(6)
    assert page.locator("#answer").inner_text().split("\n")[0] == "3.19"
    assert "Full depth says 3.39: a difference of 0.195." in page.locator("#answer").inner_text()
    assert "sure" not in page.locator("#answer").inner_text()
    assert "Nothing is promised of this rule" in page.locator("#promise").inner_text()


def test_uncalibrated_says_how_to_calibrate(serve: Serve, open_page: Open) -> None:
    page = asked(open_page(serve(StubService(**KINDS["uncalibrated"])), **STILL), "a")
    assert "offramp calibrate" in page.locator("#promise").inner_text()
    assert "nothing saved" in page.locator("#answer").inner_text()


def test_many_labels(serve: Serve, open_page: Open) -> None:
    page = asked(open_page(serve(StubService(**KINDS["20 labels"])), **STILL), "a fine film")
    assert page.locator("#scores li").count() == 3
    assert page.locator("#scores li").first.inner_text().startswith("label number 1")
    page.get_by_text("The other 17 labels").click()
    assert page.locator("#more-scores li").count() == 17


def test_a_real_server(calibrated: Path, open_page: Open) -> None:
    with serving(settings_of(calibrated)) as address:
        page = asked(open_page(address, **STILL), "a good film")
        assert states(page).count("left") == 1
        page.get_by_text("Percent of 1\xa0answer ").wait_for()
        seen = set()
        for place in range(int(page.get_by_role("slider").get_attribute("max")) + 1):
            page.get_by_role("slider").fill(str(place))
            seen.add(page.locator("#figures").inner_text())
        assert len(seen) == place + 1 > 2
        assert states(page)[-1] == "left"
