const report = JSON.parse(document.querySelector("#report-data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function drawn(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---- the page ----

function startTheme() {
  const button = document.querySelector("#theme"), root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => (button.textContent = dark() ? "☀ light" : "☾ dark");
  try { // localStorage may be blocked for a page from disk
    const saved = localStorage.getItem("pyramid-report-theme");
    if (saved === "dark" || saved === "light") root.dataset.theme = saved;
  } catch {}
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("pyramid-report-theme", root.dataset.theme); } catch {}
    name();
  });
  system.addEventListener("change", name);
  button.hidden = false;
  name();
}

function startNavigation() {
  const bar = document.querySelector("nav .wide"), links = new Map();
  for (const section of document.querySelectorAll("main > section")) {
    const link = element("a", "", section.querySelector("h2").textContent);
    link.href = `#${section.id}`;
    links.set(section, link);
    bar.append(link);
  }
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) links.get(target).classList.toggle("here", isIntersecting);
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const section of links.keys()) seen.observe(section);
}

function startCommands() {
  for (const button of document.querySelectorAll(".command .copy")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
  }
}

function startFilters() {
  for (const group of document.querySelectorAll(".choice")) {
    group.hidden = false;
    group.addEventListener("click", ({ target }) => {
      if (target.dataset.at === undefined) return;
      for (const button of group.children) button.setAttribute("aria-pressed", button === target);
      for (const body of group.parentElement.querySelectorAll("tbody[data-at]")) {
        body.hidden = target.dataset.at !== "" && body.dataset.at !== target.dataset.at;
      }
    });
  }
}

// ---- charts ----

const SHAPES = [ // one per marker, centred at 0, of similar area
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", "M-4.5-4.5h9v9h-9z", "M0-6L6 0L0 6L-6 0z", "M0-6L5.8 4.6H-5.8z", "M0 6L5.8-4.6H-5.8z",
  "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z", "M-6-3.2l2.8-2.8l3.2 3.2l3.2-3.2l2.8 2.8l-3.2 3.2l3.2 3.2l-2.8 2.8l-3.2-3.2l-3.2 3.2l-2.8-2.8l3.2-3.2z",
  "M-6 0L4.6-5.8V5.8z", "M6 0L-4.6-5.8V5.8z",
];
const STAR = "M0-8L2 -2.6L7.6-2.5L3.2 1L4.7 6.5L0 3.3L-4.7 6.5L-3.2 1L-7.6-2.5L-2-2.6z";

const place = (axis, x) => (axis.share ? `${(100 * x).toFixed(0)} %` : `${x.toFixed(2)}x`);

function ticks(low, high, about) {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((found) => found >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9; at += step) found.push(Math.round(at * 1e6) / 1e6);
  return found;
}

function scale(values, margin) {
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * margin;
  return [low - room, high + room];
}

function tooltip(chart, axis, panel, point, held) {
  const tip = element("div", held ? "tip held" : "tip");
  tip.append(element("b", "", point.series ? `${point.series} ${point.configuration}` : "Dense"));
  const list = element("dl");
  const add = (name, value) => list.append(element("dt", "", name), element("dd", "", value));
  const seeds = point.seeds === 1 ? "1 seed" : `${point.seeds} seeds`;
  add(panel.metric, point.value.toFixed(1) + (point.std === null ? "" : ` ± ${point.std.toFixed(1)}`));
  for (const other of chart.axes) {
    const x = point.x[other.key];
    if (x !== null && x !== undefined) add(other.title.replace(/ \(.*\)/, "").split(",")[0], place(other, x));
  }
  add("mean over", seeds);
  tip.append(list);
  const summary = chart.series.find((series) => series.name === point.series)?.summary;
  if (summary) tip.append(element("span", "note", summary));
  if (held && point.command) tip.append(element("code", "", point.command));
  return tip;
}

