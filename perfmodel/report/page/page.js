"use strict";
// Draws the figures that Python made and saves their numbers: nothing is calculated here.
(function () {
  const held = document.getElementById("data"); // a live page has none: it hands over what Python answers
  const config = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", // nothing leaves the page
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };
  const blocks = new Map(); // that are drawn, by the ids of their sections

  function csv(block) {
    const cell = (value) => {
      let text = value === null ? "" : String(value);
      const formula = /^[=@\t\r]/.test(text) || /^[+-].*[=|(!]/.test(text); // a spreadsheet would run it
      if (typeof value === "string" && formula) text = "'" + text;
      return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [block.columns, ...block.rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  function save(name, kind, text) {
    const link = document.createElement("a");
    link.download = name;
    link.href = URL.createObjectURL(new Blob([text], {type: kind}));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async function copy(text, pressed) {
    const words = pressed.textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.body.appendChild(document.createElement("textarea"));
      area.value = text;
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    pressed.textContent = done ? "Copied" : "Not allowed here";
    setTimeout(() => { pressed.textContent = words; }, 1500);
  }

  async function library() {
    if (!("DecompressionStream" in window)) throw new Error("this browser is too old for the figures: they need one of 2023 or newer (DecompressionStream)");
    const text = atob(document.getElementById("plotly").textContent), packed = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) packed[at] = text.charCodeAt(at);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    script.remove();
  }

  // On paper the style scales a drawing to its place (page.css): for that it needs a view box.
  function scalable(place) {
    const {width, height} = place._fullLayout;
    for (const drawing of place.querySelectorAll(".main-svg")) drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    place.querySelector(".svg-container").style.aspectRatio = `${width} / ${height}`;
  }

  async function draw(block) {
    const home = document.getElementById("block-" + block.name), place = home.querySelector(".plot");
    if (!place) return;
    blocks.set(home.id, block);
    const {data, layout} = structuredClone(block.figure), drawn = place.classList.contains("js-plotly-plot");
    place.style.minWidth = ((layout.meta || {}).min_width || 0) + "px";
    await Plotly.react(place, data, layout, {...config, toImageButtonOptions: {filename: block.name, scale: 2}});
    if (!drawn) place.on("plotly_afterplot", () => scalable(place));
    scalable(place);
    const wide = place.parentElement; // what does not fit is scrolled by the arrow keys
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0; else wide.removeAttribute("tabindex");
  }

  // A block of the live page in place of its former one, whose drawing goes on.
  async function show(parent, block) {
    const fresh = document.createRange().createContextualFragment(block.html).firstElementChild;
    const former = document.getElementById(fresh.id), plot = former?.querySelector(".plot");
    if (plot) fresh.querySelector(".plot")?.replaceWith(plot);
    if (former) former.replaceWith(fresh); else parent.append(fresh);
    await draw(block);
  }

  function theme() {
    const root = document.documentElement, pressed = document.getElementById("theme");
    const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const tell = () => { pressed.textContent = dark() ? "Light" : "Dark"; };
    pressed.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; tell(); });
    tell();
  }

  async function start() {
    theme();
    try {
      await library();
      for (const block of JSON.parse(held.textContent).blocks) await draw(block);
      document.documentElement.dataset.ready = "yes";
    } catch (error) {
      const words = Object.assign(document.createElement("p"), {className: "alert", textContent: `No figures: ${error.message}.`});
      document.getElementById("alerts").append(words);
    }
  }

  document.addEventListener("click", (event) => {
    const block = event.target.matches?.(".csv") && blocks.get(event.target.closest("section").id);
    if (block) save(block.name + ".csv", "text/csv", csv(block));
  });
  if (held) start();
  else window.perfmodelPage = {copy, show, theme};
})();
