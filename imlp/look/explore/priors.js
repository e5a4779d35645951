"use strict";
// The maths of the page: specs, their matrices and the derivation of an entry, from the paper's formulas.
// Nothing is drawn here. A test compares all of it with imlp.reference and imlp.look.explain.

class GeometryError extends Error {
  constructor(field, problem, remedy) {
    super(`${problem}; ${remedy}`);
    this.field = field; // the control that holds the wrong value
  }
}

const div = (a, b) => Math.floor(a / b);
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const range = (n) => Array.from({ length: n }, (_, k) => k);

function unravel(index, shape) {
  const place = [];
  for (const size of [...shape].reverse()) {
    place.unshift(index % size);
    index = div(index, size);
  }
  return place;
}

const ravel = (place, shape) => place.reduce((index, at, axis) => index * shape[axis] + at, 0);

// --- Specs: geometry, checked when made. Each has `shape` [M_out, M_in], `input`, `output` and `weight`.

const divisors = (n) => range(n).map((k) => k + 1).filter((d) => n % d === 0);
const oneOf = (numbers) => (numbers.length > 1 ? `one of ${numbers.join(", ")}` : `${numbers[0]}`);
const gcd = (a, b) => (b ? gcd(b, a % b) : a);

// What Conv and Local share; `type` is either.
function Window(type, input, channels, kernel, stride, padding, dilation, groups) {
  for (const [name, count] of [["input", input[0]], ["output", channels]]) {
    if (count % groups) {
      throw new GeometryError("groups", `${type}.groups ${groups} does not divide the ${count} ${name} channels`,
        `use ${oneOf(divisors(gcd(input[0], channels)))}`);
    }
  }
  const reach = kernel.map((k, axis) => dilation[axis] * (k - 1) + 1);
  for (const axis of [0, 1]) {
    const size = input[1 + axis], padded = size + 2 * padding[axis];
    if (reach[axis] > padded) {
      throw new GeometryError("kernel",
        `${type}.kernel ${kernel[axis]} with dilation ${dilation[axis]} spans ${reach[axis]} pixels, but the padded ` +
        `${["height", "width"][axis]} is ${size} + 2 * ${padding[axis]} = ${padded}`,
        `use a kernel that spans at most ${padded}, or a padding of at least ${-div(size - reach[axis], 2)}`);
    }
  }
  const places = [0, 1].map((axis) => div(input[1 + axis] + 2 * padding[axis] - reach[axis], stride[axis]) + 1);
  const output = [channels, ...places];
  const one = [channels, input[0] / groups, ...kernel];
  const weight = type === "Local" ? [product(places), ...one] : one; // a kernel for each place, or one for all
  const shape = [product(output), product(input)];
  return { type, input, output, weight, fanIn: product(one.slice(1)), shape, kernel, stride, padding, dilation, groups };
}

function Patchify(channels, height, width, patch) {
  for (const [name, size] of [["height", height], ["width", width]]) {
    if (size % patch) {
      throw new GeometryError("patch", `Patchify.patch ${patch} does not divide the ${name} ${size}`,
        `use ${oneOf(divisors(size))}`);
    }
  }
  const size = channels * height * width, grid = [height / patch, width / patch];
  const output = [...grid, channels, patch, patch];
  return { type: "Patchify", input: [channels, height, width], output, weight: null, shape: [size, size], patch, grid };
}

function Transpose(rows, cols) {
  const size = rows * cols;
  return { type: "Transpose", input: [rows, cols], output: [cols, rows], weight: null, shape: [size, size] };
}

function Shared(rows, inFeatures, outFeatures) {
  const shape = [rows * outFeatures, rows * inFeatures];
  return { type: "Shared", input: [rows, inFeatures], output: [rows, outFeatures], weight: [outFeatures, inFeatures], shape };
}

function Chain(...parts) {
  const last = parts[parts.length - 1];
  const weight = parts.map((part) => part.weight).find((shape) => shape) ?? null;
  return { type: "Chain", input: parts[0].input, output: last.output, weight, shape: [last.shape[0], parts[0].shape[1]], parts };
}

