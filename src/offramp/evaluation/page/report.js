"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const SERIES = 7, FEW_ROWS = 25;
const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"];
const DASHES = ["solid", "dash", "dot"];
const at = (id) => document.getElementById(id);
const view = { group: 0, metric: "", cost: "cost", policy: "", hidden: new Set(), curve: 0, place: 0,
  gates: 0, filter: 0, sort: "", down: false, all: false };

// Numbers as people read them

const metric = () => group().metrics.find((one) => one.name === view.metric);
const share = (number, digits = 1) => number == null ? "–" : `${(100 * number).toFixed(digits)}\u00a0%`;
const score = (number, of = metric()) => number == null ? "–" : (100 * number).toFixed(1) + (of.percent ? "\u00a0%" : "");
const hundred = (number) => number == null ? null : 100 * number;
/** The ends of long names tell runs apart. */
const short = (name) => name.length > 36 ? `${name.slice(0, 17)}…${name.slice(-18)}` : name;
const times = (number) => `${number.toFixed(2)}×`;
const big = (number) => number.toLocaleString("en", { maximumFractionDigits: number < 100 ? 1 : 0 });
const counted = (number, word) => `${big(number)} ${word}${number === 1 ? "" : "s"}`;

// What is drawn

const group = () => DATA.groups[view.group];
const single = () => group().results.length === 1;

/** The curves of the chart and of the slider. One result: a curve a policy. Several: a curve a result. */
function curves() {
  const results = group().results;
  if (!single()) {
    const names = [...new Set(results.map((one) => one.name))];
    return results.map((one) => ({
      label: one.name, result: one, style: names.indexOf(one.name),
      points: view.policy ? (one.sweeps.find((sweep) => sweep.name === view.policy) || { points: [] }).points
        : one.fronts[view.metric],
    }));
  }
  const one = results[0];
  const found = [{ label: "Pareto front", result: one, front: true, points: one.fronts[view.metric] }];
  one.sweeps.forEach((sweep, style) => found.push({ label: sweep.name, result: one, style, points: sweep.points }));
  if (one.asked != null) found.push({ label: "asked point", result: one, asked: true, points: [one.asked] });
  return found;
}

const chosen = () => curves()[view.curve];
const chosenPoint = () => { const curve = chosen(); return curve && curve.result.points[curve.points[view.place]]; };

// Building blocks. Names come from users: they reach the page as text only.

function element(tag, settings = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value != null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function options(id, labels, selected) {
  at(id).replaceChildren(...labels.map(([value, label]) =>
    element("option", { value, selected: String(value) === String(selected) }, label)));
}

/** Text for plotly, which reads some HTML in its labels; long texts are broken so that a phone can show them. */
function label(text, width = 42) {
  const lines = text.match(new RegExp(`.{1,${width}}(?=[\\s,|&]|$)|.{1,${width}}`, "gu")) || [""];
  return lines.map((line) => line.trim().replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"))
    .join("<br>");
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (style) => css(`--series-${style % SERIES}`);
const dash = (style) => DASHES[Math.floor(style / SERIES) % DASHES.length];

function described(point, result) {
  return [
    ...group().metrics.map((one) => `${one.title} ${score(point.values[one.name], one)}`),
    `cost ${share(point.cost)} (${point.layers.toFixed(2)} of ${result.depth} layers)`,
    `speed-up in layers ${times(point.speedUp)}`,
    `${big(point.mflops)} MFLOPs`,
  ];
}

// Charts

function layout(x, y, more = {}) {
  const axis = { gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false, automargin: true, fixedrange: false };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
    font: { family: "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif", color: css("--ink"), size: 13 },
    margin: { l: 8, r: 12, t: 14, b: 8 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 13 }, align: "left" },
    xaxis: { ...axis, ...x }, yaxis: { ...axis, ...y }, ...more,
  };
}

function draw(id, traces, how, words) {
  at(id).setAttribute("aria-label", words);
  return Plotly.react(id, traces, how, { displayModeBar: false, responsive: true });
}

const scoreAxis = () => ({
  title: { text: metric().title + (metric().percent ? "" : " × 100") },
  ticksuffix: metric().percent ? " %" : "",
});

function drawCurves() {
  const x = (point) => view.cost === "cost" ? 100 * point.cost : point.mflops;
  const traces = curves().flatMap((curve, number) => {
    if (view.hidden.has(curve.label)) return [];
    const points = curve.points.map((index) => curve.result.points[index]);
    const trace = { x: points.map(x), y: points.map((point) => hundred(point.values[view.metric])), name: label(curve.label) };
    if (curve.front) {
      return [{ ...trace, mode: "lines", hoverinfo: "skip", line: { color: css("--front"), width: 11 } }];
    }
    const name = single() ? [] : [label(short(curve.label))];
    return [{
      ...trace, mode: "lines+markers", hoverinfo: "text",
      customdata: points.map((_, place) => [number, place]),
      hovertext: points.map((point) => [`<b>${label(point.policy)}</b>`, ...name, ...described(point, curve.result)].join("<br>")),
      line: curve.asked ? {} : { color: colour(curve.style), width: 2, dash: dash(curve.style) },
      marker: curve.asked ? { symbol: "star", size: 17, color: css("--ink"), line: { color: css("--paper"), width: 1.5 } }
        : { symbol: SYMBOLS[curve.style % SERIES], size: 8, color: colour(curve.style) },
    }];
  });
  const point = chosenPoint();
  if (point) {
    traces.push({ x: [x(point)], y: [hundred(point.values[view.metric])], mode: "markers", hoverinfo: "skip", name: "chosen",
      marker: { symbol: "circle-open", size: 18, color: css("--ink"), line: { width: 2 } } });
  }
  const cost = view.cost === "cost"
    ? { title: { text: "mean layers, share of all" }, ticksuffix: " %", range: [0, 103] }
    : { title: { text: "MFLOPs a row" }, rangemode: "tozero" };
  const one = group().results[0];
  draw("curve-chart", traces, layout(cost, scoreAxis(), single() ? fullDepth(one) : {}),
    `${metric().title} against cost, ${counted(traces.length - 1, "curve")}; the numbers are in the table of operating points`);
}

function fullDepth(result) {
  const y = hundred(result.exits.at(-1).values[view.metric]);
  if (y == null) return {};
  return {
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: css("--quiet"), width: 1.5, dash: "dash" }, layer: "below" }],
    annotations: [{ xref: "paper", x: 0.01, xanchor: "left", y, yanchor: "bottom", showarrow: false,
      text: `full depth ${score(y / 100)}`, font: { color: css("--quiet") } }],
  };
}

