"use strict";
// Hands texts to Python and shows what it answers: nothing is calculated here.
(function () {
  const {copy, show, theme} = window.perfmodelPage;
  const typing = 400, quiet = 250; // ms without a change, until a typed text is asked, and figures of many answers
  const at = (id) => document.getElementById(id), root = document.documentElement, form = at("question");
  const card = (view) => { at("headline").innerHTML = view.html; };
  let last = {}, number = 0, asked = 0, busy = false, timer = 0; // last texts answered; newest question, and the asked one

  const texts = () => Object.fromEntries([...form.elements].filter((each) => each.name).map((each) => [each.name, each.value]));

  async function post(name) {
    const body = JSON.stringify({said: texts(), name});
    try {
      const found = await fetch("/own/answer", {method: "POST", headers: {"Content-Type": "application/json"}, body});
      return found.ok ? found.json() : {error: "perfmodel explore: " + await found.text()};
    } catch (error) {
      return {error: "perfmodel explore does not run any more: " + error.message};
    }
  }

  // One question at a time: while it is answered, only the newest of the others waits.
  async function ask() {
    if (busy || asked === number) return;
    busy = true;
    asked = number;
    const own = asked, said = texts(), doc = await post("");
    busy = false;
    answered(doc, said, own);
    ask();
  }

  function changed() {
    number += 1;
    clearTimeout(timer);
    for (const each of [at("headline"), ...at("views").children]) each.classList.add("old");
    form.dataset.set = form.elements.model.value ? "yes" : "";
    form.dataset.all = form.elements.global_batch.value ? "yes" : "";
    ask();
  }

  form.addEventListener("input", ({target}) => {
    clearTimeout(timer);
    const slider = form.querySelector(`[data-of="${target.name || target.dataset.of}"]`), stops = JSON.parse(slider?.dataset.stops || "[]");
    if (target === slider) form.elements[slider.dataset.of].value = stops[slider.value];
    else if (stops.includes(target.value || target.placeholder)) slider.value = stops.indexOf(target.value || target.placeholder);
    if (target.type === "text") timer = setTimeout(changed, typing); else changed();
  });
  form.addEventListener("submit", (event) => event.preventDefault());

  // The controls that an error is about, and those that were changed since the last answer.
  function mark(doc, said) {
    for (const field of document.querySelectorAll(".field")) {
      const box = field.querySelector("[name]"), changed = (last[box.name] || "") !== said[box.name];
      const wrong = Boolean(doc.error) && (changed || (doc.wrong || []).includes(box.name));
      box.setAttribute("aria-invalid", String(wrong));
      box.setAttribute("aria-describedby", wrong ? "refused" : "");
      if (doc.error) continue;
      field.firstChild.dataset.own = doc.own[box.name] || "";
      const slider = field.querySelector("[type=range]"); // of an empty box: at the value that applies
      if (slider && !box.value && slider !== document.activeElement) slider.value = doc.knobs[box.name] ?? slider.value;
    }
  }

  function answered(doc, said, own) {
    root.dataset.number = own;
    root.dataset.ready = "yes";
    if (own !== number) return;
    at("refused").textContent = doc.error || "";
    at("headline").classList.toggle("old", Boolean(doc.error));
    mark(doc, said);
    if (doc.error) return;
    last = said;
    card(doc.view);
    at("command").textContent = doc.command;
    history.replaceState(null, "", "/?" + doc.search);
    at("save").href = "/report.html?" + doc.search;
    requestAnimationFrame(() => setTimeout(async () => { // the card is painted first
      for (const block of doc.blocks) await draw(block, own);
      root.dataset.drawn = own;
    }));
    root.dataset.later = "waiting";
    timer = setTimeout(() => later(doc.later, own), quiet);
  }

  // One after the other; the rest is left out when something else is asked.
  async function later(names, own) {
    for (const name of names) {
      const block = await post(name);
      if (own !== number) return;
      if (block.view) card(block.view);
      else if (!block.error) await draw(block, own);
    }
    root.dataset.later = "yes";
  }

  async function draw(block, own) {
    if (own !== number) return;
    await show(at("views"), block);
    if (own === number) at("block-" + block.name).classList.remove("old");
  }

  at("copy-command").addEventListener("click", ({target}) => copy(at("command").textContent, target));
  theme();
  changed();
})();
