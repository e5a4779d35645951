"use strict";
// Draws the charts from the numbers in the page, and sorts its tables. Text is only ever set as text.

const arms = JSON.parse(document.getElementById("data").textContent);

function element(name, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "rect", "circle", "text", "title", "polygon"].includes(name);
  const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const percent = value => value.toFixed(2);
const withSpread = (mean, std) => percent(mean) + (std === null ? "" : " ± " + percent(std)) + " %";
const small = value => value < 0.001 ? value.toExponential(0) : value.toFixed(3);
const range = n => Array.from({ length: n }, (_, k) => k);

// Scales and axes

function niceTicks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return range(Math.floor(high / step + 1e-9) - first + 1).map(k => Number(((first + k) * step).toPrecision(12)));
}

function frame(host, { label, xTicks, toUnit, xName, yName, values, focusable = false }) {
  const width = Math.max(280, host.clientWidth || 720), height = Math.round(Math.min(430, Math.max(270, width * 0.5)));
  const left = 46, right = 12, top = 10, bottom = 44;
  let low = Math.min(...values), high = Math.max(...values);
  const room = Math.max(0.06 * (high - low), 0.5);
  low = Math.max(0, low - room), high = Math.min(100, high + room);
  const x = value => left + toUnit(value) * (width - left - right);
  const within = value => (Math.min(high, Math.max(low, value)) - low) / (high - low);
  const y = value => height - bottom - within(value) * (height - top - bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (focusable) svg.setAttribute("tabindex", "0");
  for (const tick of niceTicks(low, high, 6)) {
    svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { class: "tick", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
  }
  for (const [value, text] of xTicks(width)) {
    svg.append(element("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: height - bottom }));
    svg.append(element("text", { class: "tick", x: x(value), y: height - bottom + 17, "text-anchor": "middle" }, text));
  }
  svg.append(element("path", { class: "axis", d: `M${left},${top}V${height - bottom}H${width - right}` }));
  svg.append(element("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, xName));
  const turned = `rotate(-90) translate(${-(height - bottom) / 2} 13)`;
  svg.append(element("text", { transform: turned, "text-anchor": "middle" }, yName));
  host.replaceChildren(svg);
  return { svg, x, y, left, right: width - right, top, bottom: height - bottom };
}

const path = points => points.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");

// Colours: a series by its place, a lane by where its alpha stands, the prior in ink

const seriesColour = k => `var(--series${k % 4})`;
const dashes = ["", "7 3", "2 3", "7 3 2 3"];

function laneStyle(model) {
  if (model.prior) return { stroke: "var(--ink)", "stroke-width": 2.5, "stroke-dasharray": "2 4" };
  const stroke = `hsl(${((225 + 165 * model.shade) % 360).toFixed(0)} 72% var(--shade))`;
  return { stroke, "stroke-width": 2, "stroke-dasharray": dashes[Math.max(0, model.series) % 4] };
}

const styled = ({ stroke, ...rest }) => ({ ...rest, style: `stroke:${stroke}`, fill: "none" });

function mark(k, x, y, size = 4.5) {
  const corners = [null, [[-1, -1], [1, -1], [1, 1], [-1, 1]], [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]], [[0, 1.2], [1.1, -0.8], [-1.1, -0.8]]][k % 4];
  if (!corners) return element("circle", { cx: x, cy: y, r: size });
  return element("polygon", { points: corners.map(([u, v]) => `${x + u * size},${y + v * size}`).join(" ") });
}

const diamond = (x, y, size = 6) => element("polygon", {
  points: `${x},${y - size} ${x + size},${y} ${x},${y + size} ${x - size},${y}`,
  style: "fill:var(--paper);stroke:var(--ink)", "stroke-width": 1.6,
});

function bar(x, top, bottom, stroke) {
  const d = `M${x},${top}V${bottom}M${x - 4},${top}h8M${x - 4},${bottom}h8`;
  return element("path", { d, style: `stroke:${stroke}`, fill: "none", "stroke-width": 1.4 });
}

function swatch(...parts) {
  return element("svg", { class: "swatch", viewBox: "0 0 30 14", "aria-hidden": "true" }, ...parts);
}

// Accuracy against alpha

function alphaChart(host, arm) {
  const alphas = [...arm.series.flatMap(s => s.alphas), ...arm.paper.map(p => p.alpha)];
  const positive = alphas.filter(a => a > 0);
  const least = Math.min(...positive, 1), most = Math.max(...positive, least);
  const bend = alphas.includes(0) ? 1 : 0; // the part from 0 to the least alpha is as wide as a decade
  const decades = Math.log10(most / least), whole = Math.max(bend + decades, 1e-9);
  const unit = a => (a < least ? a / least * bend : bend + Math.log10(a / least)) / whole;
  const inset = a => 0.035 + 0.93 * (whole > 1e-8 ? unit(a) : 0.5);
  const ticks = arm.ticks.map(a => [a, a > 0 && a < 0.01 ? a.toExponential() : String(a)]);
  const prior = arm.models[0];
  const values = [];
  const spread = (mean, std) => values.push(mean - (std ?? 0), mean + (std ?? 0));
  arm.series.forEach(s => s.means.forEach((mean, k) => spread(mean, s.stds[k])));
  arm.series.forEach(s => s.fit && values.push(s.fit.accuracy));
  arm.paper.forEach(p => spread(p.value, p.std));
  if (prior.mean !== null) spread(prior.mean, prior.std);
  const { svg, x, y, left, right } = frame(host.querySelector(".plot"), {
    label: `${arm.name}: accuracy against alpha; the numbers are in the table above`,
    xTicks: () => ticks, toUnit: inset, xName: "alpha (0, then logarithmic)", yName: `${arm.measure}, %`, values,
  });
  const legend = [];
  if (prior.mean !== null) {
    const top = y(prior.mean + (prior.std ?? 0)), bottom = y(prior.mean - (prior.std ?? 0));
    svg.append(element("rect", { x: left, y: top, width: right - left, height: bottom - top, style: "fill:var(--ink)", opacity: 0.08 }));
    const style = laneStyle(prior);
    svg.append(element("path", { d: `M${left},${y(prior.mean)}H${right}`, ...styled(style) }));
    legend.push([swatch(element("path", { d: "M1,7H29", ...styled(style) })), `${arm.prior} (the prior): ${withSpread(prior.mean, prior.std)}`]);
  }
  arm.series.forEach((s, k) => {
    const colour = seriesColour(k), shift = 5 * (k - (arm.series.length - 1) / 2);
    const at = s.alphas.map((a, n) => [x(a) + shift, y(s.means[n])]);
    const isCurve = s.alphas.filter(a => a > 0).length > 1;  // one alpha beside 0 is a point
    if (isCurve) svg.append(element("path", { d: path(at), style: `stroke:${colour}`, fill: "none", "stroke-width": 1.3 }));
    if (s.fit) {
      const { alpha, accuracy, left: down, right: up } = s.fit, own = s.alphas.filter(a => a > 0);
      const on = (a, slope) => [x(a), y(accuracy + slope * Math.log10(a / alpha))];
      const d = path([on(own[0], down), [x(alpha), y(accuracy)], on(own[own.length - 1], up)]);
      svg.append(element("path", { d, class: "fit", style: `stroke:${colour}`, fill: "none", "stroke-width": 4, opacity: 0.35 }));
    }
    s.alphas.forEach((a, n) => {
      const std = s.stds[n];
      if (std !== null) svg.append(bar(at[n][0], y(s.means[n] + std), y(s.means[n] - std), colour));
      const point = mark(k, ...at[n]);
      point.setAttribute("style", `fill:${colour}`);
      point.append(element("title", {}, `${s.name}, alpha ${a}: ${withSpread(s.means[n], std)} (n = ${s.ns[n]})`));
      svg.append(point);
    });
    const sign = mark(k, 15, 7);
    sign.setAttribute("style", `fill:${colour}`);
    legend.push([swatch(...(isCurve ? [element("path", { d: "M1,7H29", style: `stroke:${colour}` })] : []), sign), `mixed ${s.name}`]);
    if (s.fit) legend.push([swatch(element("path", { d: "M1,7H29", style: `stroke:${colour}`, "stroke-width": 4, opacity: 0.35 })), "its two lines"]);
  });
  for (const p of arm.paper) {
    const at = x(p.alpha) + 5 * (arm.series.length + 1) / 2;
    if (p.std !== null) svg.append(bar(at, y(p.value + p.std), y(p.value - p.std), "var(--ink)"));
    const point = diamond(at, y(p.value));
    point.append(element("title", {}, `the paper, ${p.model}: ${withSpread(p.value, p.std)}`));
    svg.append(point);
  }
  if (arm.paper.length) legend.push([swatch(diamond(15, 7)), "the paper"]);
  host.querySelector(".legend").replaceChildren(...legend.map(([sign, text]) => element("span", {}, sign, text)));
}

// Accuracy by epoch

function epochChart(host, arm) {
  const shown = host.shown ??= new Set(range(arm.models.length));
  if (!host.querySelector("fieldset")) laneChoice(host, arm, shown);
  const models = arm.models.filter((m, k) => shown.has(k) && m.epochs.length);
  const last = Math.max(...arm.models.flatMap(m => m.epochs));
  const values = models.flatMap(m => m.accuracy.flatMap((a, k) => [a - (m.spread[k] ?? 0), a + (m.spread[k] ?? 0)]));
  const { svg, x, y, left, right, top, bottom } = frame(host.querySelector(".plot"), {
    label: `${arm.name}: accuracy by epoch of ${models.length} models; arrow keys read out an epoch`,
    xTicks: width => niceTicks(1, Math.max(2, last), Math.min(last, width / 70)).filter(t => t % 1 === 0).map(t => [t, String(t)]),
    toUnit: epoch => last > 1 ? 0.02 + 0.96 * (epoch - 1) / (last - 1) : 0.5,
    xName: "epoch", yName: `${arm.measure}, %`, values: values.length ? values : [0, 100], focusable: true,
  });
  for (const m of models) {
    const style = laneStyle(m), high = m.epochs.map((e, k) => [x(e), y(m.accuracy[k] + (m.spread[k] ?? 0))]);
    const low = m.epochs.map((e, k) => [x(e), y(m.accuracy[k] - (m.spread[k] ?? 0))]).reverse();
    svg.append(element("path", { d: path([...high, ...low]) + "Z", style: `fill:${style.stroke}`, opacity: Math.min(0.14, 0.5 / models.length) }));
    const line = element("path", { class: "curve", d: path(m.epochs.map((e, k) => [x(e), y(m.accuracy[k])])), ...styled(style) });
    if (m.epochs.length === 1) svg.append(element("circle", { cx: x(m.epochs[0]), cy: y(m.accuracy[0]), r: 4, style: `fill:${style.stroke}` }));
    line.append(element("title", {}, m.title));
    svg.append(line);
  }
  const guide = element("line", { class: "guide", y1: top, y2: bottom, visibility: "hidden" });
  svg.append(guide);
  const readout = host.querySelector("output");
  const read = epoch => {
    host.epoch = Math.min(last, Math.max(1, epoch));
    for (const name of ["x1", "x2"]) guide.setAttribute(name, x(host.epoch));
    guide.setAttribute("visibility", "visible");
    const parts = models.flatMap(m => {
      const k = m.epochs.indexOf(host.epoch);
      return k < 0 ? [] : [`${m.title} ${withSpread(m.accuracy[k], m.spread[k])}`];
    });
    readout.textContent = `Epoch ${host.epoch}: ${parts.join("; ")}`;
  };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const at = (event.clientX - box.left) * scale;
    read(Math.round(1 + ((at - left) / (right - left) - 0.02) / 0.96 * (last - 1)));
  });
  svg.addEventListener("keydown", event => {
    const to = { ArrowLeft: (host.epoch ?? 2) - 1, ArrowRight: (host.epoch ?? 0) + 1, Home: 1, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    read(to);
  });
}

function laneChoice(host, arm, shown) {
  const boxes = arm.models.map((model, k) => {
    const box = element("input", { type: "checkbox", "data-lane": k });
    box.checked = shown.has(k);
    box.addEventListener("change", () => {
      box.checked ? shown.add(k) : shown.delete(k);
      epochChart(host, arm);
    });
    return box;
  });
  const labels = boxes.map((box, k) => element("label", {}, box,
    swatch(element("path", { d: "M1,7H29", ...styled(laneStyle(arm.models[k])) })), arm.models[k].title));
  const choose = (text, wanted) => {
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", () => {
      boxes.forEach((box, k) => { box.checked = wanted; wanted ? shown.add(k) : shown.delete(k); });
      epochChart(host, arm);
    });
    return button;
  };
  const lanes = element("fieldset", {}, element("legend", {}, "Shown"), element("div", { class: "lanes" }, ...labels),
    choose("All", true), " ", choose("None", false));
  host.querySelector(".legend").append(lanes);
  host.querySelector(".plot").after(element("output", { "aria-live": "polite" }));
}

// The bias meter

const PARTS = ["shared", "local", "outside"];
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37]];