// One panel: marks for points, lines for fronts. A tooltip describes the mark nearest to the pointer, or the focused one.
function drawPanel(box, chart, axis, panel, visible) {
  const width = Math.max(240, box.clientWidth), height = Math.round(Math.min(320, Math.max(230, width * 0.66)));
  const left = 40, right = 14, top = 12, bottom = 34;
  const shown = panel.points.filter((p) => p.x[axis.key] != null && (!p.series || visible.has(p.series)));
  const [x0, x1] = scale(shown.map((p) => p.x[axis.key]), 0.06), [y0, y1] = scale(shown.map((p) => p.value), 0.09);
  const x = (at) => left + ((at - x0) / (x1 - x0)) * (width - left - right);
  const y = (at) => height - bottom - ((at - y0) / (y1 - y0)) * (height - top - bottom);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${panel.title}: ${panel.metric} against ${axis.title}` });
  for (const at of ticks(y0, y1, 5)) {
    svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(at), y2: y(at) }));
    svg.append(drawn("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, String(at)));
  }
  for (const at of ticks(x0, x1, width / 90)) {
    svg.append(drawn("text", { x: x(at), y: height - bottom + 16, "text-anchor": "middle" }, axis.share ? `${Math.round(100 * at)} %` : `${at}x`));
  }
  svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 2, "text-anchor": "middle" }, axis.title));
  const looks = new Map(chart.series.map((series) => [series.name, series]));
  for (const point of shown.filter((p) => !p.series)) {
    svg.append(drawn("line", { class: "dense-line", x1: left, x2: width - right, y1: y(point.value), y2: y(point.value) }));
  }
  for (const [name, line] of Object.entries(panel.lines[axis.key] ?? {})) {
    if (!visible.has(name) || line.length < 2) continue;
    const points = line.map(([px, py]) => `${x(px).toFixed(1)},${y(py).toFixed(1)}`).join(" ");
    svg.append(drawn("polyline", { class: "front", points, style: `stroke: var(--s${looks.get(name).colour})` }));
  }
  const marks = shown.map((point) => {
    const look = looks.get(point.series);
    const at = [x(point.x[axis.key]), y(point.value)];
    const mark = drawn("path", {
      d: look ? SHAPES[look.marker] : STAR, class: look ? "mark" : "mark dense", tabindex: -1, role: "img",
      transform: `translate(${at[0].toFixed(1)} ${at[1].toFixed(1)})`,
      "aria-label": `${point.series || "Dense"} ${point.configuration}, ${panel.metric} ${point.value.toFixed(1)}, ${place(axis, point.x[axis.key])}`,
    });
    if (look) mark.style.fill = `var(--s${look.colour})`;
    return { point, mark, at };
  }).sort((a, b) => a.at[0] - b.at[0] || a.at[1] - b.at[1]);
  svg.append(...marks.map(({ mark }) => mark));
  if (marks.length) marks[0].mark.setAttribute("tabindex", 0); // one stop for the tab key; arrows move inside
  box.replaceChildren(element("h4", "", panel.title), svg);
  startPanel(box, svg, marks, width, (point, held) => tooltip(chart, axis, panel, point, held));
}

function startPanel(box, svg, marks, width, tell) {
  let held = null;
  const ring = drawn("circle", { class: "ring", r: 10 }); // drawn last, above marks at the same place
  svg.append(ring);
  function show(found) {
    box.querySelector(".tip")?.remove();
    box.classList.toggle("lit", found !== null);
    for (const other of marks) other.mark.classList.toggle("lit", other === found);
    ring.style.display = found === null ? "none" : "";
    if (found === null) return;
    ring.setAttribute("transform", found.mark.getAttribute("transform"));
    const tip = tell(found.point, found === held);
    box.append(tip);
    const frame = svg.getBoundingClientRect(), ratio = frame.width / width || 1;
    const mx = found.at[0] * ratio, my = frame.top - box.getBoundingClientRect().top + found.at[1] * ratio;
    const wanted = mx + 14 + tip.offsetWidth > box.clientWidth ? mx - 14 - tip.offsetWidth : mx + 14;
    tip.style.left = `${Math.min(Math.max(wanted, 0), Math.max(0, box.clientWidth - tip.offsetWidth))}px`;
    // Beside the mark if there is room, else below it, but never on top.
    tip.style.top = wanted < 0 ? `${my + 14}px` : `${my - 12}px`;
  }
  function nearest(event) {
    const frame = svg.getBoundingClientRect(), ratio = frame.width / width || 1;
    const px = (event.clientX - frame.left) / ratio, py = (event.clientY - frame.top) / ratio;
    const reach = event.pointerType === "touch" ? 34 : 22;
    const far = ({ at }) => Math.hypot(at[0] - px, at[1] - py);
    const best = marks.reduce((found, mark) => (found === null || far(mark) < far(found) ? mark : found), null);
    return best && far(best) <= reach ? best : null;
  }
  show(null);
  svg.addEventListener("pointermove", (event) => show(nearest(event) ?? held));
  svg.addEventListener("pointerleave", () => show(held));
  svg.addEventListener("click", (event) => {
    const found = nearest(event);
    show((held = found === held ? null : found));
  });
  svg.addEventListener("focusin", (event) => show(marks.find(({ mark }) => mark === event.target) ?? held));
  svg.addEventListener("focusout", () => show(held));
  svg.addEventListener("keydown", (event) => {
    const number = marks.findIndex(({ mark }) => mark === event.target);
    if (event.key === "Escape") show((held = null));
    if (event.key === "Enter" && number >= 0) show((held = marks[number] === held ? null : marks[number]) ?? marks[number]);
    const to = { ArrowLeft: number - 1, ArrowRight: number + 1, Home: 0, End: marks.length - 1 }[event.key];
    if (to === undefined || number < 0) return;
    event.preventDefault();
    const next = marks[Math.min(Math.max(to, 0), marks.length - 1)];
    for (const { mark } of marks) mark.setAttribute("tabindex", mark === next.mark ? 0 : -1);
    next.mark.focus();
  });
}

function startChart(host) {
  const chart = report.charts[host.dataset.chart];
  let axis = chart.axes[0];
  const visible = new Set(chart.series.map((series) => series.name));
  const bar = element("div", "bar"), legend = element("div", "legend"), panels = element("div", "panels");
  const select = element("select");
  select.setAttribute("aria-label", "Against");
  for (const other of chart.axes) {
    const option = element("option", "", other.title);
    option.value = other.key;
    select.append(option);
  }
  for (const series of chart.series) {
    const button = element("button");
    button.type = "button";
    button.title = series.summary;
    button.setAttribute("aria-pressed", true);
    const sample = drawn("svg", { viewBox: "-7 -7 14 14", "aria-hidden": true });
    sample.append(drawn("path", { d: SHAPES[series.marker], style: `fill: var(--s${series.colour})` }));
    button.append(sample, series.name);
    button.addEventListener("click", () => {
      if (!visible.delete(series.name)) visible.add(series.name);
      button.setAttribute("aria-pressed", visible.has(series.name));
      draw();
    });
    legend.append(button);
  }
  const boxes = chart.panels.map(() => element("div", "panel"));
  function draw() {
    chart.panels.forEach((panel, number) => drawPanel(boxes[number], chart, axis, panel, visible));
  }
  select.addEventListener("change", () => {
    axis = chart.axes.find((other) => other.key === select.value);
    draw();
  });
  bar.append(select, legend);
  panels.append(...boxes);
  host.replaceChildren(bar, panels);
  let before = 0;
  new ResizeObserver(() => {
    if (Math.abs(host.clientWidth - before) < 2) return;
    before = host.clientWidth;
    draw();
  }).observe(host);
  before = host.clientWidth;
  draw();
}

// ---- the viewer ----

function startViewer() {
  const input = document.querySelector("#viewer-text");
  if (!input || !report.examples.length) return;
  const find = (id) => document.querySelector(id);
  const template = find("#token-pyramid"), holder = find("#viewer-place");
  let current = 0;

  function show(number, stage) {
    current = (number + report.examples.length) % report.examples.length;
    const host = element("div", "pyramid-explanation plain");
    holder.replaceChildren(host);
    const step = drawTokenPyramid(host, template, report.examples[current]);
    step(stage ?? 0);
    input.value = report.examples[current].text;
    input.classList.remove("lost");
    find("#viewer-count").textContent = `${current + 1} of ${report.examples.length}`;
  }

  for (const example of report.examples) {
    const option = element("option");
    option.value = example.text;
    find("#viewer-texts").append(option);
  }
  input.addEventListener("focus", () => input.select());
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    const exact = report.examples.findIndex((example) => example.text.toLowerCase() === wanted);
    input.classList.toggle("lost", !report.examples.some((example) => example.text.toLowerCase().includes(wanted)));
    if (exact >= 0) show(exact);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const wanted = input.value.trim().toLowerCase();
    const found = report.examples.findIndex((example) => example.text.toLowerCase().includes(wanted));
    if (found >= 0) show(found);
  });
  find("#viewer-before").addEventListener("click", () => show(current - 1));
  find("#viewer-after").addEventListener("click", () => show(current + 1));
  // #viewer=2,3 is a link to a picture: the second example, three steps up from its input.
  function linked() {
    const found = /^#viewer=(\d+)(?:,(\d+))?$/.exec(location.hash);
    if (!found) return false;
    show(Number(found[1]) - 1, Number(found[2] ?? 0));
    find("#viewer").scrollIntoView({ behavior: "instant" });
    return true;
  }
  addEventListener("hashchange", linked);
  if (!linked()) show(0);
}

startTheme();
startNavigation();
startCommands();
startFilters();
document.querySelectorAll("[data-chart]").forEach(startChart);
startViewer();
