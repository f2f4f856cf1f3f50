// The answer at the exit where the text leaves.

import { at, brief, element, milliseconds, say, sure } from "./words.js";
import { saved } from "./exits.js";

const FEW = 3;

export function noAnswer() {
  at("answer").replaceChildren(element("p", { class: "quiet" }, "Type a text, and see where it leaves."));
  say("took", "");
  at("scores").hidden = at("more-scores").hidden = true;
}

export function showAnswer(about, trace, place) {
  const exit = trace.leaves[place], said = trace.exits[exit], full = trace.exits.at(-1);
  const beside = about.regression ? "" : `${sure(said.confidence)} sure`;
  at("answer").replaceChildren(
    element("p", { class: "number" }, about.regression ? brief(said.label) : said.label, " ", element("span", { class: "beside" }, beside)),
    element("p", {}, saved(trace, exit)),
    ...(exit === trace.exits.length - 1 ? [] : [compared(about, said, full)]),
  );
  showScores(about, said);
  say("took", trace.answer.point === place ? took(about, trace.answer) : "");
}

function compared(about, said, full) {
  if (about.regression) {
    const gap = said.label - full.label;
    return element("p", { class: "quiet" }, `Full depth says ${brief(full.label)}: a difference of ${brief(Math.abs(gap))}.`);
  }
  return said.label === full.label
    ? element("p", { class: "same" }, `Full depth says the same, ${sure(full.confidence)} sure.`)
    : element("p", { class: "other" }, `Full depth says ${full.label} instead, ${sure(full.confidence)} sure.`);
}

/** Every label where there are more than two; the first few, and the others on request. */
function showScores(about, said) {
  const ranked = said.scores.map((score, number) => ({ score, label: about.info.labels[number] })).sort((a, b) => b.score - a.score);
  const bar = ({ score, label }) => {
    const fill = element("span", { class: "fill" });
    fill.style.setProperty("--part", score);
    return element("li", {}, element("span", { class: "said", title: label }, label),
      element("span", { class: "track", "aria-hidden": "true" }, fill), element("span", { class: "sure" }, sure(score)));
  };
  const many = ranked.length > 2;
  at("scores").hidden = !many;
  at("more-scores").hidden = ranked.length <= FEW;
  if (!many) return;
  at("scores").replaceChildren(...ranked.slice(0, FEW).map(bar));
  const [summary, list] = at("more-scores").children;
  summary.textContent = `The other ${ranked.length - FEW} labels`;
  list.replaceChildren(...ranked.slice(FEW).map(bar));
}

function took(about, answer) {
  const most = about.info.max_tokens;
  const length = answer.tokens === most ? `${most} tokens, the most it reads: what comes after them is not looked at` : `${answer.tokens} tokens`;
  const waiting = answer.queued_ms < 0.1 ? "" : `, ${milliseconds(answer.queued_ms)} of it waiting`;
  return `Took ${milliseconds(answer.took_ms)} on the server${waiting}; ${length}.`;
}
