// The page: controls, three grids and the matrix, the steps, and alpha. All state is in `state`; `show` draws it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MOST = 256; // rows or columns; entries of a larger matrix are too small to point at
const CELL = 20, GAP = 8; // sizes in the small grids, in SVG units
const AXES = {
  2: ["row", "column"], 3: ["channel", "row", "column"],
  4: ["output channel", "input channel", "row", "column"], 5: ["patch row", "patch column", "channel", "row", "column"],
};
const by = (id) => document.getElementById(id);
const state = { kind: "conv", spec: null, alpha: 1, coupling: "interpolate", pinned: null, hovered: null, step: Infinity };
// a selection is {of: "entry", i, j}, {of: "output", i}, {of: "input", j} or {of: "weight", k}

// What the address asks for after its #, such as kind=conv&kernel=3,3&alpha=0.1&entry=5,7; used once, when the page opens.
let linked = new URLSearchParams(location.hash.slice(1));

const shown = () => state.hovered ?? state.pinned;
const round = (number) => Number(number.toPrecision(3));
const KERNELS = ["position", "output channel", "input channel", "row", "column"]; // of a weight with a kernel for each position
const names = (place, axes = AXES[place.length]) => axes.map((name, axis) => `${name} ${place[axis]}`).join(", ");
const sizes = (shape) => shape.join(" × ");

function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "text", "path", "line", "circle"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// --- Controls

function makeKinds() {
  for (const kind of Object.keys(DATA.kinds)) {
    const radio = element("input", { type: "radio", name: "kind", value: kind });
    radio.checked = kind === state.kind;
    radio.addEventListener("change", () => {
      state.kind = kind;
      linked = new URLSearchParams();
      makeGeometry();
    });
    by("kinds").append(element("label", {}, radio, element("span", {}, kind)));
  }
}

function makeGeometry() {
  const { equation, meaning, place } = DATA.kinds[state.kind];
  by("meaning").replaceChildren(element("code", {}, equation), ` (${place}): ${meaning}.`);
  by("geometry").replaceChildren(...BUILD[state.kind].fields.map(([name, least, most, ...first]) => {
    const label = name.replace("_", " "), given = linked.get(name)?.split(",") ?? [];
    const inputs = first.map((value, axis) => {
      const own = first.length > 1 ? `${label}, ${["vertical", "horizontal"][axis]}` : label;
      return element("input", {
        type: "number", name, min: least, max: most, value: given[axis] ?? value, inputmode: "numeric", "aria-label": own, "aria-describedby": "error",
      });
    });
    const controls = inputs.flatMap((input, axis) => (axis ? [element("span", { "aria-hidden": true }, "×"), input] : [input]));
    return element("div", { class: "field" }, element("span", { "aria-hidden": true }, label), element("div", {}, ...controls));
  }));
  rebuild();
}

function readGeometry() {
  const geometry = {};
  for (const [name, least, most, ...first] of BUILD[state.kind].fields) {
    const values = [...by("geometry").querySelectorAll(`[name=${name}]`)].map((input) => {
      const value = Number(input.value);
      if (input.value === "" || !Number.isInteger(value) || value < least || value > most) {
        const given = input.value === "" ? "not a number" : input.value;
        throw new GeometryError(name, `${name.replace("_", " ")} is ${given}`, `give a whole number from ${least} to ${most}`);
      }
      return value;
    });
    geometry[name] = first.length > 1 ? values : values[0];
  }
  return geometry;
}