function viridis(share) {
  const at = Math.min(1, Math.max(0, share)) * (VIRIDIS.length - 1), k = Math.min(VIRIDIS.length - 2, Math.floor(at));
  return VIRIDIS[k].map((c, n) => Math.round(c + (at - k) * (VIRIDIS[k + 1][n] - c)));
}

function biasChart(host, arm) {
  const lanes = arm.models.filter(m => m.layers.length), distances = lanes.flatMap(m => m.distance.flat()).filter(d => d !== null);
  if (!host.querySelector("select")) {
    const choose = (name, text, options) => {
      const select = element("select", { name }, ...options.map(([value, title]) => element("option", { value }, title)));
      select.addEventListener("change", () => biasChart(host, arm));
      host.querySelector(".controls").append(element("label", { class: "choose" }, text, select));
    };
    choose("lane", "Lane", lanes.map((m, k) => [k, m.title]));
    choose("what", "Shown", [["parts", "shared, local, outside"], ...(distances.length ? [["distance", "distance to the prior"]] : [])]);
    host.querySelector("select").value = String(lanes.length - 1);
  }
  const model = lanes[host.querySelector("[name=lane]").value], parts = host.querySelector("[name=what]").value === "parts";
  const plot = host.querySelector(".plot"), width = Math.max(280, plot.clientWidth), most = Math.max(1e-9, ...distances);
  const names = width > 500 ? 110 : 0.3 * width, random = parts ? 56 : 0, left = names + random, bottom = 40;
  const cell = parts ? 44 : 26, height = cell * model.layers.length + bottom, middle = cell / 2 + 4;
  const wide = Math.min(90, (width - left - 8) / model.epochs.length);
  const what = parts ? "shared, local and outside" : "distance";
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label":
    `${model.title}: ${what} by layer and epoch; the last epoch is in the table below` });
  model.layers.forEach((layer, row) => {
    svg.append(element("text", { x: names - 6, y: cell * row + middle, "text-anchor": "end" }, layer));
    const box = { y: cell * row, height: cell - 4 };
    if (parts) {
      const at = column => part => column === null ? model.random[part][row] : model.parts[part][row][column];
      svg.append(stack({ ...box, x: names, width: random - 12 }, `${layer}, random matrix`, at(null)));
      model.epochs.forEach((epoch, column) =>
        svg.append(stack({ ...box, x: left + wide * column, width: wide + 0.3 }, `${layer}, epoch ${epoch}`, at(column))));
      return;
    }
    model.distance[row].forEach((value, column) => {
      if (value === null) return; // not a finite number
      const colour = viridis(value / most), x = left + wide * column;
      const shown = element("rect", { class: "cell", ...box, x, width: wide + 0.3, fill: `rgb(${colour})` });
      shown.append(element("title", {}, `${layer}, epoch ${model.epochs[column]}: ${value.toFixed(4)}`));
      svg.append(shown);
      const light = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] > 130;
      if (wide >= 36) svg.append(element("text", { x: x + wide / 2, y: cell * row + middle - 2, "text-anchor": "middle",
        style: `fill:${light ? "#000" : "#fff"};pointer-events:none` }, value.toFixed(2)));
    });
  });
  const every = Math.max(1, Math.ceil(36 / wide)), under = { class: "tick", y: height - bottom + 16, "text-anchor": "middle" };
  if (parts) svg.append(element("text", { ...under, x: names + (random - 12) / 2 }, "random"));
  model.epochs.forEach((epoch, column) => {
    if (column % every === 0) svg.append(element("text", { ...under, x: left + wide * (column + 0.5) }, String(epoch)));
  });
  svg.append(element("text", { x: left + wide * model.epochs.length / 2, y: height - 5, "text-anchor": "middle" }, "epoch"));
  plot.replaceChildren(svg);
  const unknown = [...lanes.flatMap(m => Object.values(m.parts).flat(2)), ...lanes.flatMap(m => Object.values(m.random).flat())].includes(null);
  const scale = range(60).map(k => element("rect", { x: 2 * k, y: 0, width: 2.3, height: 14, fill: `rgb(${viridis(k / 59)})` }));
  const key = element("svg", { viewBox: "0 0 120 14", width: 120, height: 14, "aria-hidden": "true" }, ...scale);
  host.querySelector(".legend").replaceChildren(...(parts
    ? [...PARTS, ...(unknown ? ["unknown"] : [])].map(part => element("span", {}, swatch(element("rect", { width: 30, height: 14, fill: `var(--${part})` })),
      part === "unknown" ? "local or outside (a run by an older version)" : part))
    : [element("span", {}, "0", key, most.toFixed(2))]));
}