function drawExits() {
  const names = [...new Set(group().results.map((one) => one.name))];
  const traces = group().results.filter((one) => single() || !view.hidden.has(one.name)).map((one) => {
    const style = names.indexOf(one.name);
    return {
      x: one.exits.map((exit) => exit.layer), y: one.exits.map((exit) => hundred(exit.values[view.metric])),
      mode: "lines+markers", name: label(one.name), hoverinfo: "text",
      hovertext: one.exits.map((exit) => [`<b>layer ${exit.layer}</b>`, ...(single() ? [] : [label(short(one.name))]),
        ...group().metrics.map((of) => `${of.title} ${score(exit.values[of.name], of)}`), `${big(exit.mflops)} MFLOPs`].join("<br>")),
      line: { color: colour(style), width: 2, dash: dash(style) },
      marker: { symbol: SYMBOLS[style % SERIES], size: 8, color: colour(style) },
    };
  });
  draw("exits-chart", traces, layout(layerAxis("exit after layer"), scoreAxis()), `${metric().title} of each exit`);
}

function layerAxis(title) {
  const layers = group().results.flatMap((one) => one.exits.map((exit) => exit.layer));
  const [first, last] = [Math.min(...layers), Math.max(...layers)];
  return { title: { text: title }, range: [first - 0.7, last + 0.7], dtick: Math.ceil((last - first + 1) / 13) || 1, tick0: first };
}

function drawHistogram() {
  const point = chosenPoint(), curve = chosen();
  const exits = point ? point.exits : [];
  const rows = exits.reduce((sum, [, count]) => sum + count, 0) || 1;
  const parts = exits.map(([, count]) => count / rows);
  draw("histogram-chart", [{
    type: "bar", x: exits.map(([layer]) => layer), y: parts.map(hundred), hoverinfo: "text",
    text: parts.map((part) => part >= 0.005 ? (100 * part).toFixed(0) : ""), textposition: "outside", textangle: 0, cliponaxis: false,
    hovertext: exits.map(([layer, count]) => `<b>layer ${layer}</b><br>${counted(count, "row")}, ${share(count / rows)}`),
    marker: { color: point && curve.style != null ? colour(curve.style) : colour(0) },
  }], layout(layerAxis("layer after which a row leaves"), { ticksuffix: " %", rangemode: "tozero", title: { text: "rows" } }, { bargap: 0.25 }),
  point ? `Rows that leave after each layer under ${point.policy}: ${exits.map(([layer, count]) => `${layer}: ${count}`).join(", ")}` : "No point");
  at("selected").replaceChildren(...(point ? [element("strong", {}, point.policy),
    `${single() ? "" : ` (${curve.label})`}: ${described(point, curve.result).join(", ")}`] : ["This curve has no points."]));
}

// Text around the charts

