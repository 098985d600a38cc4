// The token pyramid of one text. Put it inside a function: it declares names, and a page may hold several.
// Text from the data reaches the page only through textContent.
function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className ?? "";
  if (text !== undefined) made.textContent = text;
  return made;
}

function listing(data, positions) {
  const names = positions.map((p) => (data.tokens[p].attached ? "…" : "") + data.tokens[p].text);
  const shown = names.slice(0, 15).map((name) => `“\u2068${name}\u2069”`).join(" ");
  return names.length > 15 ? `${shown} and ${names.length - 15} more` : shown;
}

function guests(stage, home) {
  return stage.home.flatMap((h, p) => (h === home && p !== home ? [p] : []));
}

function sentence(data, stage, p) {
  const home = stage.home[p] ?? -1;
  const name = listing(data, [p]);
  if (home < 0) return `${name} is dropped: no token stands for it.`;
  const others = guests(stage, home).filter((q) => q !== p);
  if (home === p) {
    return others.length ? `${name} is left and stands for ${listing(data, others)}` : `${name} is left and stands only for itself.`;
  }
  const shared = others.length ? `, with ${listing(data, others)}` : "";
  return `${name} is gone. ${data.fate === "nearest kept token" ? "Its nearest kept token:" : `It was ${data.fate}`} `
    + listing(data, [home]) + shared;
}

function row(data, stage, index, largest) {
  const line = element("li");
  const label = element("button");
  label.type = "button";
  label.dataset.stage = index;
  label.append(element("span", "", stage.label), element("span", "", `${stage.kept.length}/${data.tokens.length}`));
  // More than 40 words do not fit into a row: draw thin bars; the words are in the text above.
  const cells = element("div", data.tokens.length > 40 ? "cells thin" : "cells");
  cells.style.setProperty("--tokens", data.tokens.length);
  const kept = new Set(stage.kept);
  for (const p of stage.kept) {
    // A piece is drawn as part of its word only while its neighbour is there.
    const cell = element("span", "cell", data.tokens[p].text);
    cell.classList.toggle("cls", p === 0);
    cell.classList.toggle("attached", data.tokens[p].attached && kept.has(p - 1));
    cell.classList.toggle("joined", kept.has(p + 1) && data.tokens[p + 1].attached);
    cell.dataset.token = p;
    cells.append(cell);
  }
  const radius = element("div", "radius");
  const track = element("i");
  if (stage.radius !== null && largest > 0) {
    const bar = element("b");
    bar.style.width = `${(100 * stage.radius) / largest}%`;
    track.append(bar);
  }
  radius.append(element("span", "", stage.radius === null ? "–" : stage.radius.toFixed(2)), track);
  line.append(label, cells, radius);
  return line;
}

function fill(root, data) {
  const find = (selector) => root.querySelector(selector);
  find("h1").textContent = data.text || "(empty text)";
  const long = data.text.length > 160;
  find("h1").className = long ? "long cut" : "";
  find(".more").hidden = !long;
  find(".pyramid").textContent = data.pyramid;
  find(".dense").textContent = data.dense;
  find(".verdict").textContent = data.labelled ? (data.differ ? "the answers differ" : "same answer") : "";
  find(".verdict").classList.toggle("differ", data.differ);
  find("input").max = data.stages.length - 1;
  data.tokens.forEach((token, p) => {
    const button = element("button", "token", token.text);
    button.type = "button";
    button.classList.toggle("cls", p === 0);
    button.classList.toggle("attached", token.attached);
    button.classList.toggle("joined", data.tokens[p + 1]?.attached ?? false);
    button.dataset.token = p;
    button.tabIndex = p === 0 ? 0 : -1; // one stop for the tab key; arrows move inside
    if (!token.attached) find(".text").append(p > 0 ? " " : "", element("span", "word"));
    const word = find(".text").lastChild;
    word.append(button);
    // Lines break between words; only inside one that may be wider than a phone.
    word.classList.toggle("wide", word.textContent.length > 24);
  });
  const largest = Math.max(0, ...data.stages.map((stage) => stage.radius ?? 0));
  find("ol").append(...data.stages.map((stage, index) => row(data, stage, index, largest)).reverse());
  for (const [name, value] of data.settings) {
    const line = element("tr");
    const head = element("th", "", name);
    head.scope = "row";
    line.append(head, element("td", "", value));
    find("tbody").append(line);
  }
  find(".settings").hidden = !data.settings.length;
}

