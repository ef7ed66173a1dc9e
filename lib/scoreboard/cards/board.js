for (const board of document.querySelectorAll(".verdicts:not([data-ready])")) {
  board.dataset.ready = "yes";
  const form = board.querySelector("form"), cards = [...board.querySelectorAll(".cards > li")];
  const words = cards.map((card) => card.textContent.toLowerCase());
  const show = () => {
    const chosen = [...form.querySelectorAll("select")].filter((select) => select.value);
    const asked = form.querySelector("input").value.toLowerCase().split(" ").filter((word) => word);
    let left = 0;
    cards.forEach((card, place) => {
      const fits = chosen.every((select) => card.dataset[select.name] === select.value)
        && asked.every((word) => words[place].includes(word));
      card.hidden = !fits;
      left += fits;
    });
    form.querySelector(".count").textContent = left + " of " + cards.length + " claims";
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  show();
}
