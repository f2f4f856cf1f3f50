// The exits, layer by layer: which were computed, where the text left, and what the ones after would have said.

import { at, brief, counted, element, share, sure } from "./words.js";

const STEP = 90, WHOLE = 1100; // milliseconds for a layer, and for all of them at most
const still = matchMedia("(prefers-reduced-motion: reduce)");

const cut = element("li", { class: "cut" }, "not computed; they would have said");

let rows = [];
let timer = 0;

/** One row for each exit, before anything was asked. */
export function prepareExits(about) {
  rows = about.exit_layers.map((layer) => {
    const parts = {
      said: element("span", { class: "said" }), sure: element("span", { class: "sure" }),
      fill: element("span", { class: "fill" }), mark: element("span", { class: "mark" }),
    };
    const track = element("span", { class: about.regression ? "track number" : "track", "aria-hidden": "true" }, parts.fill);
    const number = element("span", { class: "layer" }, element("span", { class: "unseen" }, "Layer "), String(layer));
    return { ...parts, row: element("li", {}, number, track, parts.said, parts.sure, parts.mark) };
  });
  at("exits").replaceChildren(...rows.map((one) => one.row));
  at("exits").classList.toggle("regression", about.regression);
  at("exits").classList.toggle("many", rows.length > 16);
  at("exits").style.setProperty("--letters", Math.min(16, Math.max(6, ...(about.info.labels || []).map((label) => label.length))));
  forget();
}

export function forget() {
  clearTimeout(timer);
  cut.remove();
  for (const one of rows) {
    one.row.dataset.state = "waiting";
    one.said.textContent = one.sure.textContent = one.mark.textContent = "";
    one.fill.style.setProperty("--part", 0);
  }
}

/** The rows as they are when the text leaves by `exit`; lit one after the other if `lighting`. Resolves when the last is lit. */
export function showExits(about, trace, exit, lighting) {
  clearTimeout(timer);
  const parts = partsOf(about, trace);
  const show = (number) => showRow(about, trace, exit, number, parts[number]);
  const end = () => { cut.remove(); if (exit < rows.length - 1) rows[exit].row.after(cut); };
  if (!lighting || still.matches) {
    rows.forEach((_, number) => show(number));
    end();
    return Promise.resolve();
  }
  forget();
  return new Promise((done) => {
    const light = (number) => {
      if (number <= exit) {
        show(number);
        timer = setTimeout(light, Math.min(STEP, WHOLE / (exit + 1)), number + 1);
      } else {
        rows.forEach((_, after) => after > exit && show(after));
        end();
        done();
      }
    };
    light(0);
  });
}

function showRow(about, trace, exit, number, part) {
  const one = rows[number], said = trace.exits[number];
  one.row.dataset.state = number < exit ? "passed" : number === exit ? "left" : "skipped";
  one.said.textContent = about.regression ? brief(said.label) : said.label;
  one.said.title = one.said.textContent;
  one.sure.textContent = about.regression ? "" : sure(said.confidence);
  one.mark.textContent = number === exit ? "left here" : "";
  one.fill.style.setProperty("--part", part);
}

/** How far each bar goes: the confidence, or a number's place between the smallest and the largest. */
function partsOf(about, trace) {
  if (!about.regression) return trace.exits.map((one) => one.confidence);
  const numbers = trace.exits.map((one) => one.label);
  const low = Math.min(...numbers), high = Math.max(...numbers);
  return numbers.map((number) => high > low ? (number - low) / (high - low) : 0.5);
}

export function saved(trace, exit) {
  const layer = trace.exits[exit].layer, depth = trace.exits.at(-1).layer;
  if (layer === depth) return `Left after the last of ${counted(depth, "layer")}: nothing saved.`;
  return `Left after layer ${layer} of ${depth}: ${counted(depth - layer, "layer")} saved, ${share(1 - layer / depth, 0)} of the work.`;
}