function start(root, data) {
  const find = (selector) => root.querySelector(selector);
  const tokens = [...root.querySelectorAll(".token")];
  const cells = [...root.querySelectorAll(".cell")];
  const rows = [...root.querySelectorAll("li")].reverse();
  let current = data.stages.length - 1;
  let pinned = null;

  function light(p) {
    const stage = data.stages[current];
    const home = p === null ? -1 : stage.home[p] ?? -1;
    find(".text").classList.toggle("lit", p !== null);
    for (const node of [...tokens, ...cells]) {
      const q = Number(node.dataset.token);
      node.classList.toggle("share", p !== null && (q === p || (home >= 0 && stage.home[q] === home)));
      node.classList.toggle("home", home >= 0 && q === home);
    }
    tokens.forEach((node, q) => node.classList.toggle("pinned", q === pinned));
    find(".detail").textContent = p !== null ? sentence(data, stage, p)
      : tokens.length ? "Point at a token, or tap it, to see which token stands for it and for which others."
      : "The text has no tokens.";
  }

  function step(to) {
    current = Math.min(Math.max(to, 0), data.stages.length - 1);
    const stage = data.stages[current];
    const kept = new Set(stage.kept);
    tokens.forEach((node, p) => {
      node.classList.toggle("kept", kept.has(p));
      node.setAttribute("aria-label", `${data.tokens[p].text}, ${kept.has(p) ? "left" : "gone"}`);
    });
    rows.forEach((node, index) => {
      node.classList.toggle("current", index === current);
      node.firstChild.setAttribute("aria-pressed", index === current);
    });
    find(".where").textContent = current === 0 ? "The input" : `After ${stage.label}`;
    find(".reading .note").textContent = `${stage.kept.length} of ${tokens.length} tokens left`;
    const slider = find("input");
    slider.value = current;
    slider.setAttribute("aria-valuetext", `${stage.label}, ${stage.kept.length} of ${tokens.length} tokens`);
    slider.disabled = data.stages.length < 2;
    find(".down").disabled = current === 0;
    find(".up").disabled = current === data.stages.length - 1;
    light(pinned);
  }

  const at = (event) => event.target.closest?.("[data-token]");
  root.addEventListener("pointerover", (event) => light(at(event) ? Number(at(event).dataset.token) : pinned));
  find("article").addEventListener("pointerleave", () => light(pinned));
  root.addEventListener("focusin", (event) => light(at(event) ? Number(at(event).dataset.token) : pinned));
  root.addEventListener("focusout", () => light(pinned));
  root.addEventListener("click", (event) => {
    const label = event.target.closest("[data-stage]");
    if (label) step(Number(label.dataset.stage));
    if (!at(event)) return;
    const p = Number(at(event).dataset.token);
    pinned = pinned === p ? null : p;
    light(pinned);
  });
  find(".text").addEventListener("keydown", (event) => {
    const p = tokens.indexOf(event.target);
    if (event.key === "Escape") light((pinned = null));
    const to = { ArrowLeft: p - 1, ArrowRight: p + 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (to === undefined || p < 0) return;
    event.preventDefault();
    const next = tokens[Math.min(Math.max(to, 0), tokens.length - 1)];
    tokens.forEach((node) => (node.tabIndex = node === next ? 0 : -1));
    next.focus();
  });
  find("input").addEventListener("input", (event) => step(Number(event.target.value)));
  find(".down").addEventListener("click", () => step(current - 1));
  find(".up").addEventListener("click", () => step(current + 1));
  find(".more").addEventListener("click", (event) => {
    const cut = find("h1").classList.toggle("cut");
    event.target.textContent = cut ? "Show the whole text" : "Show less of the text";
    event.target.setAttribute("aria-expanded", !cut);
  });
  find("article").addEventListener("keydown", (event) => {
    if (event.target === find("input")) return; // a slider has its own way with arrows
    const beside = event.target.closest(".stepper") ? { ArrowLeft: -1, ArrowRight: 1 } : {};
    const by = { ArrowUp: 1, ArrowDown: -1, ...beside }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    step(current + by);
  });
  step(current);
  return step;
}

// Draws `data` into a shadow root of `host`, so that styles do not mix; returns a function that steps to a layer.
function drawTokenPyramid(host, template, data) {
  const root = host.attachShadow({ mode: "open" });
  root.append(template.content.cloneNode(true));
  fill(root, data);
  return start(root, data);
}
