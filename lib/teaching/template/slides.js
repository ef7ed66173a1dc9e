"use strict";
(function () {
  var slides = Array.prototype.slice.call(document.querySelectorAll(".slide"));
  function current() {
    var middle = window.innerHeight / 2;
    for (var i = 0; i < slides.length; i++) {
      if (slides[i].getBoundingClientRect().bottom > middle) return i;
    }
    return slides.length - 1;
  }
  function go(i) {
    i = Math.max(0, Math.min(slides.length - 1, i));
    slides[i].scrollIntoView();
    slides[i].focus({ preventScroll: true });
    history.replaceState(null, "", "#" + slides[i].id);
  }
  document.addEventListener("keydown", function (event) {
    var at = current(), step = null;
    var tall = slides[at].offsetHeight > window.innerHeight + 4;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("summary, a, pre, .scroll, .formula") && event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    if (event.key === "ArrowRight" || event.key === "PageDown" || (event.key === " " && !event.shiftKey)) step = at + 1;
    else if (event.key === "ArrowLeft" || event.key === "PageUp" || (event.key === " " && event.shiftKey)) step = at - 1;
    else if (event.key === "ArrowDown" && !tall) step = at + 1;
    else if (event.key === "ArrowUp" && !tall) step = at - 1;
    else if (event.key === "Home") step = 0;
    else if (event.key === "End") step = slides.length - 1;
    if (step === null) return;
    event.preventDefault();
    go(step);
  });
  // A slide that is longer than a page is made smaller, down to six tenths, so that it prints on one.
  window.addEventListener("beforeprint", function () {
    document.documentElement.classList.add("fitting");
    slides.forEach(function (slide) {
      var matter = slide.querySelector(".matter");
      matter.style.zoom = Math.max(0.6, Math.min(1, 600 / matter.scrollHeight));
    });
    document.documentElement.classList.remove("fitting");
  });
  window.addEventListener("afterprint", function () {
    slides.forEach(function (slide) { slide.querySelector(".matter").style.zoom = ""; });
  });
})();