// --- The kinds: their controls as [name, least, most, initial value] (a pair has two initial values), and their spec

const IMAGE = [["channels", 1, 4, 1], ["height", 1, 12, 5], ["width", 1, 12, 5]];
const WINDOW = [...IMAGE, ["out_channels", 1, 4, 1], ["kernel", 1, 5, 3, 3], ["stride", 1, 4, 1, 1],
  ["padding", 0, 3, 1, 1], ["dilation", 1, 3, 1, 1], ["groups", 1, 4, 1]];
const sliding = (type, g) =>
  Window(type, [g.channels, g.height, g.width], g.out_channels, g.kernel, g.stride, g.padding, g.dilation, g.groups);
const MIXING = [["patches", 1, 12, 4], ["dim", 1, 12, 3], ["hidden", 1, 12, 5]];

const BUILD = {
  conv: { fields: WINDOW, make: (g) => sliding("Conv", g) },
  local: { fields: WINDOW, make: (g) => sliding("Local", g) },
  patchify: {
    fields: [["channels", 1, 3, 1], ["height", 1, 12, 4], ["width", 1, 12, 6], ["patch", 1, 6, 2]],
    make: (g) => Patchify(g.channels, g.height, g.width, g.patch),
  },
  transpose: {
    fields: [["rows", 1, 12, 3], ["cols", 1, 12, 5]],
    make: (g) => Transpose(g.rows, g.cols),
  },
  shared: {
    fields: [["rows", 1, 12, 4], ["in_features", 1, 12, 5], ["out_features", 1, 12, 3]],
    make: (g) => Shared(g.rows, g.in_features, g.out_features),
  },
  "patch-embed": {
    fields: [["channels", 1, 3, 1], ["height", 1, 12, 4], ["width", 1, 12, 6], ["patch", 1, 6, 2], ["dim", 1, 12, 3]],
    make: (g) => {
      const cut = Patchify(g.channels, g.height, g.width, g.patch), patches = product(cut.grid);
      return Chain(cut, Shared(patches, cut.shape[1] / patches, g.dim));
    },
  },
  "token-mix-in": {
    fields: MIXING,
    make: (g) => Chain(Transpose(g.patches, g.dim), Shared(g.dim, g.patches, g.hidden)),
  },
  "token-mix-out": {
    fields: MIXING,
    make: (g) => Chain(Shared(g.dim, g.hidden, g.patches), Transpose(g.dim, g.patches)),
  },
  "channel-mix": {
    fields: MIXING,
    make: (g) => Shared(g.patches, g.dim, g.hidden),
  },
};

const build = (kind, geometry) => BUILD[kind].make(geometry);

// --- Matrices. `pattern` says which number of the weight fills each entry, or -1 for none; a permutation's 1 is number 0.

function pattern(spec) {
  const [mOut, mIn] = spec.shape, filled = new Int32Array(mOut * mIn).fill(-1);
  if (spec.type === "Conv" || spec.type === "Local") {
    const [, hIn, wIn] = spec.input, [cOut, hOut, wOut] = spec.output, one = spec.weight.slice(-4), perGroup = one[1];
    for (const [o, q, a, b] of range(product(one)).map((k) => unravel(k, one))) {
      const c = div(o, cOut / spec.groups) * perGroup + q;
      for (const y of range(hOut)) {
        for (const x of range(wOut)) {
          const v = y * spec.stride[0] + a * spec.dilation[0] - spec.padding[0];
          const u = x * spec.stride[1] + b * spec.dilation[1] - spec.padding[1];
          if (v < 0 || v >= hIn || u < 0 || u >= wIn) continue;
          const first = spec.type === "Local" ? (y * wOut + x) * product(one) : 0;
          filled[((o * hOut + y) * wOut + x) * mIn + (c * hIn + v) * wIn + u] = first + ravel([o, q, a, b], one);
        }
      }
    }
  } else if (spec.type === "Shared") {
    const [cOut, cIn] = spec.weight;
    for (const r of range(spec.input[0])) {
      for (const o of range(cOut)) {
        for (const k of range(cIn)) filled[(r * cOut + o) * mIn + r * cIn + k] = o * cIn + k;
      }
    }
  } else if (spec.type === "Chain") {
    return spec.parts.map((part) => [part, pattern(part)]).reduce(multiply)[1];
  } else {
    for (const i of range(mOut)) filled[i * mIn + source(spec, i, "i", [])] = 0;
  }
  return filled;
}

