// The page: ask, show, and keep what is shown in step with the slider.

import { noAnswer, showAnswer } from "./answer.js";
import { forget, prepareExits, showExits } from "./exits.js";
import { watchServer } from "./live.js";
import { preparePoints, showPoint } from "./points.js";
import { ask, key } from "./server.js";
import { at, counted, say } from "./words.js";

const view = { about: null, trace: null, place: 0, asking: null };
const wantsKey = document.body.dataset.key === "wanted";

// Opening

async function open() {
  clearTimeout(view.again);
  const opening = view.opening = {}; // with a new key it may be opened while it is being opened: the last one counts
  if (wantsKey && !key.get()) return wantKey();
  let about;
  try {
    about = await ask("page/about");
  } catch (error) {
    if (view.opening !== opening) return undefined;
    if (isAboutKey(error)) return wantKey(error.message);
    say("trouble", `${error.message} Trying again …`);
    view.again = setTimeout(open, 2000);
    return undefined;
  }
  if (view.opening !== opening) return undefined;
  view.about = about;
  say("trouble", "");
  at("key-form").hidden = true;
  show(view.about);
  return undefined;
}

const isAboutKey = (error) => error.status === 401 || error.status === 403;

function wantKey(words) {
  say("trouble", words);
  if (!at("key-form").hidden && view.about) return; // it is there already, and somebody may be typing elsewhere
  at("key-form").hidden = false;
  at("key").focus();
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(at("key").value.trim());
  at("key").value = "";
  if (!view.about) open();
  else { at("key-form").hidden = true; say("trouble", ""); view.look(); }
});

function show(about) {
  const { info } = about;
  document.title = `${info.name} · offramp`;
  at("name").textContent = info.name;
  at("about").textContent = describe(about);
  at("shown").hidden = false;
  at("second-part").hidden = about.pair !== true;
  at("add-second").hidden = about.pair !== null;
  at("text-label").textContent = about.pair ? "First text" : "Text";
  view.place = about.default;
  prepareExits(about);
  preparePoints(about, view.place, moved);
  showPoint(about, view.place);
  noAnswer();
  view.look = watchServer(about, { up: serverUp, down: serverDown });
  at("text").focus({ preventScroll: true });
}

function describe(about) {
  const { info } = about;
  const asked = about.regression ? "answers with a number" : counted(info.labels.length, "label");
  return [info.family, counted(info.layers, "layer"), asked, [info.device, info.precision, info.backend].filter(Boolean).join(", "), `offramp ${info.version}`]
    .filter(Boolean).join(" · ");
}

// Asking

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});

for (const field of ["text", "second"]) {
  at(field).addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
}

at("add-second").addEventListener("click", () => {
  const adding = at("second-part").hidden;
  at("second-part").hidden = !adding;
  at("add-second").textContent = adding ? "One text only" : "Add a second text";
  at("add-second").setAttribute("aria-expanded", String(adding));
  at("text-label").textContent = adding ? "First text" : "Text";
  if (adding) at("second").focus();
});

function typed() {
  const pair = !at("second-part").hidden;
  const empty = ["text", ...(pair ? ["second"] : [])].find((field) => !at(field).value.trim());
  if (empty) {
    say("refused", empty === "text" ? "Type a text first." : "Type the second text, too.");
    at(empty).focus();
    return null;
  }
  return { text: at("text").value, ...(pair ? { second: at("second").value } : {}), point: view.place };
}

async function send() {
  const body = typed();
  if (!body) return;
  view.asking?.abort(); // the newest text is the one that counts
  const asking = view.asking = new AbortController();
  view.trace = view.lit = null; // what still lights up is the answer to another text
  forget();
  busy(true);
  at("answer-card").classList.add("old");
  say("refused", "");
  try {
    const trace = await ask("page/trace", body, asking.signal);
    if (view.asking !== asking) return;
    view.trace = trace;
    showTrace(true);
  } catch (error) {
    if (view.asking !== asking) return;
    noAnswer();
    at("answer-card").classList.remove("old");
    if (isAboutKey(error)) wantKey(error.message);
    else say("refused", error.message);
  } finally {
    if (view.asking === asking) busy(false);
  }
}

function busy(now) {
  at("send").textContent = now ? "Answering …" : "Answer";
  at("answer-card").setAttribute("aria-busy", String(now));
}

// Showing

async function showTrace(lighting) {
  const { about, trace } = view;
  const lit = view.lit = showExits(about, trace, trace.leaves[view.place], lighting);
  await lit;
  if (view.lit !== lit) return;
  showAnswer(about, trace, view.place);
  at("answer-card").classList.remove("old");
}

function moved(place) {
  view.place = place;
  showPoint(view.about, place);
  if (view.trace) showTrace(false);
}

function serverUp() {
  say("trouble", "");
  at("live-state").textContent = "live";
  at("live").classList.remove("stale");
}

function serverDown(error) {
  at("live-state").textContent = "not connected";
  at("live").classList.add("stale");
  if (isAboutKey(error)) wantKey(error.message);
  else say("trouble", `${error.message} The figures below are the last ones seen; trying again …`);
}

open();