function showHeader() {
  const results = group().results, first = results[0];
  at("kind").textContent = single() ? "Early-exit evaluation" : "Comparison of early-exit evaluations";
  at("heading").textContent = `${group().task} (${group().split})`;
  const layers = [...new Set(results.map((one) => counted(one.depth, "layer")))].join(" or ");
  at("about").textContent = [
    ...(single() ? new Set([first.name, first.model].filter(Boolean)) : [counted(results.length, "result")]), counted(first.rows, "row"), layers,
    ...(single() ? [counted(first.exits.length, "exit")] : []),
    ...(group().metrics.length === 1 ? ["no labels: agreement with full depth stands in for the score"] : []),
  ].join(" · ");
}

function showFigures() {
  const result = group().results[0], full = result.exits.at(-1), top = full.values[view.metric];
  const within = result.points[result.within[view.metric]], half = result.points[result.half[view.metric]];
  const card = (title, number, ...notes) => element("div", { class: "card" }, element("p", { class: "quiet" }, title),
    element("p", { class: "number" }, number), ...notes.map((note) => element("p", { class: "quiet" }, note)));
  const behind = (point) => { const gap = 100 * (point.values[view.metric] - top); return `${gap < 0 ? "−" : "+"}${Math.abs(gap).toFixed(1)} points`; };
  const cards = [card("Full depth", score(top), metric().title, `${counted(result.depth, "layer")}, ${big(full.mflops)} MFLOPs`)];
  cards.push(within
    ? card("Within 1 point of full depth", `${share(within.cost, 0)} of layers`, `${score(within.values[view.metric])}, speed-up ${times(within.speedUp)} in layers`, within.policy)
    : card("Within 1 point of full depth", "–", "no point of these sweeps"));
  cards.push(half
    ? card("With at most half of the layers (2×)", score(half.values[view.metric]), `${behind(half)}, ${share(half.cost, 0)} of layers`, half.policy)
    : card("With at most half of the layers (2×)", "–", "no point is that cheap"));
  const asked = result.points[result.asked];
  if (asked) cards.push(card("The point asked for", score(asked.values[view.metric]), `${behind(asked)}, ${share(asked.cost, 0)} of layers`, asked.policy));
  at("figures").replaceChildren(...(single() ? cards : []));
  at("figures").hidden = !single();
}

function showSummary() {
  at("summary-section").hidden = single();
  const names = [...new Set(group().results.map((one) => one.name))];
  const head = ["Name", "Recipe", "Full depth", "Area", "2×", "3×", "4×", "Cost at −1 point", "ELUE score", ...(gated().length ? ["FLOPs"] : [])];
  const rows = group().results.map((one) => {
    const numbers = one.figures[view.metric];
    const swatch = element("span", { class: "swatch", style: `background: var(--series-${names.indexOf(one.name) % SERIES})` });
    const cells = [one.recipe, ...["full_depth", "area", "score_2x", "score_3x", "score_4x"].map((key) => score(numbers[key])),
      share(numbers.cost_at_minus_1), numbers.elue == null ? "–" : numbers.elue.toFixed(2),
      ...(gated().length ? [share(one.gates && one.gates.ratio)] : [])];
    return element("tr", {}, element("th", { scope: "row", title: one.name }, swatch, short(one.name)), ...cells.map((cell, i) => element("td", i ? {} : { class: "text" }, cell)));
  });
  at("summary").replaceChildren(
    element("thead", {}, element("tr", {}, ...head.map((title, i) => element("th", { scope: "col", class: i === 1 && "text" }, title)))),
    element("tbody", {}, ...rows));
}

function showLegend() {
  const seen = new Set();
  at("legend").replaceChildren(...curves().filter((one) => !seen.has(one.label) && seen.add(one.label)).map((curve) => {
    const sample = curve.front ? "var(--front)" : curve.asked ? "var(--ink)" : `var(--series-${curve.style % SERIES})`;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [name, value] of [["width", 22], ["height", 10], ["aria-hidden", true]]) svg.setAttribute(name, value);
    const line = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "line"));
    const dashes = { solid: "none", dash: "6 3", dot: "2 2" }[curve.style == null ? "solid" : dash(curve.style)];
    const drawn = { x1: 0, x2: 22, y1: 5, y2: 5, "stroke-width": curve.front ? 9 : 3.5, "stroke-dasharray": dashes };
    for (const [name, value] of Object.entries(drawn)) line.setAttribute(name, value);
    line.style.stroke = sample;
    return element("button", { type: "button", "aria-pressed": String(!view.hidden.has(curve.label)), onclick: (event) => {
      if (!view.hidden.delete(curve.label)) view.hidden.add(curve.label);
      event.currentTarget.setAttribute("aria-pressed", String(!view.hidden.has(curve.label)));
      drawCurves();
      drawExits();
    } }, svg, curve.label);
  }));
}

function showSettings() {
  at("settings").replaceChildren(...group().results.flatMap((one) => [
    ...(single() ? [] : [element("h3", {}, one.name)]),
    element("dl", {}, ...[["model", one.model], ["rows", String(one.rows)], ...one.settings].flatMap(([name, value]) =>
      [element("dt", {}, name), element("dd", {}, value)])),
  ]));
}