// The product of two patterns, at least one of them a permutation's; `second` is the left factor.
function multiply([first, a], [second, b]) {
  const mOut = second.shape[0], inner = first.shape[0], mIn = first.shape[1];
  const filled = new Int32Array(mOut * mIn).fill(-1);
  for (const i of range(mOut)) {
    for (const m of range(inner)) {
      if (b[i * inner + m] < 0) continue;
      for (const j of range(mIn)) {
        if (a[m * mIn + j] >= 0) filled[i * mIn + j] = first.weight ? a[m * mIn + j] : b[i * inner + m];
      }
    }
  }
  return [Chain(first, second), filled];
}

// What each coupling makes of W: `prior` is W_P, `pattern` says which number fills which entry, `alpha` is the gate's g too.
const COUPLINGS = {
  interpolate: { formula: "(1 − α) W + α W_P", knob: "α" },
  add: { formula: "W + α W_P", knob: "α" },
  self: { formula: "(1 − α) W + α Π(W)", knob: "α", needsWeight: true },
  locality: { formula: "W − α (W − M ∘ W)", knob: "α", needsWeight: true },
  sharing: { formula: "W − α (M ∘ W − Π(W))", knob: "α", needsWeight: true },
  relax: { formula: "W_P, then trained freely", needsWeight: true },
  pathway: { formula: "matrix(w) + U", needsWeight: true },
  gate: { formula: "g matrix(w) + (1 − g) U", knob: "g", needsWeight: true },
};

function coupled(coupling, W, prior, pattern, alpha) {
  const sums = [], counts = [];
  pattern.forEach((k, at) => {
    if (k < 0) return;
    sums[k] = (sums[k] ?? 0) + W[at];
    counts[k] = (counts[k] ?? 0) + 1;
  });
  const nearest = (at) => (pattern[at] < 0 ? 0 : sums[pattern[at]] / counts[pattern[at]]); // Π(W): means over equal weights
  const rules = {
    interpolate: (w, at) => (1 - alpha) * w + alpha * prior[at],
    add: (w, at) => w + alpha * prior[at],
    self: (w, at) => (1 - alpha) * w + alpha * nearest(at),
    locality: (w, at) => (pattern[at] < 0 ? (1 - alpha) * w : w),
    sharing: (w, at) => (pattern[at] < 0 ? w : (1 - alpha) * w + alpha * nearest(at)),
    relax: (w, at) => prior[at],
    pathway: (w, at) => prior[at] + w,
    gate: (w, at) => alpha * prior[at] + (1 - alpha) * w,
  };
  return W.map(rules[coupling]);
}

const matrix = (spec, weight) => Float64Array.from(pattern(spec), (k) => (k < 0 ? 0 : weight ? weight[k] : 1));

// --- The derivation of entry (i, j), step by step; the same steps as imlp/look/derivation.py

