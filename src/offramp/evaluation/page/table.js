// The table of operating points, the controls, and the start

function filters() {
  const results = group().results;
  const policies = [...new Set(results.flatMap((one) => one.sweeps.map((sweep) => sweep.name)))];
  return [
    ["all points, Pareto front first", () => true],
    [single() ? "Pareto front only" : "Pareto fronts only", (row) => row.front],
    ...policies.map((name) => [`policy ${name}`, (row) => row.sweep === name]),
    ...(single() ? [] : results.map((one) => [one.name, (row) => row.result === one])),
  ];
}

function tableRows() {
  return group().results.flatMap((result) => {
    const front = new Set(result.fronts[view.metric]);
    return result.sweeps.flatMap((sweep) => sweep.points.map((index) => ({
      result, index, sweep: sweep.name, point: result.points[index], front: front.has(index),
    })));
  });
}

const COLUMNS = () => [
  { key: "policy", title: "Policy", text: true, of: (row) => row.point.policy },
  ...(single() ? [] : [{ key: "name", title: "Name", text: true, of: (row) => row.result.name, shown: short }]),
  ...group().metrics.map((one) => ({
    key: `score ${one.name}`, title: one.name === "agreement" ? "agreement" : one.title, of: (row) => row.point.values[one.name],
    shown: (value) => score(value, one),
  })),
  { key: "cost", title: "Cost", of: (row) => row.point.cost, shown: (value) => share(value) },
  { key: "layers", title: "Layers", of: (row) => row.point.layers, shown: (value) => value.toFixed(2) },
  { key: "speed-up", title: "Speed-up", of: (row) => row.point.speedUp, shown: times },
  { key: "mflops", title: "MFLOPs", of: (row) => row.point.mflops, shown: big },
  { key: "front", title: "Pareto", of: (row) => Number(row.front), shown: (value) => value ? "front" : "" },
];

function ordered(rows) {
  const column = COLUMNS().find((one) => one.key === view.sort);
  if (!column) return rows.sort((a, b) => b.front - a.front || a.point.cost - b.point.cost);
  const before = (a, b) => column.text ? a.localeCompare(b, "en", { numeric: true }) : (a ?? -Infinity) - (b ?? -Infinity);
  return rows.sort((a, b) => (view.down ? -1 : 1) * before(column.of(a), column.of(b)));
}

const shownRows = new Map();  // from the element to its point

function showTable() {
  const columns = COLUMNS();
  const rows = ordered(tableRows().filter(filters()[view.filter][1]));
  const few = view.all ? rows : rows.slice(0, FEW_ROWS);
  const head = columns.map((column) => element("th", {
    scope: "col", class: column.text && "text", "aria-sort": view.sort === column.key && (view.down ? "descending" : "ascending"),
  }, element("button", { type: "button", id: `sort-${column.key}`, onclick: () => sortBy(column.key) }, column.title)));
  shownRows.clear();
  for (const row of few) shownRows.set(element("tr", {}, ...columns.map((column) => {
    const value = column.of(row);
    if (column.key !== "policy") return element("td", { class: column.text && "text", title: column.text && value }, column.shown ? column.shown(value) : value);
    return element("td", {}, element("button", { type: "button", onclick: () => selectRow(row) }, value));
  })), row.point);
  at("points").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...shownRows.keys()));
  markRow();
  at("more").hidden = rows.length <= FEW_ROWS;
  at("more").textContent = view.all ? `Show the first ${FEW_ROWS}` : `Show all ${rows.length}`;
}

function markRow() {
  const current = chosenPoint();
  for (const [row, point] of shownRows) row.classList.toggle("on", point === current);
}

function sortBy(key) {
  view.down = view.sort === key ? !view.down : false;
  view.sort = key;
  showTable();
  at(`sort-${key}`).focus();  // the button was made anew
}

/** Choose a table row's point on the curve it belongs to; several results may show only the front. */
function selectRow(row) {
  if (!single() && !row.front) {
    view.policy = at("policy").value = row.sweep;
    refresh();
    for (const [made, point] of shownRows) if (point === row.point) made.querySelector("button").focus();
  }
  const holds = (curve) => !curve.front && curve.result === row.result && curve.points.includes(row.index);
  const number = curves().findIndex(holds);
  if (number >= 0) select(number, curves()[number].points.indexOf(row.index));
}

function select(curve, place) {
  view.curve = curve;
  view.place = place;
  showChosen();
}

function showChosen() {
  const found = curves(), curve = found[view.curve];
  options("curve", found.map((one, number) => [number, one.label]), view.curve);
  const last = Math.max(0, curve.points.length - 1);
  const slider = at("slider");
  slider.max = last;
  slider.value = view.place = Math.min(view.place, last);
  slider.disabled = last === 0;
  const point = chosenPoint();
  slider.setAttribute("aria-valuetext", point ? `${point.policy}, ${score(point.values[view.metric])} at cost ${share(point.cost)}` : "none");
  drawCurves();
  drawHistogram();
  markRow();
}

/** Everything that follows the metric, the policy and the colours. */
function refresh() {
  showFigures();
  showSummary();
  showLegend();
  showChosen();
  drawExits();
  showGates();
  showTable();
}

/** Start on the point that was asked for, or on the cheapest within a point of full depth. */
function startingPoint() {
  const found = curves(), asked = found.findIndex((curve) => curve.asked);
  view.curve = Math.max(0, asked);
  const curve = found[view.curve];
  view.place = Math.max(0, curve.points.indexOf(curve.result.within[view.metric]));
}

function showGroup(number) {
  Object.assign(view, { group: number, metric: DATA.groups[number].metrics[0].name, policy: "", hidden: new Set(), gates: 0, filter: 0, sort: "", all: false });
  const policies = [...new Set(group().results.flatMap((one) => one.sweeps.map((sweep) => sweep.name)))];
  options("metric", group().metrics.map((one) => [one.name, one.title]), view.metric);
  options("policy", [["", "best of all (Pareto front)"], ...policies.map((name) => [name, name])], "");
  options("filter", filters().map(([title], i) => [i, title]), 0);
  at("policy-control").hidden = single();
  startingPoint();
  showHeader();
  showSettings();
  refresh();
}

const on = (id, event, act) => at(id).addEventListener(event, () => act(at(id).value));
on("group", "change", (value) => showGroup(Number(value)));
on("metric", "change", (value) => { view.metric = value; refresh(); });
on("cost", "change", (value) => { view.cost = value; drawCurves(); });
on("policy", "change", (value) => { view.policy = value; refresh(); });
on("curve", "change", (value) => select(Number(value), 0));
on("slider", "input", (value) => select(view.curve, Number(value)));
on("gates-of", "change", (value) => { view.gates = Number(value); showGates(); });
on("filter", "change", (value) => { view.filter = Number(value); view.all = false; showTable(); });
on("more", "click", () => { view.all = !view.all; showTable(); });
options("group", DATA.groups.map((one, i) => [i, `${one.task} (${one.split})`]), 0);
at("group-control").hidden = DATA.groups.length === 1;
showGroup(0);
at("curve-chart").on("plotly_click", (event) => select(...event.points[0].customdata));

// Charts do not read the page's style: they are drawn again when it turns dark or goes to paper.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
addEventListener("resize", showGates);  // the numbers in the cells need room
addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; at("settings-block").open = true; refresh(); });
addEventListener("afterprint", () => { delete document.documentElement.dataset.theme; refresh(); });
