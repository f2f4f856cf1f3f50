// The slider: operating points, cheapest first, and what is expected of each.

import { at, brief, element, known, percent, say, share, times } from "./words.js";

const HEIGHT = 158, EDGE = { left: 50, right: 14, top: 24, bottom: 36 };

export function preparePoints(about, place, moved) {
  const slider = at("slider");
  slider.max = about.points.length - 1;
  slider.value = place;
  at("slider-part").hidden = about.points.length < 2;
  slider.addEventListener("input", () => moved(Number(slider.value)));
  new ResizeObserver(() => drawCurve(about, Number(slider.value))).observe(at("curve"));
}

export function showPoint(about, place) {
  const point = about.points[place], { expected } = point, depth = about.exit_layers.at(-1);
  at("slider").setAttribute("aria-valuetext", title(about, place));
  at("point-name").replaceChildren(title(about, place), ...(place === about.default ? [" ", element("span", { class: "tag" }, "this server’s own")] : []));
  const score = point.full_depth ? fullScore(about) : expected.score;
  const figures = [
    ["Mean layers", known(expected.mean_layers) && `${brief(expected.mean_layers)} of ${depth}`],
    ["Speed-up", known(expected.speed_up) && times(expected.speed_up)],
    [scoreTitle(about), known(score) && scoreWords(about, score)],
    ["Expected loss", !point.full_depth && known(expected.risk) && share(expected.risk)],
  ].filter(([, value]) => value);
  at("figures").replaceChildren(...figures.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  say("promise", promiseOf(about, point));
  const body = point.full_depth ? '"full_depth": true' : point.name.startsWith("max_loss=") ? `"max_loss": ${point.limit}` : "";
  say("asked-with", body && place !== about.default ? "A request asks for it with " : "");
  if (at("asked-with").hidden === false) at("asked-with").append(element("code", {}, body));
  at("rule").textContent = point.policy;
  drawCurve(about, place);
}

/** What the place is called: the promise without its small print, or the name. */
function title(about, place) {
  const point = about.points[place];
  if (point.full_depth) return "Full depth";
  return point.promise ? capital(point.promise.split(",")[0]) : point.name;
}

function promiseOf(about, point) {
  const only = about.points.length < 2;
  if (point.full_depth) {
    return only ? "Every text goes through all layers. Calibrate the model (offramp calibrate) to let easy ones leave early, with a promise of what is lost at most."
      : "Every text goes through all layers: what the others are measured against.";
  }
  if (!point.promise) return "Nothing is promised of this rule, and nothing was measured: offramp calibrate finds one with a promise.";
  const small = point.promise.split(",").slice(1).join(",").trim();
  return `Promised${small && " "}${small}. The figures are those of the rows it was calibrated on; the speed-up is in layers.`;
}

const capital = (words) => words[0].toUpperCase() + words.slice(1);
const scoreTitle = (about) => capital(about.metric?.title || "score");
const fullScore = (about) => about.points.map((point) => point.expected.full_score).find(known);
const scoreWords = (about, score) => about.metric && !about.metric.percent ? (100 * score).toFixed(1) : share(score);

/** Score against layers where both were measured, else loss against layers. */
function measured(about) {
  const scored = known(fullScore(about));
  const height = (point) => scored ? (point.full_depth ? fullScore(about) : point.expected.score) : point.expected.risk;
  const points = about.points.map((point, place) => ({ place, x: point.expected.mean_layers, y: height(point) }));
  return { scored, points: points.filter(({ x, y }) => known(x) && known(y)) };
}

function drawCurve(about, place) {
  const { scored, points } = measured(about);
  at("curve").hidden = points.length < 2;
  const width = at("curve").clientWidth;
  if (points.length < 2 || !width) return;
  const depth = about.exit_layers.at(-1);
  const heights = points.map((point) => point.y);
  const gap = Math.max(0.01, Math.max(...heights) - Math.min(...heights)) * 0.25;
  const low = Math.max(0, Math.min(...heights) - gap), high = Math.max(...heights) + gap;
  const across = (x) => EDGE.left + (width - EDGE.left - EDGE.right) * x / depth;
  const up = (y) => {
    const part = (y - low) / (high - low);
    return EDGE.top + (HEIGHT - EDGE.top - EDGE.bottom) * (scored ? 1 - part : part);
  };
  const line = (x1, y1, x2, y2, name) => element("line", { svg: true, x1, y1, x2, y2, class: name });
  const label = (x, y, anchor, words) => element("text", { svg: true, x, y, "text-anchor": anchor }, words);
  const floor = HEIGHT - EDGE.bottom, stops = [Math.min(...heights), Math.max(...heights)];
  const step = Math.ceil(depth / 6);
  const chart = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, "aria-hidden": "true" },
    ...(stops[0] === stops[1] ? stops.slice(1) : stops).flatMap((y) => [line(EDGE.left, up(y), width - EDGE.right, up(y), "grid"), label(EDGE.left - 6, up(y) + 4, "end", share(y).replace("\u00a0", ""))]),
    line(EDGE.left, floor, width - EDGE.right, floor, "axis"),
    ...Array.from({ length: Math.floor(depth / step) + 1 }, (_, number) => label(across(number * step), floor + 15, "middle", String(number * step))),
    label(width - EDGE.right, HEIGHT - 4, "end", "mean layers"),
    label(0, 12, "start", scored ? scoreTitle(about) : "Loss"),
    element("polyline", { svg: true, points: [...points].sort((a, b) => a.x - b.x).map(({ x, y }) => `${across(x)},${up(y)}`).join(" ") }),
    ...points.map((point) => element("circle", { svg: true, cx: across(point.x), cy: up(point.y), r: point.place === place ? 7 : 4, class: point.place === place ? "here" : "" })),
  );
  at("curve").replaceChildren(chart);
  at("curve").setAttribute("aria-label", `${scored ? scoreTitle(about) : "Loss"} against mean layers: `
    + points.map(({ x, y, place: number }) => `${title(about, number)}, ${percent(y)} with ${brief(x)} layers`).join("; "));
}