function walker(part, steps, symbols) {
  const walk = (name, meaning, formula, value) => {
    const numbers = formula.replace(/[A-Za-z]\w*'*/g, (symbol) => walk.symbols[symbol]);
    steps.push({ part, name, meaning, formula, numbers, value });
    walk.symbols[name] = value;
    return value;
  };
  walk.symbols = symbols;
  return walk;
}

// Where row i of a permutation has its one.
function source(spec, i, name, steps) {
  if (spec.type === "Transpose") return transposed("row", ...spec.input, i, name, steps);
  const [c, H, W] = spec.input, P = spec.patch, w = spec.grid[1];
  const walk = walker("P", steps, { [name]: i, c, H, W, P, w });
  const one = c === 1;
  const patch = walk("patch", "patch number", one ? `${name} // P^2` : `${name} // (c * P^2)`, div(i, c * P * P));
  const channel = one ? 0 : walk("channel", "channel", `${name} // P^2 % c`, div(i, P * P) % c);
  const R = walk("R", "row of the patch", "patch // w", div(patch, w));
  const C = walk("C", "column of the patch", "patch % w", patch % w);
  const q = walk("q", "pixel number in the patch", `${name} % P^2`, i % (P * P));
  const r = walk("r", "row in the patch", "q // P", div(q, P));
  const s = walk("s", "column in the patch", "q % P", q % P);
  const j = channel * H * W + (R * P + r) * W + (C * P + s);
  return walk(`${name}'`, `row ${name} has its one in this column`,
    `${one ? "" : "channel * H * W + "}(R * P + r) * W + (C * P + s)`, j);
}

// Which row of a permutation has its one in column j.
function target(spec, j, name, steps) {
  if (spec.type === "Transpose") return transposed("column", ...[...spec.input].reverse(), j, name, steps);
  const [c, H, W] = spec.input, P = spec.patch, w = spec.grid[1];
  const walk = walker("P", steps, { [name]: j, c, H, W, P, w });
  const one = c === 1;
  const channel = one ? 0 : walk("channel", "channel", `${name} // (H * W)`, div(j, H * W));
  const k = walk("k", "row of the pixel", `${name} // W % H`, div(j, W) % H);
  const l = walk("l", "column of the pixel", `${name} % W`, j % W);
  const R = walk("R", "row of the patch", "k // P", div(k, P));
  const C = walk("C", "column of the patch", "l // P", div(l, P));
  const r = walk("r", "row in the patch", "k % P", k % P);
  const s = walk("s", "column in the patch", "l % P", l % P);
  const i = ((R * w + C) * c + channel) * P * P + r * P + s;
  return walk(`${name}'`, `column ${name} has its one in this row`,
    `${one ? "(R * w + C)" : "((R * w + C) * c + channel)"} * P^2 + r * P + s`, i);
}

function transposed(what, H, W, k, name, steps) {
  const [height, width, other] = what === "row" ? ["H", "W", "column"] : ["W", "H", "row"];
  const walk = walker("T", steps, { [name]: k, [height]: H, [width]: W });
  const meaning = `${what} ${name} has its one in this ${other}`, last = H * W - 1;
  if (k === last) return walk(`${name}'`, `${meaning}: the last in the last`, "H * W - 1", last);
  return walk(`${name}'`, meaning, `${width} * ${name} % (H * W - 1)`, (W * k) % last);
}

function sharedEntry(spec, i, j, nameI, nameJ, steps) {
  const [cOut, cIn] = spec.weight;
  const walk = walker("W~", steps, { [nameI]: i, [nameJ]: j, C_in: cIn, C_out: cOut });
  const r = walk("r", "block of the output", `${nameI} // C_out`, div(i, cOut));
  const o = walk("o", "output of the small layer", `${nameI} % C_out`, i % cOut);
  const rIn = walk("r'", "block of the input", `${nameJ} // C_in`, div(j, cIn));
  const k = walk("k", "input of the small layer", `${nameJ} % C_in`, j % cIn);
  if (r !== rIn) return [null, `0, for block r = ${r} reads its own inputs only, not those of r' = ${rIn}`];
  return [[o, k], `w[o, k] = w[${o}, ${k}]`];
}

function windowEntry(spec, i, j, nameI, nameJ, steps) {
  const [cIn, hIn, wIn] = spec.input, [cOut, hOut, wOut] = spec.output, { groups } = spec;
  const local = spec.type === "Local";
  const walk = walker(local ? "W_L" : "W_F", steps, {
    [nameI]: i, [nameJ]: j, c_in: cIn, h_in: hIn, w_in: wIn, c_out: cOut, h_out: hOut, w_out: wOut, groups,
  });
  const o = walk("o", "output channel", `${nameI} // (h_out * w_out)`, div(i, hOut * wOut));
  const y = walk("y", "output row", `${nameI} // w_out % h_out`, div(i, wOut) % hOut);
  const x = walk("x", "output column", `${nameI} % w_out`, i % wOut);
  const c = walk("c", "input channel", `${nameJ} // (h_in * w_in)`, div(j, hIn * wIn));
  const v = walk("v", "input row", `${nameJ} // w_in % h_in`, div(j, wIn) % hIn);
  const u = walk("u", "input column", `${nameJ} % w_in`, j % wIn);
  let q = c;
  if (groups > 1) {
    const each = cIn / groups;
    const g = walk("g", "group of the output channel", "o // (c_out // groups)", div(o, cOut / groups));
    q = walk("q", "input channel within the group", "c - g * (c_in // groups)", c - g * each);
    if (q < 0 || q >= each) return [null, `0, for input channel c = ${c} is not in group g = ${g}`];
  }
  const tap = [];
  for (const [axis, [name, place, pixel, word]] of [["a", "y", "v", "row"], ["b", "x", "u", "column"]].entries()) {
    const [k, s, p, d] = [spec.kernel, spec.stride, spec.padding, spec.dilation].map((pair) => pair[axis]);
    const t = `t_${place}`, offset = [v, u][axis] + p - [y, x][axis] * s;
    Object.assign(walk.symbols, { [`s_${place}`]: s, [`p_${place}`]: p, [`d_${place}`]: d });
    walk(t, `${word}s from the window's edge`, `${pixel} + p_${place} - ${place} * s_${place}`, offset);
    if (offset % d) {
      return [null, `0, for ${t} = ${offset} is not a multiple of the dilation ${d}: the pixel is between two taps`];
    }
    tap.push(walk(name, `${word} of the tap`, `${t} // d_${place}`, div(offset, d)));
    if (tap[axis] < 0 || tap[axis] >= k) {
      return [null, `0, for ${name} = ${tap[axis]} is not a ${word} of the kernel, 0 to ${k - 1}`];
    }
  }
  const nameQ = groups > 1 ? "q" : "c";
  if (!local) return [[o, q, ...tap], `F[o, ${nameQ}, a, b] = F[${o}, ${q}, ${tap.join(", ")}]`];
  const p = walk("p", "position, with its own kernel", "y * w_out + x", y * wOut + x);
  return [[p, o, q, ...tap], `w[p, o, ${nameQ}, a, b] = w[${p}, ${o}, ${q}, ${tap.join(", ")}]`];
}

function explain(spec, i, j) {
  const steps = [], parts = spec.parts ?? [spec], core = parts.findIndex((part) => part.weight);
  let row = i, column = j, nameI = "i", nameJ = "j", tap, conclusion;
  for (const part of parts.slice(core + 1).reverse()) {
    row = source(part, row, nameI, steps);
    nameI += "'";
  }
  for (const part of parts.slice(0, Math.max(core, 0))) {
    column = target(part, column, nameJ, steps);
    nameJ += "'";
  }
  if (core < 0) {
    tap = row === j ? [] : null;
    conclusion = tap ? `1, for ${nameI} = j = ${j}` : `0, for ${nameI} = ${row} is not j = ${j}`;
  } else {
    const entry = parts[core].type === "Shared" ? sharedEntry : windowEntry;
    [tap, conclusion] = entry(parts[core], row, column, nameI, nameJ, steps);
  }
  return { i, j, output: unravel(i, spec.output), input: unravel(j, spec.input), steps, tap, conclusion };
}

// --- Random numbers: Lehmer's generator, uniform within 1 / sqrt(fan_in), like PyTorch's initial weights

function uniform(size, fanIn, seed) {
  const bound = fanIn ** -0.5;
  let state = seed;
  return Float64Array.from({ length: size }, () => {
    state = (state * 48271) % 2147483647;
    return bound * ((2 * state) / 2147483647 - 1);
  });
}
