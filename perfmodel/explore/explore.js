"use strict";
// Hands texts to Python and shows what it answers: nothing is calculated here.
(function () {
  const {card, copy, plot, show, theme} = window.perfmodelPage;
  const visit = crypto.getRandomValues(new Uint32Array(4)).join("-");
  const quiet = 250; // ms without a change, after which the figures of many answers are asked for
  const none = () => window.dash_clientside.no_update;
  const at = (id) => document.getElementById(id);
  const root = document.documentElement;
  let said = {}, file = null, pinned = null, last = null; // what is said now; the last answer
  let number = 0, asked = 0, busy = false, timer = 0; // of the newest question, and of the one that is answered

  async function post(kind, question) {
    const body = JSON.stringify({said, file, visit, pinned: pinned && pinned.search, ...question});
    const found = await fetch("/own/" + kind, {method: "POST", headers: {"Content-Type": "application/json"}, body});
    return found.ok ? found.json() : {error: "perfmodel explore did not answer (" + found.status + ")."};
  }

  // One question at a time: while it is answered, only the newest of the others waits.
  async function ask() {
    if (busy || asked === number) return;
    busy = true;
    asked = number;
    const own = asked, texts = said;
    let doc;
    try {
      doc = await post("answer");
    } catch (error) {
      doc = {error: "perfmodel explore does not run any more: " + error.message};
    }
    busy = false;
    answered({...doc, said: texts}, own);
    ask();
  }

  function changed() {
    number += 1;
    clearTimeout(timer);
    ask();
  }

  function say(texts, dropped) {
    const same = dropped === file && key(texts) === key(said), lacking = dropped !== file && pinned?.error;
    said = texts;
    file = dropped;
    if (lacking) recover();
    at("question").dataset.set = said.model ? "yes" : "";
    at("question").dataset.all = said.global_batch ? "yes" : "";
    if (!same || !number) changed();
  }

  // A pinned question about a file is answered once the file is dropped.
  async function recover() {
    const doc = await post("answer", {said: Object.fromEntries(new URLSearchParams(pinned.search)), pinned: null});
    if (!doc.error) keep(doc);
  }

  const key = (texts) => JSON.stringify(Object.entries(texts).filter(([, text]) => text).sort());

  function gather(values, given, filled, ids) {
    if (values.length) say(Object.fromEntries(ids.map((id, i) => [id.name, values[i]])), given || null);
  }

  // What a slider says is asked before Dash has drawn it and has told it to all others.
  function step(slider, text, stops) {
    const id = window.dash_clientside.callback_context.triggered_id, before = text || "";
    if (id.type !== "slider") return place(id.name, before, slider, stops);
    if (stops[slider] === before) return [none(), none()];
    say({...said, [id.name]: stops[slider]}, file);
    return [stops[slider], none()];
  }

  // The knob for a typed text: Python knows which stop is nearest.
  async function place(name, text, slider, stops) {
    const own = stops.indexOf(text), at = own < 0 ? (await post("stop", {name, said: {[name]: text}})).at : own;
    return [none(), at === undefined || at === slider ? none() : at];
  }

  function address(search) {
    history.replaceState(null, "", (search || location.pathname) + (pinned ? "#" + pinned.search.slice(1) : ""));
  }

  // Sliders and lists come after the rest of the page; each is named by its label.
  function named() {
    if (!document.querySelector(".field [role=slider]") || !document.querySelector(".field .dash-dropdown")) {
      return requestAnimationFrame(named);
    }
    for (const each of document.querySelectorAll(".field :is(input, button, [role=slider]):not([aria-label])")) {
      each.setAttribute("aria-label", each.closest(".field").firstChild.textContent);
    }
    root.dataset.ready = "yes";
  }

  // The controls that an error is about, and those that were changed since the last answer.
  function mark(doc) {
    for (const field of document.querySelectorAll(".field")) {
      const name = field.id.slice("field-".length), box = field.querySelector("input, button");
      const changed = last && (last.said[name] || "") !== (said[name] || "");
      const wrong = Boolean(doc.error) && (changed || (doc.wrong || []).includes(name));
      box?.setAttribute("aria-invalid", String(wrong));
      box?.setAttribute("aria-describedby", wrong ? "refused" : "");
    }
  }

  function answered(doc, own) {
    at("refused").textContent = doc.error || "";
    at("refused").className = doc.error ? "alert" : "";
    at("cards").classList.toggle("old", Boolean(doc.error));
    for (const each of at("views").children) each.classList.add("old");
    at("short").textContent = doc.error || doc.view.heads[0].sentence;
    at("short").className = doc.error ? "alert" : "";
    mark(doc);
    root.dataset.number = own;
    if (!root.dataset.ready) { theme(); named(); }
    if (doc.error) return;
    last = doc;
    card(doc.view);
    for (const field of document.querySelectorAll(".field")) {
      field.firstChild.dataset.own = doc.own[field.id.slice("field-".length)] || "";
    }
    at("against").textContent = doc.against;
    at("command").textContent = doc.command;
    requestAnimationFrame(() => setTimeout(async () => { // the card is painted first
      if (own !== number) return;
      address(doc.search);
      for (const block of doc.blocks) await draw(block, own);
      root.dataset.drawn = own;
    }));
    if (own !== number) return;
    root.dataset.later = "waiting";
    timer = setTimeout(() => later(doc.later, own), quiet);
  }

  // One after the other; the rest is left out when something else is asked.
  async function later(names, own) {
    for (const name of names) {
      const block = await post("figure", {name});
      if (own !== number) return;
      if (block.view) card(block.view);
      else if (!block.error) await draw(block, own);
    }
    root.dataset.later = "yes";
  }

  // A figure is "old" from the next answer on until it is drawn for it.
  async function draw(block, own) {
    await show(at("views"), block, plot);
    if (own === number) at("block-" + block.name).classList.remove("old");
  }

  function keep(doc) {
    pinned = doc || null;
    if (pinned?.view) card(pinned.view, at("pinned-card")); else at("pinned-card").textContent = pinned?.error || "";
    at("pin").textContent = pinned ? "Unpin" : "Pin";
    if (number) changed();
  }

  const pressed = {
    "pin": () => keep(pinned ? null : last),
    "copy-link": (button) => copy(location.href, button),
    "copy-command": (button) => copy(at("command").textContent, button),
  };
  document.addEventListener("click", (event) => pressed[event.target.id]?.(event.target));

  // A file that Python would refuse for its size is not sent.
  function tooLarge(event) {
    const dropped = (event.dataTransfer || event.target).files?.[0], most = at("question")?.dataset.mostBytes;
    if (!dropped || !event.target.closest?.("#upload") || dropped.size <= Number(most)) return;
    event.stopPropagation();
    event.preventDefault();
    const words = dropped.name + " is too large: at most " + most + " bytes can be dropped.";
    window.dash_clientside.set_props("file-words", {children: words});
  }
  for (const kind of ["change", "drop"]) document.addEventListener(kind, tooLarge, true);

  window.dash_clientside = Object.assign({}, window.dash_clientside, {explore: {gather, step, keep}});
})();