function rebuild() {
  let spec, problem = null;
  try {
    spec = build(state.kind, readGeometry());
    if (Math.max(...spec.shape) > MOST) {
      const [count, of] = spec.shape[0] > spec.shape[1] ? [spec.shape[0], "output"] : [spec.shape[1], "input"];
      const field = of === "input" ? "height" : BUILD[state.kind].fields === WINDOW ? "out_channels" : "dim";
      throw new GeometryError(field, `the ${of} has ${count} numbers, and at most ${MOST} can be seen`,
        `make ${field.replace("_", " ")} smaller`);
    }
  } catch (error) {
    if (!(error instanceof GeometryError)) throw error;
    problem = error;
  }
  for (const input of by("geometry").querySelectorAll("input")) {
    input.setAttribute("aria-invalid", problem !== null && input.name === problem.field);
  }
  by("error").hidden = problem === null;
  by("error").textContent = problem?.message ?? "";
  document.querySelector(".stage").classList.toggle("broken", problem !== null);
  if (problem !== null) return;

  state.spec = spec;
  state.pattern = pattern(spec);
  state.weight = spec.weight && uniform(product(spec.weight), spec.fanIn ?? product(spec.weight.slice(1)), 2024);
  state.prior = Float64Array.from(state.pattern, (k) => (k < 0 ? 0 : state.weight ? state.weight[k] : 1));
  state.dense = uniform(product(spec.shape), spec.shape[1], 7);
  state.x = Float64Array.from(range(spec.shape[1]), (j) => {
    const [row, column] = unravel(j, spec.input).slice(-2);
    return 0.55 + 0.45 * Math.sin(1.3 * row + 0.9 * column + 2 * div(j, product(spec.input.slice(-2))));
  });
  state.hovered = null;
  state.pinned = { of: "entry", ...entryOf({ of: "output", i: div(spec.shape[0], 2) }) };
  makeGrids();
  mix();
}

// --- The small grids: blocks of cells, one block per channel or patch

const GRIDS = {
  input: { shape: (spec) => spec.input, index: "j", label: "Input" },
  output: { shape: (spec) => spec.output, index: "i", label: "Output" },
  weight: { shape: (spec) => spec.weight, index: "k", label: "Weight" },
};

function makeGrids() {
  for (const [id, grid] of Object.entries(GRIDS)) {
    const shape = grid.shape(state.spec), holder = by(id);
    by(`${id}-shape`).textContent = shape ? sizes(shape) : "";
    holder.replaceChildren();
    for (const name of ["tabindex", "role", "aria-label"]) holder.removeAttribute(name);
    grid.cells = [];
    if (!shape) {
      holder.append(element("p", { class: "quiet" }, "None: a permutation has only ones and zeros."));
      continue;
    }
    const [rows, cols] = shape.slice(-2), blocks = product(shape.slice(0, -2));
    const local = id === "weight" && shape.length === 5; // kernels that stand as their positions do
    const aligned = shape.length === 5 ? shape[1] * shape[2] : shape.length === 4 ? shape[1] : 1; // blocks that belong side by side
    const across = local ? state.spec.output[2] * shape[2] : aligned > 1 ? aligned : Math.ceil(Math.sqrt(blocks));
    const blockAt = (block) => {
      if (!local) return [div(block, across), block % across];
      const [p, o, c] = unravel(block, shape.slice(0, 3)), [y, x] = unravel(p, state.spec.output.slice(1));
      return [y * shape[1] + o, x * shape[2] + c];
    };
    const named = blocks > 1, head = named ? 9 : 0; // room for a block's name
    const wide = Math.min(across, blocks), high = Math.ceil(blocks / across);
    const size = [wide * (cols * CELL + GAP) - GAP + 2, high * (rows * CELL + head + GAP) - GAP + 2];
    const svg = element("svg", { viewBox: `-1 -1 ${size.join(" ")}`, "aria-hidden": true });
    svg.style.maxWidth = `${Math.round(size[0] * 2.2)}px`;
    grid.places = new Map(); // "row,column" over all blocks -> index, for the arrow keys
    for (const block of range(blocks)) {
      const [down, right] = blockAt(block), left = right * (cols * CELL + GAP), top = down * (rows * CELL + head + GAP);
      if (named) svg.append(element("text", { class: "label", x: left, y: top + 4 }, blockName(shape, block, local)));
      for (const cell of range(rows * cols)) {
        const index = block * rows * cols + cell, [r, c] = [div(cell, cols), cell % cols];
        const at = { x: left + c * CELL, y: top + head + r * CELL, width: CELL, height: CELL };
        const inner = { x: at.x + 1, y: at.y + 1, width: CELL - 2, height: CELL - 2, class: "tint" };
        const group = element("g", { "data-index": index }, element("rect", at), element("rect", inner),
          element("text", { x: at.x + CELL / 2, y: at.y + CELL / 2 }, `${index}`));
        svg.append(group);
        grid.cells.push(group);
        grid.places.set(`${down * rows + r},${right * cols + c}`, index);
      }
    }
    holder.append(svg);
    holder.tabIndex = 0;
    holder.setAttribute("role", "application");
    holder.setAttribute("aria-label", `${grid.label}, ${shape.join(" by ")}. Arrow keys move.`);
    holder.setAttribute("aria-describedby", "readout");
  }
}

