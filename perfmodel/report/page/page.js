"use strict";
// Shows what Python computed: every number, sentence and figure is in the data; nothing is calculated here.
(function () {
  const held = document.getElementById("data"); // a live page has none: it hands over what Python answers
  const data = held ? JSON.parse(held.textContent) : {selectors: []};
  const config = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", // nothing leaves the page
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };
  const chosen = data.selectors.map((selector) => selector.start);
  const switched = {}, isolated = {}, picked = {};
  const waiting = new Map(); // figures that are drawn when they come near
  const plotted = new Map(); // figures that are drawn
  const paper = 820; // pixels of a figure that is printed: shrunk to the paper, its words are still read
  let printing = false;
  const narrowWindow = matchMedia("(max-width: 40rem)");
  const dashes = {dash: "6 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3"};

  const glyphs = {
    circle: "●", square: "■", diamond: "◆", "triangle-up": "▲", "triangle-down": "▼", x: "✖", cross: "✚", star: "★", "star-diamond": "✦",
  };

  // Of bars, in a square of 12 pixels at 9: as plotly.js hatches them.
  const hatches = {"/": "M9 8 17 0M13 12 21 4", "\\": "M9 4 17 12M13 0 21 8", "-": "M9 3H21M9 9H21", "|": "M12 0V12M18 0V12"};
  hatches.x = hatches["/"] + hatches["\\"];
  hatches["+"] = hatches["-"] + hatches["|"];

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    for (const child of children) made.append(child);
    return made;
  }

  function button(words, act) {
    const made = element("button", {type: "button"}, words);
    made.addEventListener("click", () => act(made));
    return made;
  }

  function csv(block) {
    const cell = (value) => {
      let text = value === null ? "" : String(value);
      const formula = /^[=@\t\r]/.test(text) || /^[+-].*[=|(!]/.test(text);  // a spreadsheet would run it
      if (typeof value === "string" && formula) text = "'" + text;
      return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [block.columns, ...block.rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  function save(name, kind, text) {
    const link = element("a", {download: name, href: URL.createObjectURL(new Blob([text], {type: kind}))});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async function copy(text, pressed) {
    const words = pressed.textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = element("textarea", {"aria-hidden": "true"});
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    pressed.textContent = done ? "Copied" : "Not allowed here";
    setTimeout(() => { pressed.textContent = words; }, 1500);
  }

  function written(value) {
    if (value === null) return "";
    return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(6))) : String(value);
  }

  function table(block) {
    const head = element("tr", {}, ...block.columns.map((name) => element("th", {scope: "col"}, name)));
    const rows = block.rows.map((row) => element("tr", {}, ...row.map((value) => element("td", {}, written(value)))));
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  }

  async function library() {
    if (!("DecompressionStream" in window)) throw new Error("this browser is too old for the figures: they need one of 2023 or newer (DecompressionStream). All numbers are in the download below");
    const text = atob(document.getElementById("plotly").textContent), packed = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) packed[at] = text.charCodeAt(at);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = element("script", {}, await new Response(stream).text());
    document.head.append(script);
    script.remove();
  }

  function section(parent, name) {
    const id = "block-" + name;
    return document.getElementById(id) || parent.appendChild(element("section", {id}));
  }

  function drawn(block) {
    const figure = structuredClone(block.figure);
    const choice = block.switches[switched[block.name] || 0];
    if (choice) {
      Object.assign(figure.layout, structuredClone(choice.layout));
      for (const [key, value] of Object.entries(choice.traces)) {
        figure.data.forEach((trace, at) => { trace[key] = Array.isArray(value) ? value[at] : value; });
      }
    }
    const narrow = (figure.layout.meta || {}).narrow; // how it is laid out on a phone, where that is another way
    if (narrow && narrowWindow.matches) {
      for (const [key, value] of Object.entries(narrow)) {
        figure.layout[key] = typeof value === "object" ? {...figure.layout[key], ...value} : value;
      }
    }
    return figure;
  }

  const near = new IntersectionObserver((seen) => {
    for (const each of seen) if (each.isIntersecting && waiting.has(each.target)) plot(each.target, waiting.get(each.target));
  }, {rootMargin: "600px"});

  function plotLater(place, block) {
    waiting.set(place, block);
    place.style.minHeight = block.figure.layout.height + "px";
    near.observe(place);
  }

  // Drawn for paper, and given a view that the style shrinks to it (page.css).
  async function onPaper() {
    printing = true;
    await Promise.all([...waiting, ...plotted].map(([place, block]) => plot(place, block)));
  }

  function shrinkable(place) {
    const {width, height} = place._fullLayout;
    for (const drawing of place.querySelectorAll(".main-svg")) drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    place.querySelector(".svg-container").style.aspectRatio = `${width} / ${height}`;
  }

  async function onScreen() {
    printing = false;
    for (const [place, block] of plotted) {
      place.querySelectorAll(".main-svg").forEach((drawing) => drawing.removeAttribute("viewBox"));
      await plot(place, block);
    }
  }

  // What does not fit is scrolled by the arrow keys, and says so (page.css).
  function reach(wide, words) {
    if (wide.scrollWidth <= wide.clientWidth) {
      for (const name of ["tabindex", "role", "aria-label"]) wide.removeAttribute(name);
      return;
    }
    wide.tabIndex = 0;
    wide.setAttribute("role", "region");
    wide.setAttribute("aria-label", "Scrolls sideways: " + words);
  }

  async function plot(place, block) {
    waiting.delete(place);
    plotted.set(place, block);
    near.unobserve(place);
    const figure = drawn(block);
    figure.layout.showlegend = false;
    const only = isolated[block.name];
    if (only !== undefined) {
      figure.data.forEach((trace) => { trace.visible = seriesOf(trace) === only; });
      figure.layout.annotations = (figure.layout.annotations || []).filter((words) => !words.name || words.name === only);
    }
    const least = (figure.layout.meta || {}).min_width || 0;
    place.style.minWidth = least + "px";
    if (printing) figure.layout.width = Math.max(least, paper);
    const done = Plotly.react(place, figure.data, figure.layout, config);
    if (printing) shrinkable(place); // before the browser lays out the paper, which waits for no promise
    await done;
    reach(place.parentElement, place.getAttribute("aria-label"));
  }

  function entitle(place, title) {
    place.setAttribute("aria-label", title);
    place.closest("section").querySelector("h2").textContent = title;
  }

  function switches(block, place) {
    const group = element("div", {role: "group", "aria-label": "How the figure is drawn"});
    block.switches.forEach((choice, at) => {
      const one = button(choice.label, () => {
        switched[block.name] = at;
        if (choice.title) entitle(place, choice.title);
        [...group.children].forEach((each, i) => each.setAttribute("aria-pressed", String(i === at)));
        plot(place, block);
      });
      one.setAttribute("aria-pressed", String(at === (switched[block.name] || 0)));
      group.append(one);
    });
    return group;
  }

  // Names in a figure are as plotly.js reads them, where < & > are written out.
  const plain = (name) => name.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
  const seriesOf = (trace) => trace.legendgroup || trace.name || "";

  function swatch(trace) {
    const space = "http://www.w3.org/2000/svg", line = trace.line || {}, marker = trace.marker || {};
    const made = document.createElementNS(space, "svg");
    for (const [name, value] of Object.entries({width: 30, height: 12, "aria-hidden": "true"})) made.setAttribute(name, value);
    const lines = (trace.mode || "").includes("lines"), colour = typeof marker.color === "string" ? marker.color : "currentColor";
    const glyph = (trace.mode || "").includes("markers") && glyphs[marker.symbol || "circle"];
    const draw = (kind, shape, words = "") => {
      const mark = document.createElementNS(space, kind);
      for (const [name, value] of Object.entries(shape)) mark.setAttribute(name, value);
      mark.textContent = words;
      made.append(mark);
    };
    if (lines) draw("line", {x1: 0, x2: 30, y1: 6, y2: 6, stroke: line.color, "stroke-width": 3, "stroke-dasharray": dashes[line.dash] || ""});
    if (glyph) draw("text", {x: 15, y: 11, "text-anchor": "middle", "font-size": 14, fill: colour}, glyph);
    const bar = !lines && !glyph, pattern = (bar && marker.pattern) || {};
    if (bar) draw("rect", {x: 9, width: 12, height: 12, fill: colour});
    if (hatches[pattern.shape]) draw("path", {d: hatches[pattern.shape], stroke: pattern.fgcolor, "stroke-width": 1.6});
    return made;
  }

  function legend(block, place) {
    const shown = block.figure.data.filter((trace) => trace.showlegend !== false && trace.name && trace.type !== "heatmap");
    const group = element("div", {class: "legend", role: "group", "aria-label": "Series: press one to see it alone"});
    if (shown.length < 2 || block.figure.layout.showlegend === false) return group;
    if (!shown.some((trace) => seriesOf(trace) === isolated[block.name])) delete isolated[block.name];
    for (const trace of shown) {
      const name = seriesOf(trace);
      const one = button("", () => {
        if (isolated[block.name] === name) delete isolated[block.name]; else isolated[block.name] = name;
        [...group.children].forEach((each) => each.setAttribute("aria-pressed", String(each === one && isolated[block.name] === name)));
        plot(place, block);
      });
      one.append(swatch(trace), plain(trace.name));
      one.setAttribute("aria-pressed", String(isolated[block.name] === name));
      group.append(one);
    }
    return group;
  }

  // Of a figure that there is of several things: which of them is shown.
  function choices(parent, block, all) {
    const list = element("select", {"aria-label": "What the figure is of"});
    all.forEach((one, at) => list.append(element("option", {value: at}, one.choice)));
    list.value = picked[block.name] || 0;
    list.addEventListener("change", async () => {
      picked[block.name] = Number(list.value);
      await show(parent, block, plot);
      section(parent, block.name).querySelector(".tools select").focus();
    });
    return list;
  }

  async function show(parent, whole, draw, title) {
    const home = section(parent, whole.name), all = [whole, ...(whole.others || [])];
    const block = all[picked[whole.name] || 0] || whole;
    if (block.missing !== undefined) {
      home.replaceChildren(element("p", {class: "missing"}, "Left out: " + block.name + ": " + block.missing));
      return;
    }
    title = (block.switches[switched[block.name] || 0] || {}).title || title || block.title;
    const open = home.querySelector("details")?.open;
    const place = home.querySelector(".plot") || element("div", {class: "plot", role: "img"});
    place.setAttribute("aria-label", title);
    const numbers = element("div", {class: "wide"});
    const details = element("details", {}, element("summary", {}, "Numbers of this figure (" + block.rows.length + " rows)"), numbers);
    details.addEventListener("toggle", () => {
      if (details.open && !numbers.firstChild) numbers.append(table(block));
      reach(numbers, "numbers of this figure");
    });
    const file = all.length > 1 ? block.name + "-" + block.choice.replaceAll(" ", "-") : block.name;
    const tools = element("div", {class: "tools"},
      ...(all.length > 1 ? [choices(parent, whole, all)] : []),
      switches(block, place),
      button("Copy CSV", (pressed) => copy(csv(block), pressed)),
      button("Save CSV", () => save(file + ".csv", "text/csv", csv(block))),
      button("Save JSON", () => save(file + ".json", "application/json", JSON.stringify({columns: block.columns, rows: block.rows}, null, 1))));
    home.replaceChildren(
      element("h2", {}, title), element("p", {class: "how"}, block.how), tools,
      legend(block, place), element("div", {class: "wide"}, place), element("p", {class: "source"}, block.source), details);
    details.open = Boolean(open);
    await draw(place, block);
  }

  function card(view, home = document.getElementById("headline")) {
    const head = view.heads[chosen[0] || 0];
    const bar = element("div", {class: "evidence", role: "img", "aria-label": "Evidence of the time: " + head.evidence.map((part) => part.words).join(", ")});
    const key = element("ul", {class: "key"});
    for (const part of head.evidence) {
      const piece = element("span", {title: part.words});
      piece.style.flexGrow = part.share;
      piece.style.background = part.colour;
      bar.append(piece);
      const dot = element("i", {"aria-hidden": "true"});
      dot.style.background = part.colour;
      key.append(element("li", {}, dot, part.words));
    }
    home.replaceChildren(element("h1", {}, head.sentence), element("p", {class: "times"}, head.times));
    if (head.sure) home.append(element("p", {}, head.sure));
    if (head.question) home.append(element("p", {class: "soft"}, "Question: " + head.question));
    if (head.gpus) home.append(element("p", {class: "soft"}, "GPUs: " + head.gpus));
    const inside = (columns, rows, words) => {
      const wide = element("div", {class: "wide"}, table({columns, rows}));
      home.append(wide);
      reach(wide, words);
    };
    const below = () => view.table && inside(view.table[0], view.table.slice(1), "table of the answer");
    const findings = head.findings || []; // the page of one figure has none
    for (const finding of findings) {
      home.append(element("h2", {}, finding.title));
      if (finding.rows) inside(finding.columns, finding.rows, finding.title);
    }
    if (head.evidence.length) home.append(bar, key);
    if (!findings.length) below();
    if (head.alert) home.append(element("p", {class: "alert", role: "note"}, head.alert));
    for (const note of head.notes) home.append(element("p", {class: "soft"}, "Note: " + note));
    if (findings.length) below();
  }

  const say = (text) => document.getElementById("alerts").append(element("p", {class: "alert", role: "alert"}, text));
  const keyOf = (places) => places.slice(1).join("|");
  const shown = () => data.views[keyOf(chosen)];

  // The view with this value that is otherwise most like the question as it was asked.
  function nearest(at, value) {
    const alike = (places) => places.filter((place, i) => place === data.selectors[i + 1].start).length;
    const found = Object.keys(data.views).map((key) => key.split("|").map(Number)).filter((places) => places[at - 1] === value);
    return found.reduce((best, places) => alike(places) > alike(best) ? places : best);
  }

  function choose(at, value) {
    const wanted = chosen.slice();
    wanted[at] = value;
    const line = document.getElementById("choice");
    if (data.views[keyOf(wanted)]) {
      chosen[at] = value;
      line.replaceChildren();
    } else {
      chosen.splice(1, chosen.length, ...nearest(at, value));
      line.replaceChildren(...missing(wanted));
    }
    data.selectors.forEach((selector, i) => { document.getElementById("select-" + selector.name).value = chosen[i]; });
    return update();
  }

  // Why a combination is not in the page, and the command that makes a page of it.
  function missing(wanted) {
    const at = (name) => data.selectors.findIndex((selector) => selector.name === name);
    const named = (places, which) => which.map((i) => data.selectors[i].label + " " + data.selectors[i].words[places[i]]).join(", ");
    const all = data.selectors.map((_, i) => i), moved = all.filter((i) => wanted[i] !== chosen[i]);
    const kept = all.filter((i) => wanted[i] === chosen[i] && wanted[i] !== data.selectors[i].start);
    const back = "Shown instead: " + named(chosen, moved) + ".";
    const sending = ["machine", "backend", "clock", "sharding"].map((name) => wanted[at(name)]), refused = data.refused || {};
    const why = refused[sending.slice(0, 3).join("|")] || refused[sending.join("|")];
    if (why) return [why[0].toUpperCase() + why.slice(1) + ". " + back];
    if (!data.again) return ["Not in this page: " + named(wanted, [...kept, ...moved]) + ". " + back];
    const settings = ["machine", "backend", "clock"].map(at), sent = settings.some((i) => wanted[i] !== data.selectors[i].start);
    const way = at("sharding"), tables = wanted[way] !== data.selectors[way].start;  // a page of one sharding is of one size
    const words = data.selectors.map((selector, i) =>
      selector.typed || wanted[i] !== selector.start || (sent && settings.includes(i)) || (tables && i === 0) ? " " + selector.option + " " + selector.texts[wanted[i]] : "");
    return [
      "Not in this page: " + named(wanted, [...kept, ...moved]) + ". " + back + " A page of it: ",
      element("code", {}, data.again + words.join("")),
    ];
  }

  async function update() {
    const view = shown();
    card(view);
    for (const block of view.blocks) {
      await show(document.getElementById("views"), block, plot, (view.titles[block.name] || [])[chosen[0]]);
    }
  }

  function selectors() {
    const form = document.getElementById("selectors");
    data.selectors.forEach((selector, at) => {
      const list = element("select", {id: "select-" + selector.name});
      selector.words.forEach((words, i) => {
        const off = (selector.off || {})[i];
        list.append(element("option", off ? {value: i, disabled: "", title: off} : {value: i}, words + (off ? " (not here)" : "")));
      });
      list.value = selector.start;
      list.disabled = selector.words.length < 2;
      list.title = Object.entries(selector.off || {}).map(([i, why]) => selector.words[i] + ": " + why).join("\n");
      list.addEventListener("change", () => choose(at, Number(list.value)));
      form.append(element("label", {}, selector.label, list));
    });
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  function theme() {
    const root = document.documentElement, pressed = document.getElementById("theme");
    const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const tell = () => { pressed.textContent = dark() ? "Light" : "Dark"; };
    pressed.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; tell(); });
    tell();
  }

  async function start() {
    selectors();
    theme();
    data.alerts.forEach(say);
    for (const each of document.querySelectorAll("#provenance details")) {
      each.addEventListener("toggle", () => each.querySelectorAll(".wide").forEach((wide) => reach(wide, each.querySelector("summary").textContent)));
    }
    document.getElementById("all-data").addEventListener("click", () => save("perfmodel-report.json", "application/json", JSON.stringify(data)));
    try {
      await library();
    } catch (error) {
      card(shown());
      say("No figures: " + error.message + ".");
      return;
    }
    await update();
    if (data.fixed.length) document.getElementById("fixed").before(element("p", {class: "asked"}, "The figures below always show the question as it was asked, whatever is chosen above: " + data.question + "."));
    for (const block of data.fixed) await show(document.getElementById("fixed"), block, plotLater);
    addEventListener("beforeprint", onPaper);
    addEventListener("afterprint", onScreen);
    document.documentElement.dataset.ready = "yes";
  }

  if (held) start();
  else window.perfmodelPage = {card, copy, plot, show, theme};
})();
