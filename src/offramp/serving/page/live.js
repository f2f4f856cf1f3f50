// What the server is doing: asked about once a second, while somebody looks.

import { ask } from "./server.js";
import { at, big, brief, counted, element, known, say, share } from "./words.js";

const PAUSE = 1000, LONGEST = 10_000;

/** Starts asking; `down(error)` after a failure, `up()` after every success. */
export function watchServer(about, { up, down }) {
  let timer = 0, pause = PAUSE, asking = false;
  const again = () => { clearTimeout(timer); if (!document.hidden) timer = setTimeout(look, pause); };
  const look = async () => {
    if (asking || document.hidden) return;
    asking = true;
    try {
      showStats(about, await ask("page/stats"));
      pause = PAUSE;
      up();
    } catch (error) {
      pause = Math.min(2 * pause, LONGEST); // a server that comes back is not met by a crowd
      if (!document.hidden) down(error);
    } finally {
      asking = false;
      again();
    }
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    pause = PAUSE;
    look();
  });
  look();
  return look;
}

export function showStats(about, stats) {
  const depth = about.exit_layers.at(-1), some = stats.answered > 0;
  const figures = [
    ["Answered", big(stats.answered)], ["Answers a second", brief(stats.rate)],
    ["Mean layers", some ? brief(stats.mean_layers) : "–", some ? ` of ${depth}` : ""], ["Layers saved", some ? share(stats.layers_saved, 0) : "–"],
    ["Waiting", big(stats.queue)],
  ];
  const list = at("live-figures");
  if (list.children.length !== figures.length) {
    list.replaceChildren(...figures.map(([name]) => element("div", { class: "card" }, element("dt", {}, name), element("dd", { class: "number" }))));
  }
  figures.forEach(([, value, beside = ""], number) => {
    list.children[number].lastChild.replaceChildren(value, element("span", { class: "beside" }, beside));
  });
  showHistogram(about, stats);
  showRate(stats);
  showAgreement(stats.agreement);
}

/** Columns of a chart, made once and then moved. */
function columns(id, count, heights, label) {
  const chart = at(id);
  if (chart.children.length !== count) {
    chart.replaceChildren(...Array.from({ length: count }, () => element("div", { class: "column" },
      element("span", { class: "value" }), element("span", { class: "bar" }), element("span", { class: "foot" }))));
    chart.classList.toggle("many", count > 13);
  }
  heights.forEach((height, number) => {
    const column = chart.children[number], [value, , foot] = column.children;
    column.style.setProperty("--part", height);
    [value.textContent, foot.textContent] = label(number);
  });
}

function showHistogram(about, stats) {
  const layers = [...new Set(about.exit_layers)];
  const counts = layers.map((layer) => stats.exits[layer] || 0);
  const all = counts.reduce((sum, count) => sum + count, 0), most = Math.max(...counts, 1);
  columns("histogram", layers.length, counts.map((count) => count / most), (number) => {
    const part = counts[number] / (all || 1);
    return [part >= 0.005 ? (100 * part).toFixed(0) : "", String(layers[number])];
  });
  const top = layers[counts.indexOf(most)];
  say("histogram-words", all ? `Percent of ${counted(all, "answer")} that left after each layer; most after layer\u00a0${top}.` : "No text has been answered yet.");
}

function showRate(stats) {
  const seconds = stats.per_second.slice(0, -1), most = Math.max(...seconds, 1); // the present second is not over
  columns("rate", seconds.length, seconds.map((count) => count / most), () => ["", ""]);
  const busiest = Math.max(...seconds);
  say("rate-words", busiest ? `The last second is on the right; the busiest had ${counted(busiest, "answer")}.` : "No answer in the last minute.");
}

function showAgreement(agreement) {
  const { audited, agreed, share: part, promised, below_promise: below } = agreement;
  at("agreement").classList.toggle("other", below);
  if (!audited) return say("agreement", "No answer has been audited yet: a small share of the traffic is run to full depth in idle time and compared.");
  const words = `Audited: ${big(agreed)} of ${counted(audited, "answer")} agree with full depth, ${share(part)}.`;
  const limit = known(promised) ? ` ${share(promised)} or more is in line with the promise.` : "";
  return say("agreement", below ? `${words} That is below ${share(promised)}: the promise is in doubt, texts may have changed. See offramp check.` : words + limit);
}
