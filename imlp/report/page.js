"use strict";
// Sorts tables, saves figures and tables as files, slides through alphas, and opens what a link or the printer asks for.

const value = cell => cell.dataset.value ?? cell.textContent;

function sort(table, column, up) {
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [one, two] = [value(a.cells[column]), value(b.cells[column])];
    if (one === "" || two === "") return (one === "") - (two === ""); // what is missing comes last either way
    const [x, y] = [Number(one), Number(two)];
    const order = isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) || one.localeCompare(two) : x - y;
    return up ? order : -order;
  });
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    sort(table, column, up);
  }));
}

function download(name, address) {
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name });
  link.click();
}

function csv(table) {
  const quoted = text => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const lines = [...table.rows].map(row => [...row.cells].map(cell => quoted(value(cell))).join(","));
  return new Blob([lines.join("\n") + "\n"], { type: "text/csv" });
}

function png(image, then) {
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  Object.assign(canvas, { width: 2 * image.naturalWidth, height: 2 * image.naturalHeight });
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob(then);
}

for (const button of document.querySelectorAll("[data-save]")) {
  const name = button.dataset.save, save = blob => download(name, URL.createObjectURL(blob));
  button.addEventListener("click", () => {
    if (name.endsWith(".csv")) return save(csv(document.getElementById(name.slice(0, -4))));
    const image = button.closest("figure").querySelector("img");
    return name.endsWith(".svg") ? download(name, image.src) : png(image, save);
  });
}

// A link to something in a closed part opens that part
function reveal(id) {
  const target = id && document.getElementById(id);
  if (!target) return;
  target.querySelectorAll(":scope > details.part").forEach(part => { part.open = true; });
  for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target.scrollIntoView();
}
document.addEventListener("click", event => reveal(event.target.closest("a[href^='#']")?.getAttribute("href").slice(1)));
addEventListener("hashchange", () => reveal(location.hash.slice(1)));
reveal(location.hash.slice(1));

// One slider for alpha in place of all lanes at once: it moves the matrix, its row and the bars together.
for (const cards of document.querySelectorAll("main > section > .cards")) {
  const lanes = [...cards.querySelectorAll("[data-lane]")];
  if (lanes.length < 2) continue;
  const label = document.createElement("label"), slider = document.createElement("input"), name = document.createElement("output");
  Object.assign(slider, { type: "range", min: 0, max: lanes.length - 1, value: 0 });
  slider.addEventListener("input", () => {
    lanes.forEach((lane, n) => { lane.hidden = n !== Number(slider.value); });
    name.textContent = lanes[slider.value].dataset.lane;
    slider.setAttribute("aria-valuetext", name.textContent);
  });
  label.className = "slider";
  label.append("How much structure:", slider, name);
  cards.classList.add("slid");
  cards.before(label);
  slider.dispatchEvent(new Event("input"));
  addEventListener("beforeprint", () => lanes.forEach(lane => { lane.hidden = false; }));
}

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => { part.open = true; }));
