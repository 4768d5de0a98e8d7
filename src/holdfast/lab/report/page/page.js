"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const live = document.getElementById("live");

  /* Light or dark as in the system, until the button is used. */
  function bindTheme(button) {
    const root = document.documentElement;
    const isDark = () => getComputedStyle(root).colorScheme === "dark";
    const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      name();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
    button.hidden = false;
    name();
  }

  function bindCopy(button) {
    const code = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      const done = await copied(code);
      button.textContent = done ? "Copied" : "Press Ctrl+C";
      live.textContent = button.textContent;
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  async function copied(element) {
    try {
      await navigator.clipboard.writeText(element.textContent);
      return true;
    } catch {
      getSelection().selectAllChildren(element);
      return document.execCommand("copy");
    }
  }

  /* A check box hides and shows the artists with its key in all panels of its figure. */
  function bindKeys(figure) {
    const hidden = new Set();
    for (const box of figure.querySelectorAll("input[data-key]")) {
      const apply = () => {
        const key = box.dataset.key;
        if (box.checked) hidden.delete(key); else hidden.add(key);
        for (const artist of figure.querySelectorAll(`.drawing [data-series="${key}"]`)) {
          artist.classList.toggle("off", !box.checked);
        }
      };
      box.addEventListener("change", apply);
      apply(); // browsers may restore boxes when a page is loaded again
    }
    return hidden;
  }

  /* Show values under the pointer, or from point to point by arrow keys. */
  function bindPanel(panel, hidden) {
    const places = JSON.parse(panel.querySelector("script").textContent);
    const svg = panel.querySelector(".drawing > svg");
    const tip = panel.querySelector(".tip");
    const view = svg.viewBox.baseVal;
    const marks = [];
    places.lines.forEach((line, row) => {
      for (const [column, y, says] of line.points) {
        const [x, at] = places.columns[column];
        marks.push({ row, x, y, at, says, label: line.label, key: line.key });
      }
    });
    const hair = svg.appendChild(document.createElementNS(SVG, "line"));
    const dot = svg.appendChild(document.createElementNS(SVG, "circle"));
    hair.setAttribute("class", "hair");
    dot.setAttribute("class", "dot");
    dot.setAttribute("r", "5");
    let current = null;

    const described = (mark) => [mark.at, mark.says].filter(Boolean).join(": ");
    const seen = () => marks.filter((mark) => !hidden.has(mark.key));
    const nearest = (some, x, y) => {
      const far = (mark) => (mark.x - x) ** 2 + (mark.y - y) ** 2;
      const nearer = (best, mark) => (best === null || far(mark) < far(best) ? mark : best);
      return some.reduce(nearer, null);
    };

    function show(mark) {
      current = mark;
      for (const part of [tip, dot, hair]) part.toggleAttribute("hidden", mark === null);
      if (mark === null) return;
      dot.setAttribute("cx", mark.x);
      dot.setAttribute("cy", mark.y);
      hair.setAttribute("x1", mark.x);
      hair.setAttribute("x2", mark.x);
      hair.setAttribute("y1", 0);
      hair.setAttribute("y2", view.height);
      const name = document.createElement("b");
      name.textContent = mark.label;
      tip.replaceChildren(name, described(mark));
      const box = svg.getBoundingClientRect();
      const x = (mark.x / view.width) * box.width;
      const y = (mark.y / view.height) * box.height;
      const room = document.documentElement.clientWidth - box.left;
      const right = Math.min(box.width, room) - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(x - tip.offsetWidth / 2, right))}px`;
      tip.style.top = `${y - tip.offsetHeight - 12 < -20 ? y + 14 : y - tip.offsetHeight - 12}px`;
    }

    function speak() {
      if (current) live.textContent = `${current.label}, ${described(current)}`;
    }

    function point(event) {
      const box = svg.getBoundingClientRect();
      const scale = view.width / box.width;
      show(nearest(seen(), (event.clientX - box.left) * scale, (event.clientY - box.top) * scale));
    }

    function sideways(step) {
      const line = seen().filter((mark) => mark.row === current.row).sort((a, b) => a.x - b.x);
      show(line[Math.max(0, Math.min(line.length - 1, line.indexOf(current) + step))] ?? current);
    }

    function between(step) {
      const rows = [...new Set(seen().map((mark) => mark.row))].sort((a, b) => a - b);
      const row = rows[rows.indexOf(current.row) + step];
      const inRow = seen().filter((mark) => mark.row === row);
      if (row !== undefined) show(nearest(inRow, current.x, current.y));
    }

    const moves = {
      ArrowLeft: () => sideways(-1),
      ArrowRight: () => sideways(1),
      Home: () => sideways(-Infinity),
      End: () => sideways(Infinity),
      ArrowUp: () => between(-1),
      ArrowDown: () => between(1),
    };
    panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { show(null); return; }
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      if (current === null || hidden.has(current.key)) show(seen()[0] ?? null);
      else moves[event.key]();
      speak();
    });
    panel.addEventListener("blur", () => show(null));
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") show(null);
    });
    show(null);
  }

  /* Mark a list or a table that is wider than its place, and whether its right end is in sight. */
  function bindScroll(place) {
    const hint = place.matches(".scroll") ? hintBefore(place) : null;
    const mark = () => {
      const rest = place.scrollWidth - place.clientWidth;
      place.classList.toggle("is-wide", rest > 1);
      hint?.toggleAttribute("hidden", rest <= 1);
      place.classList.toggle("is-cut", rest - place.scrollLeft > 1);
    };
    place.addEventListener("scroll", mark, { passive: true });
    new ResizeObserver(mark).observe(place);
  }

  function hintBefore(place) {
    const hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = "\u2194\u00a0Scroll sideways for all columns.";
    hint.hidden = true;
    place.before(hint);
    return hint;
  }

  bindTheme(document.getElementById("theme"));
  document.querySelectorAll(".scroll, .contents > ol").forEach(bindScroll);
  addEventListener("beforeprint", () => {
    for (const reading of document.querySelectorAll(".reading")) reading.open = true;
  });
  document.querySelectorAll("button.copy").forEach(bindCopy);
  for (const figure of document.querySelectorAll("figure")) {
    const hidden = bindKeys(figure);
    figure.querySelectorAll(".panel").forEach((panel) => bindPanel(panel, hidden));
  }
})();
