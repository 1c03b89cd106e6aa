"use strict";
// Hands texts to Python and shows what it answers: nothing is calculated here.
(function () {
  const {card, copy, plot, show, theme} = window.perfmodelPage;
  const visit = crypto.getRandomValues(new Uint32Array(4)).join("-");
  const quiet = 250; // ms without a change, after which the figures of many answers are asked for
  const none = () => window.dash_clientside.no_update;
  const at = (id) => document.getElementById(id);
  let wanted = null, asked = null, number = 0, timer = 0, pinned = null;

  // One question at a time: while it is answered, only the newest of the others waits.
  function ask() {
    if (asked || !wanted) return;
    asked = wanted;
    wanted = null;
    window.dash_clientside.set_props("wanted", {data: asked});
  }

  function address(doc) {
    history.replaceState(null, "", (doc.search || location.pathname) + (pinned ? "#" + pinned.search.slice(1) : ""));
  }

  function gather(values, ids) {
    if (!values.length) return;
    const said = {};
    ids.forEach((id, i) => { if (values[i]) said[id.name] = values[i]; });
    at("question").dataset.set = said.model ? "yes" : "";
    at("question").dataset.all = said.global_batch ? "yes" : "";
    wanted = {said, visit, number: ++number};
    clearTimeout(timer);
    ask();
  }

  function step(slider, text, stops) {
    const moved = window.dash_clientside.callback_context.triggered_id.type === "slider";
    if (moved) return stops[slider] === (text || "") ? [none(), none()] : [stops[slider], none()];
    const place = stops.indexOf(text || "");
    return [none(), place < 0 || place === slider ? none() : place];
  }

  // Sliders and lists come after the rest of the page; each is named by its label.
  function named() {
    if (!document.querySelector(".field [role=slider]") || !document.querySelector(".field .dash-dropdown")) {
      return requestAnimationFrame(named);
    }
    for (const each of document.querySelectorAll(".field :is(input, button, [role=slider]):not([aria-label])")) {
      each.setAttribute("aria-label", each.closest(".field").firstChild.textContent);
    }
    document.documentElement.dataset.ready = "yes";
  }

  function answered(doc) {
    const last = asked;
    asked = null;
    if (!at("theme").dataset.on) { at("theme").dataset.on = "yes"; theme(); }
    at("refused").textContent = doc.error || "";
    at("refused").className = doc.error ? "alert" : "";
    at("cards").classList.toggle("old", Boolean(doc.error));
    if (!doc.error) {
      card(doc.view);
      at("short").textContent = doc.view.heads[0].sentence;
      requestAnimationFrame(() => setTimeout(() => { // the card is painted first
        if (doc.number === number) for (const block of doc.blocks) show(at("views"), block, plot);
      }));
      at("against").textContent = doc.against;
      at("command").textContent = doc.command;
      address(doc);
    }
    const root = document.documentElement;
    root.dataset.number = doc.number;
    named();
    if (wanted) return ask();
    if (last && !doc.error) {
      root.dataset.later = "waiting";
      waiting.clear();
      timer = setTimeout(() => window.dash_clientside.set_props("settled", {data: last}), quiet);
    }
  }

  const waiting = new Set();
  function drawn(block) {
    if (!block) return;
    show(at("views"), block, plot).then(() => {
      waiting.add(block.name);
      document.documentElement.dataset.later = [...waiting].sort().join(" ");
    });
  }

  function pin(clicks, doc, old) {
    return old ? null : doc && !doc.error ? doc : none();
  }

  function pinnedNow(doc) {
    pinned = doc || null;
    const home = at("pinned-card");
    if (pinned && pinned.view) card(pinned.view, home); else home.replaceChildren();
    at("pin").textContent = pinned ? "Unpin" : "Pin";
    at("against").textContent = "";
    if (document.documentElement.dataset.ready) {
      address({search: location.search});
      if (asked || number) { wanted = wanted || lastAsked; ask(); }
    }
  }

  // A file that Python would refuse for its size is not sent.
  function tooLarge(event) {
    const file = (event.dataTransfer || event.target).files?.[0], home = event.target.closest?.("#upload");
    if (!home || !file || file.size <= Number(at("question").dataset.mostBytes)) return;
    event.stopPropagation();
    event.preventDefault();
    const words = file.name + " is too large: at most " + at("question").dataset.mostBytes + " bytes can be dropped.";
    window.dash_clientside.set_props("file-words", {children: words});
  }
  for (const kind of ["change", "drop"]) document.addEventListener(kind, tooLarge, true);

  let lastAsked = null;
  function copied() {
    const id = window.dash_clientside.callback_context.triggered_id;
    copy(id === "copy-link" ? location.href : at("command").textContent, at(id));
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {explore: {
    gather: (values, file, filled, ids) => { gather(values, ids); lastAsked = wanted || asked || lastAsked; },
    step, answered, drawn, pin, pinned: pinnedNow, copied,
  }});
})();
