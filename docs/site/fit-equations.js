// Equations that are wider than the page are drawn smaller, down to 60 %; what is still wider scrolls.
(function () {
  const least = 0.6;
  function fit() {
    for (const box of document.querySelectorAll(".equation")) {
      const math = box.firstElementChild;
      math.style.fontSize = "";
      const style = getComputedStyle(box);
      const room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      const wide = math.getBoundingClientRect().width;
      if (wide > room) math.style.fontSize = Math.max(least, 0.99 * room / wide) + "em";
      const cut = box.scrollWidth > box.clientWidth + 1;
      box.classList.toggle("scrolls", cut);
      if (cut) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }
  document.addEventListener("DOMContentLoaded", fit);
  window.addEventListener("load", fit);
  window.addEventListener("resize", fit);
})();