// A column as high as |W|², its parts from the bottom up; what is not known of it stays on top.
function stack({ x, y, width, height }, name, share) {
  const known = PARTS.filter(part => share(part) !== null);
  const box = element("g", { class: "cell" }, element("title", {}, `${name}: ${known.map(part => `${part} ${share(part).toFixed(4)}`).join(", ")}`));
  let top = y + height;
  for (const part of [...known, "unknown"]) {
    const high = part === "unknown" ? (known.length < PARTS.length ? Math.max(0, top - y) : 0) : height * share(part);
    top -= high;
    if (high > 0) box.append(element("rect", { x, y: top, width, height: high, fill: `var(--${part})` }));
  }
  return box;
}

// Tables

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, k) => row.cells[k].dataset.value;
  heads.forEach((head, k) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].sort((a, b) => {
      const [one, two] = [value(a, k), value(b, k)];
      if (one === "" || two === "") return (one === "") - (two === ""); // what is missing comes last either way
      const numbers = [Number(one), Number(two)];
      const order = numbers.some(Number.isNaN)
        ? Number.isNaN(numbers[0]) - Number.isNaN(numbers[1]) || one.localeCompare(two)
        : numbers[0] - numbers[1];
      return up ? order : -order;
    });
    body.append(...rows);
  }));
}

document.querySelectorAll("table.sortable").forEach(sortable);
addEventListener("beforeprint", () => document.querySelectorAll("details.printed, details.part, .explained").forEach(part => { part.open = true; }));

// A link to something in a closed part opens that part
function reveal(id) {
  const target = id && document.getElementById(id);
  if (!target) return;
  target.querySelectorAll(":scope > details.part").forEach(part => { part.open = true; });
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target.scrollIntoView();
}
document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='#']");
  if (link) reveal(link.getAttribute("href").slice(1));
});
addEventListener("hashchange", () => reveal(location.hash.slice(1)));
reveal(location.hash.slice(1));
const draw = { alpha: alphaChart, epochs: epochChart, bias: biasChart };
const redraw = new ResizeObserver(entries => {
  for (const { target, contentRect } of entries) {
    const host = target.closest("figure");
    if (host.drawn === Math.round(contentRect.width)) continue;
    host.drawn = Math.round(contentRect.width);
    draw[host.dataset.chart](host, arms[host.dataset.arm]);
  }
});
document.querySelectorAll("figure.chart .plot").forEach(plot => redraw.observe(plot));