function blockName(shape, block, local) {
  const place = unravel(block, shape.slice(0, -2));
  if (local) {
    const [p, o, c] = place, at = unravel(p, state.spec.output.slice(1)).join(", ");
    return shape[1] * shape[2] > 1 ? `${at}: ${o} ← ${c}` : at;
  }
  if (shape.length === 3) return `channel ${place[0]}`;
  if (shape.length === 4) return `${place[0]} ← ${place[1]}`;
  return `patch ${place[0] * shape[1] + place[1]}${shape[2] > 1 ? `.${place[2]}` : ""}`;
}

for (const [id, grid] of Object.entries(GRIDS)) {
  const holder = by(id);
  const pointed = (event) => {
    const index = event.target.closest("[data-index]")?.dataset.index;
    return index === undefined ? null : { of: id, [grid.index]: Number(index) };
  };
  holder.addEventListener("pointermove", (event) => hover(pointed(event)));
  holder.addEventListener("pointerleave", () => hover(null));
  holder.addEventListener("click", (event) => pin(pointed(event)));
  holder.addEventListener("keydown", (event) => {
    const move = ARROWS[event.key];
    if (!move || !grid.cells.length) return;
    event.preventDefault();
    const now = state.pinned.of === id ? state.pinned[grid.index] : null;
    const from = [...grid.places].find(([, index]) => index === now)?.[0].split(",").map(Number);
    const to = from ? grid.places.get(`${from[0] + move[0]},${from[1] + move[1]}`) : firstLit(id);
    if (to !== undefined) pin({ of: id, [grid.index]: to });
  });
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const firstLit = (id) => [...lit()[id]][0] ?? 0;

// --- What is selected, and what that lights up

function hover(selection) {
  if (JSON.stringify(selection) === JSON.stringify(state.hovered)) return;
  state.hovered = selection;
  show();
}

function pin(selection) {
  if (selection === null) return;
  state.pinned = selection;
  state.hovered = null;
  show();
}

// The entry that represents a selection: the entry itself, or the middle one of a row, a column or a weight.
function entryOf(selection) {
  const [mOut, mIn] = state.spec.shape;
  if (selection.of === "entry") return { i: selection.i, j: selection.j };
  let found;
  if (selection.of === "output") {
    found = range(mIn).map((j) => selection.i * mIn + j).filter((at) => state.pattern[at] >= 0);
    found = found.length ? found : [selection.i * mIn];
  } else if (selection.of === "input") {
    found = range(mOut).map((i) => i * mIn + selection.j).filter((at) => state.pattern[at] >= 0);
    found = found.length ? found : [selection.j];
  } else {
    found = range(mOut * mIn).filter((at) => state.pattern[at] === selection.k);
    found = found.length ? found : [0];
  }
  const at = found[div(found.length, 2)];
  return { i: div(at, mIn), j: at % mIn };
}

function lit() {
  const selection = shown(), mIn = state.spec.shape[1];
  const on = { input: new Set(), output: new Set(), weight: new Set(), entries: [] };
  const join = (i, j) => {
    on.output.add(i);
    on.input.add(j);
    on.entries.push([i, j]);
    if (state.weight && state.pattern[i * mIn + j] >= 0) on.weight.add(state.pattern[i * mIn + j]);
  };
  if (selection.of === "entry") {
    join(selection.i, selection.j);
    return on;
  }
  if (selection.of !== "weight") on[selection.of].add(selection.i ?? selection.j);
  if (selection.of === "weight") on.weight.add(selection.k);
  state.pattern.forEach((k, at) => {
    const i = div(at, mIn), j = at % mIn;
    if (k >= 0 && (selection.i ?? i) === i && (selection.j ?? j) === j && (selection.k ?? k) === k) join(i, j);
  });
  return on;
}

// --- Drawing

// Recompute what depends on alpha (the matrix, its picture with one pixel per entry, the output), then draw everything.
function mix() {
  const { dense, prior, x, alpha } = state, [mOut, mIn] = state.spec.shape;
  for (const option of by("coupling").options) option.disabled = COUPLINGS[option.value].needsWeight && !state.weight;
  if (by("coupling").selectedOptions[0].disabled) by("coupling").value = "interpolate";
  state.coupling = by("coupling").value;
  state.mixed = coupled(state.coupling, dense, prior, state.pattern, alpha);
  state.largest = state.mixed.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  state.y = range(mOut).map((i) => x.reduce((sum, value, j) => sum + state.mixed[i * mIn + j] * value, 0));
  const [zero, positive, negative] = ["--cell", "--positive", "--negative"].map(rgb), pixels = new ImageData(mIn, mOut);
  state.mixed.forEach((value, at) => {
    const share = Math.abs(value) / state.largest, full = value < 0 ? negative : positive;
    for (let part = 0; part < 3; part++) pixels.data[4 * at + part] = zero[part] + share * (full[part] - zero[part]);
    pixels.data[4 * at + 3] = 255;
  });
  state.picture = element("canvas", { width: mIn, height: mOut });
  state.picture.getContext("2d").putImageData(pixels, 0, 0);
  showValues();
  showAlpha();
  show();
}

// The address restores what is shown.
let addressing = null;

function showLink() {
  const { kind, coupling, alpha } = state, { i, j } = entryOf(state.pinned), fields = new URLSearchParams({ kind });
  for (const [name] of BUILD[kind].fields) {
    fields.set(name, [...by("geometry").querySelectorAll(`[name=${name}]`)].map((input) => input.value).join(","));
  }
  for (const [name, value] of Object.entries({ coupling, alpha: round(alpha), entry: `${i},${j}` })) fields.set(name, value);
  by("link").href = `#${decodeURIComponent(fields)}`;
  clearTimeout(addressing);
  addressing = setTimeout(() => history.replaceState(null, "", by("link").href), 200); // browsers refuse hundreds in a row
}

function show() {
  const on = lit();
  showLink();
  showGrids(on);
  showMatrix(on);
  showReadout(on);
  showSteps();
}

function showGrids(on) {
  for (const [id, { cells }] of Object.entries(GRIDS)) cells.forEach((cell, index) => cell.classList.toggle("lit", on[id].has(index)));
}

function showValues() {
  for (const [id, values] of [["input", state.x], ["output", state.y], ["weight", state.weight ?? []]]) {
    const largest = Math.max(...values.map(Math.abs), 1e-12);
    GRIDS[id].cells.forEach((cell, index) => {
      const { style } = cell.children[1];
      style.fill = values[index] < 0 ? "var(--negative)" : "var(--positive)";
      style.fillOpacity = (0.5 * Math.abs(values[index])) / largest;
    });
  }
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function rgb(name) {
  return colour(name).match(/\w\w/g).map((hex) => parseInt(hex, 16));
}

function showMatrix(on) {
  const canvas = by("matrix"), [mOut, mIn] = state.spec.shape, ratio = window.devicePixelRatio || 1;
  const room = canvas.parentElement.clientWidth;
  const cell = Math.min(room / mIn, 640 / mOut, 40), width = cell * mIn, height = cell * mOut;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(state.picture, 0, 0, canvas.width, canvas.height);
  pen.scale(canvas.width / mIn, canvas.height / mOut); // from here on one unit is one entry

  pen.strokeStyle = colour("--line");
  pen.lineWidth = 1 / (cell * ratio);
  if (cell >= 6) {
    pen.beginPath();
    for (const i of range(mOut + 1)) pen.rect(0, i, mIn, 0);
    for (const j of range(mIn + 1)) pen.rect(j, 0, 0, mOut);
    pen.stroke();
  }
  const selection = shown();
  pen.fillStyle = colour("--band");
  pen.strokeStyle = colour("--lit");
  pen.lineWidth = Math.min(2, cell / 4) / cell;
  for (const band of [[0, selection.i, mIn, 1], [selection.j, 0, 1, mOut]]) {
    if (band.includes(undefined)) continue;
    pen.fillRect(...band);
    pen.strokeRect(...band);
  }
  for (const [thick, name] of [[5, "--ink"], [3, "--lit"]]) {
    pen.strokeStyle = colour(name);
    pen.lineWidth = (thick * Math.min(1, cell / 10)) / cell;
    for (const [i, j] of on.entries) pen.strokeRect(j, i, 1, 1);
  }
  const { formula, knob } = COUPLINGS[state.coupling], plain = state.coupling === "interpolate" && state.alpha === 1;
  by("matrix-name").textContent = plain ? DATA.kinds[state.kind].equation : `${formula}${knob ? `, ${knob} = ${round(state.alpha)}` : ""}`;
  by("matrix-shape").textContent = `${sizes(state.spec.shape)}, ${state.pattern.filter((k) => k >= 0).length} non-zeros${plain ? "" : " in W_P"}`;
  canvas.setAttribute("aria-label", `Matrix of ${mOut} rows and ${mIn} columns. Arrow keys move.`);
  by("key-low").textContent = `−${round(state.largest)}`;
  by("key-high").textContent = `${round(state.largest)}`;
}

function showReadout(on) {
  const selection = shown(), { spec, weight } = state, mIn = spec.shape[1];
  const count = (n, thing) => `${n} ${thing}${n === 1 ? "" : "s"}`;
  let head, text;
  if (selection.of === "entry") {
    const { i, j } = selection, found = explain(spec, i, j), value = state.prior[i * mIn + j];
    const tap = found.tap && found.tap.length ? ` through ${found.conclusion.split(" = ")[1]} = ${round(value)}` : "";
    head = `Entry (${i}, ${j})`;
    text = `output ${i} (${names(found.output)}) ${found.tap ? "reads" : "does not read"} input ${j} (${names(found.input)})${tap}.`;
    if (!found.tap) text += ` The entry is ${found.conclusion}.`;
    if (state.alpha < 1 || state.coupling !== "interpolate") text += ` Coupled with W: ${round(state.mixed[i * mIn + j])}.`;
  } else if (selection.of === "output") {
    head = `Output ${selection.i}`;
    text = `${names(unravel(selection.i, spec.output))}. Its row of W_P reads ${count(on.input.size, "input")}: its receptive field.`;
  } else if (selection.of === "input") {
    head = `Input ${selection.j}`;
    text = `${names(unravel(selection.j, spec.input))}. Its column of W_P: ${count(on.output.size, "output")} read it.`;
  } else {
    head = `Weight ${selection.k}`;
    text = `${names(unravel(selection.k, spec.weight), spec.weight.length === 5 ? KERNELS : undefined)}, ${round(weight[selection.k])}. It fills ${count(on.entries.length, "entry")
      .replace("entrys", "entries")} of W_P${on.entries.length > 1 ? ", all with the same number" : ""}.`;
  }
  by("readout").replaceChildren(element("b", {}, head), `: ${text}`);
}

function showSteps() {
  const { i, j } = entryOf(shown()), found = explain(state.spec, i, j), count = found.steps.length;
  const now = Math.min(state.step, count);
  for (const [id, value, size] of [["row", i, state.spec.shape[0]], ["column", j, state.spec.shape[1]]]) {
    if (document.activeElement !== by(id)) by(id).value = value;
    by(id).max = size - 1;
  }
  const items = [];
  found.steps.forEach((step, index) => {
    if (step.part !== found.steps[index - 1]?.part) {
      items.push(element("li", { class: "part" }, element("code", {}, step.part), ` (${DATA.paper[step.part]})`));
    }
    const numbers = index <= now ? ` = ${step.numbers} = ${step.value}` : "";
    const name = index === now ? "step now" : index > now ? "step later" : "step";
    items.push(element("li", { class: name }, element("small", {}, step.meaning), `${step.name} = ${step.formula}${numbers}`));
  });
  by("steps").replaceChildren(...items);
  by("progress").textContent = now < count ? `Step ${now + 1} of ${count}` : `All ${count} steps`;
  const value = found.tap?.length ? ` = ${round(state.prior[i * state.spec.shape[1] + j])}` : "";
  by("conclusion").textContent = now < count ? "" : `entry (${i}, ${j}) = ${found.conclusion}${value}`;
}

function step(move) {
  const { i, j } = entryOf(shown()), count = explain(state.spec, i, j).steps.length;
  state.step = (Math.min(state.step, count) + move + count + 1) % (count + 1);
  showSteps();
}

// --- Alpha. The slider is the cube root of alpha, so that small ones have room.

const CURVES = { step: "mixing after every step", epoch: "mixing once per epoch" };
const percent = (share) => `${(100 * share).toFixed(2)} %`;
const spread = ({ accuracy, std }) => std === null ? percent(accuracy) : `${(100 * accuracy).toFixed(2)} ± ${(100 * std).toFixed(2)} %`;
const HALF_STEP = 0.0051; // of the slider

// The accuracy at alpha: measured, or interpolated linearly between the two nearest measurements.
function accuracyAt(points, alpha) {
  const place = Math.cbrt, near = points.find((point) => Math.abs(place(point.alpha) - place(alpha)) < HALF_STEP);
  if (near) return { value: near.accuracy, text: spread(near), note: `measured at ${near.alpha}` };
  const after = points.findIndex((point) => point.alpha >= alpha), [low, high] = [points[after - 1], points[after]];
  const share = (place(alpha) - place(low.alpha)) / (place(high.alpha) - place(low.alpha));
  const value = low.accuracy + share * (high.accuracy - low.accuracy);
  return { value, text: percent(value), note: `interpolated between ${spread(low)} at ${low.alpha} and ${spread(high)} at ${high.alpha}` };
}

function showAlpha() {
  const { curves, prior, what, parameters } = DATA.accuracy;
  const { knob } = COUPLINGS[state.coupling];
  by("alpha-name").textContent = knob ?? "α";
  by("alpha-value").textContent = knob ? `${round(state.alpha)}` : "not used";
  by("alpha").disabled = !knob;
  const measured = ["conv", "local"].includes(state.kind), same = state.kind === "conv" && state.coupling === "interpolate";
  by("accuracy-of").textContent = !measured
    ? "No accuracy is shown: the record has no curve of networks with layers of an MLP-Mixer at the paper's length."
    : same ? "Test accuracy of a network trained with" : "For comparison, a network with convolutions, trained with interpolate,";
  by("alpha").setAttribute("aria-valuetext", `${knob === "g" ? "g" : "alpha"} ${round(state.alpha)}`);
  const svg = by("curve"), width = svg.clientWidth, height = 130, side = 8, foot = 6;
  const all = [prior.accuracy, ...Object.values(curves).flat().map((point) => point.accuracy)];
  const low = Math.floor(10 * Math.min(...all) - 0.2) / 10, high = Math.ceil(10 * Math.max(...all) + 0.2) / 10;  // whole tens of per cent
  const x = (alpha) => side + Math.cbrt(alpha) * (width - 2 * side);
  const y = (accuracy) => height - foot - ((accuracy - low) / (high - low)) * (height - foot);
  const parts = [
    element("line", { class: "axis", x1: 0, x2: width, y1: y(low), y2: y(low) }),
    element("line", { class: "prior", x1: 0, x2: width, y1: y(prior.accuracy), y2: y(prior.accuracy) }),
    element("line", { class: "at", x1: x(state.alpha), x2: x(state.alpha), y1: 0, y2: height }),
  ];
  const list = [];
  for (const [name, meaning] of Object.entries(CURVES).filter(([name]) => curves[name])) {
    const path = curves[name].map((point) => `${x(point.alpha)},${y(point.accuracy)}`).join("L");
    parts.push(element("path", { class: `line ${name}`, d: `M${path}` }));
    for (const p of curves[name]) {
      if (p.std !== null) parts.push(element("path", { class: `line ${name}`, d: `M${x(p.alpha)},${y(p.accuracy - p.std)}V${y(p.accuracy + p.std)}` }));
      parts.push(element("circle", { class: name, cx: x(p.alpha), cy: y(p.accuracy), r: 2.5 }));
    }
    const { value, text, note } = accuracyAt(curves[name], state.alpha);
    parts.push(element("circle", { class: name, cx: x(state.alpha), cy: y(value), r: 5 }));
    const term = element("dt", { style: `--colour: var(--${name === "step" ? "accent" : "negative"})` }, meaning);
    list.push(term, element("dd", { "data-curve": name }, text), element("dd", { class: "note", "data-note": name }, note));
  }
  list.push(element("dt", { class: "prior" }, "the prior itself"), element("dd", {}, spread(prior)));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const zero = Object.values(curves)[0][0];
  svg.setAttribute("aria-label", `Test accuracy by alpha: the prior has ${spread(prior)}, the plain MLP ${spread(zero)}`);
  svg.replaceChildren(...parts);
  by("accuracy").replaceChildren(...list);
  for (const id of ["curve", "accuracy", "measured"]) by(id).toggleAttribute("hidden", !measured);
  by("measured").textContent =
    `The accuracies were measured with networks trained for each point; they are not computed on this page. They are the paper's figure 2 ` +
    `as far as it is on record: CIFAR-10, ${what}. The prior is a CNN with ${parameters.prior.toLocaleString("en")} parameters; MLPs with ` +
    `${parameters.dense.toLocaleString("en")} parameters were trained beside it and mixed with it. ± is the standard deviation over ` +
    `seeds. Points are connected by straight lines; the axis goes from ${Math.round(100 * low)} to ${Math.round(100 * high)} %. The slider is the cube root of alpha, because most changes happen at small alphas. ` +
    `The matrix shown here is a small one, coupled once with a random W (U of a pathway or gate); the curves are those of interpolate.`;
}

function setAlpha(place) {
  by("alpha").value = place;
  state.alpha = place ** 3;
  mix();
}

// Play: alpha from where it is, or from 0 again, to 1 in six seconds.
let playing = null;

function play() {
  const from = Number(by("alpha").value) % 1, begun = performance.now();
  by("play").textContent = "Pause";
  playing = setInterval(() => {
    const place = Math.min(1, from + (performance.now() - begun) / 6000);
    setAlpha(Math.round(100 * place) / 100);
    if (place === 1) stop();
  }, 50);
}

function stop() {
  clearInterval(playing);
  playing = null;
  by("play").textContent = "Play";
}

// --- Events

by("geometry").addEventListener("input", rebuild);
by("geometry").addEventListener("submit", (event) => event.preventDefault());
by("previous").addEventListener("click", () => step(-1));
by("next").addEventListener("click", () => step(1));
by("coupling").addEventListener("input", mix);
by("alpha").addEventListener("input", () => {
  stop();
  setAlpha(Number(by("alpha").value));
});
by("play").addEventListener("click", () => (playing ? stop() : play()));
for (const id of ["row", "column"]) {
  by(id).addEventListener("input", () => {
    const [i, j] = ["row", "column"].map((name) => Number(by(name).value)), [mOut, mIn] = state.spec.shape;
    const fits = by(id).value !== "" && [i, j].every((index, axis) => Number.isInteger(index) && index >= 0 && index < [mOut, mIn][axis]);
    by(id).setAttribute("aria-invalid", !fits);
    if (fits) pin(id === "row" ? { of: "entry", ...entryOf({ of: "output", i }) } : { of: "entry", i, j });
  });
  by(id).addEventListener("blur", () => {
    by(id).setAttribute("aria-invalid", false);
    showSteps();
  });
}

function entryAt(event) {
  const box = by("matrix").getBoundingClientRect(), [mOut, mIn] = state.spec.shape;
  const place = [[event.clientY - box.top, box.height, mOut], [event.clientX - box.left, box.width, mIn]];
  const [i, j] = place.map(([at, size, count]) => Math.min(Math.max(div(at * count, size), 0), count - 1));
  return { of: "entry", i, j };
}
by("matrix").addEventListener("pointermove", (event) => hover(entryAt(event)));
by("matrix").addEventListener("pointerleave", () => hover(null));
by("matrix").addEventListener("click", (event) => pin(entryAt(event)));
by("matrix").addEventListener("keydown", (event) => {
  const move = ARROWS[event.key], { i, j } = entryOf(state.pinned), [mOut, mIn] = state.spec.shape;
  if (!move) return;
  event.preventDefault();
  const inside = (index, count) => Math.min(Math.max(index, 0), count - 1);
  pin({ of: "entry", i: inside(i + move[0], mOut), j: inside(j + move[1], mIn) });
});

addEventListener("resize", mix);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", mix);

// Show what the address asks for. What it does not say, or says wrongly, is as usual.
function open() {
  if (Object.hasOwn(DATA.kinds, linked.get("kind"))) state.kind = linked.get("kind");
  by("kinds").querySelector(`[value=${state.kind}]`).checked = true;
  if (Object.hasOwn(COUPLINGS, linked.get("coupling"))) by("coupling").value = linked.get("coupling");
  const alpha = Number(linked.get("alpha") ?? 1), [i, j] = (linked.get("entry") ?? "").split(",").map(Number);
  if (alpha >= 0 && alpha <= 1) by("alpha").value = Math.cbrt(state.alpha = alpha);
  makeGeometry();
  if (state.pattern?.[i * state.spec.shape[1] + j] !== undefined && i >= 0 && j >= 0 && j < state.spec.shape[1]) pin({ of: "entry", i, j });
  linked = new URLSearchParams();
}
addEventListener("hashchange", () => {
  linked = new URLSearchParams(location.hash.slice(1));
  open();
});

makeKinds();
open();
