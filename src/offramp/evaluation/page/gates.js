// What gates keep

const gated = () => group().results.filter((one) => one.gates);
const kept = () => [0, 1, 2, 3, 4].map((step) => css(`--kept-${step}`));
const gflops = (number) => number < 100 ? String(Number(number.toPrecision(3))) : big(number);

function showGates() {
  const results = gated();
  at("gates").hidden = at("flops-word").hidden = at("flops-word").nextElementSibling.hidden = !results.length;
  if (!results.length) return;
  view.gates = Math.min(view.gates, results.length - 1);
  options("gates-of", results.map((one, number) => [number, one.name]), view.gates);
  at("gates-control").hidden = single();
  const gates = results[view.gates].gates;
  at("gates-words").textContent = `With its gates the model takes ${gflops(gates.dynamic_gflops)} GFLOPs for an input on average, `
    + `instead of ${gflops(gates.original_gflops)} with every head and neuron: ${share(gates.ratio)}. This is at full depth, each `
    + "input at its own length, by EBERT’s count, which includes the gates’ own predictors.";
  at("gates-deleted").hidden = ![...gates.head_rates, ...gates.neuron_rates].flat().includes(null);
  drawKept("gates-heads", gates.head_rates, gates.heads, "head", "heads", true);
  drawKept("gates-neurons", gates.neuron_rates, gates.neurons, "block of neurons", "neurons", false);
}

/** Where units of a layer are missing: [layer, first, how many], from 1. */
function deletedRuns(rates) {
  return rates.flatMap((row, layer) => row.flatMap((rate, unit) => {
    if (rate != null || row[unit - 1] === null) return [];
    const next = row.findIndex((other, place) => place > unit && other != null);
    return [[layer + 1, unit + 1, (next < 0 ? row.length : next) - unit]];
  }));
}

/** Percent in each cell where there is room, in the colour that stands out from the cell's. */
function cellNumbers(id, rates) {
  const size = Math.min(13, Math.floor((at(id).clientWidth - 50) / rates[0].length / 2.2));
  const cells = size < 8 ? [] : rates.flatMap((row, layer) => row.map((rate, unit) => ({ rate, x: unit + 1, y: layer + 1 })))
    .filter((cell) => cell.rate != null);
  return {
    mode: "text", x: cells.map((cell) => cell.x), y: cells.map((cell) => cell.y), text: cells.map((cell) => (100 * cell.rate).toFixed(0)),
    hoverinfo: "skip", textfont: { size, color: cells.map((cell) => css(cell.rate < 0.57 ? "--ink" : "--paper")) },
  };
}

function drawKept(id, rates, means, unit, units, numbered) {
  const numbers = (count) => Array.from({ length: count }, (_, place) => place + 1);
  const mean = (layer) => `layer ${layer} keeps ${share(means[layer - 1])} of its ${units}`;
  const runs = deletedRuns(rates);
  at(id).style.height = `${Math.max(190, 90 + 25 * rates.length)}px`;
  const colours = kept();
  const ticks = (count) => ({ tick0: 1, dtick: Math.ceil(count / 12), showgrid: false, ticks: "", range: [0.5, count + 0.5] });
  draw(id, [{
    type: "heatmap", x: numbers(rates[0].length), y: numbers(rates.length), z: rates.map((row) => row.map(hundred)),
    zmin: 0, zmax: 100, colorscale: colours.map((colour, step) => [step / (colours.length - 1), colour]), showscale: false,
    xgap: rates[0].length > 16 ? 0 : 1, ygap: 1, hoverinfo: "text", hoverongaps: false,
    hovertext: rates.map((row, layer) => row.map((rate, place) =>
      `<b>layer ${layer + 1}, ${unit} ${place + 1}</b><br>kept for ${share(rate)} of the inputs<br>${mean(layer + 1)}`)),
  }, {
    type: "bar", x: runs.map(([, first, count]) => first + (count - 1) / 2), y: runs.map(() => 1), base: runs.map(([layer]) => layer - 0.5),
    width: runs.map(([, , count]) => count), hoverinfo: "text",
    hovertext: runs.map(([layer, , count]) => `<b>layer ${layer}</b><br>${count} of ${rates[0].length} deleted by folding<br>${mean(layer)}`),
    marker: { color: "rgba(0,0,0,0)", pattern: { shape: "/", size: 6, fgcolor: css("--quiet"), solidity: 0.2 } },
  }, ...(numbered ? [cellNumbers(id, rates)] : [])], layout(
    { title: { text: unit }, ...ticks(rates[0].length) },
    { title: { text: "layer" }, ...ticks(rates.length), range: [rates.length + 0.5, 0.5] },
  ), `Share of inputs that keep each ${unit}, layer by layer: ${means.map((_, layer) => mean(layer + 1)).join("; ")}`);
}
