// Numbers as people read them, and elements. Texts and names come from users: they reach the page as text only.

export const at = (id) => document.getElementById(id);

export function element(tag, settings = {}, ...children) {
  const made = tag === "svg" || settings.svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (name !== "svg" && value != null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Text in its place, or nothing there at all. */
export function say(id, words) {
  if (at(id).textContent !== (words || "")) at(id).textContent = words || "";
  at(id).hidden = !words;
}

export const known = (number) => typeof number === "number" && Number.isFinite(number);
export const share = (number, digits = 1) => known(number) ? `${(100 * number).toFixed(digits)}\u00a0%` : "–";
/** A probability: what is not certain is not 100 %. */
export const sure = (number) => number < 1 && number >= 0.9995 ? ">99.9\u00a0%" : share(number);
/** As many digits as were promised: 1 %, 0.5 %. */
export const percent = (number) => `${Number((100 * number).toPrecision(3))}\u00a0%`;
export const times = (number) => known(number) ? `${number.toFixed(number < 10 ? 1 : 0)}×` : "–";
export const big = (number) => known(number) ? number.toLocaleString("en", { maximumFractionDigits: number < 100 ? 1 : 0 }) : "–";
export const counted = (number, word) => `${big(number)}\u00a0${word}${number === 1 ? "" : "s"}`;
export const brief = (number) => known(number) ? String(Number(number.toPrecision(3))) : "–";
export const milliseconds = (number) => `${number < 10 ? number.toFixed(1) : big(Math.round(number))}\u00a0ms`;
