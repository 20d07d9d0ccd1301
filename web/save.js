// save.js - the view as a figure (SVG or PNG), and its numbers as CSV.
//
// A figure is for paper: a title that names the head, a colour bar, no cursor, on white.
// With Shift it has the colours of the screen.

function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const fileName = (end) => `polyhead-${state.view}-${labelOf(state.a).replaceAll(" ", "-")}.${end}`;

const viewSize = () => [Math.max(200, space.width), Math.max(200, space.height)];
const FIGURE = { margin: 14, title: 30, key: 40 };

// Runs `draw` in the colours of light paper.
function onPaper(asShown, draw) {
  const was = dark;
  if (was && !asShown) {
    dark = false;
    document.documentElement.dataset.theme = "light";
  }
  try {
    return draw();
  } finally {
    dark = was;
    document.documentElement.dataset.theme = theme();
    drawView(); // the layouts belong to the canvas again
  }
}

const headName = (ref) => `${titleOf(ref)}${roleOf(ref).key === "none" ? "" : ` · ${nameOf(roleOf(ref))}`}`;

function drawTitle(p) {
  if (state.view !== "beams") {
    const { title } = page.reports[state.a.r];
    p.text(state.view === "all" ? shown(title) : headName(state.a), 0, 10, { size: 15, weight: 600 });
    return;
  }
  let x = 0; // heads by their colours
  beamHeads().forEach((ref, n) => {
    p.rect(x, 4, 12, 12, headColour(n));
    p.text(headName(ref), x + 18, 10, { size: 14, weight: 600 });
    x += 42 + textWidth(headName(ref), 14, 600);
  });
}

// The colours and what they stand for.
function drawBars(p) {
  if (state.view === "beams") return;
  const { most, signed } = keyScale(), last = state.view === "compare" ? compareAt[2] : null;
  drawScale(p, most, signed);
  if (last) p.group(210, 0, () => drawScale(p, last.most || 1, true));
  p.text(last ? `0 … 1, ${t("difference")}` : t("legendZero"), last ? 420 : 210, 7, { size: 11.5, fill: css("--quiet") });
}

// The whole figure; returns its size.
function drawFigure(p) {
  const [w, h] = viewSize(), { margin, title, key } = FIGURE;
  p.figure = true;
  p.group(margin, margin, () => drawTitle(p));
  p.group(margin, margin + title, () => viewOf().draw(p, w, h));
  p.group(margin, margin + title + h + 8, () => drawBars(p));
  return figureSize();
}

function figureSize() {
  const [w, h] = viewSize(), { margin, title, key } = FIGURE;
  return [w + 2 * margin, h + 2 * margin + title + key];
}

const svgText = (asShown) => onPaper(asShown, () => {
  const p = new SvgPainter();
  return p.finish(...drawFigure(p));
});

function saveSvg(event) {
  download(fileName("svg"), new Blob([svgText(event?.shiftKey)], { type: "image/svg+xml" }));
}

// Twice the size of the screen.
function savePng(event) {
  const canvas = document.createElement("canvas"), ctx = canvas.getContext("2d"), [w, h] = figureSize();
  canvas.width = 2 * w;
  canvas.height = 2 * h;
  ctx.scale(2, 2);
  onPaper(event.shiftKey, () => {
    const p = new CanvasPainter(ctx);
    p.rect(0, 0, w, h, css("--paper"));
    drawFigure(p);
  });
  canvas.toBlob((blob) => download(fileName("png"), blob));
}

// ---- numbers -------------------------------------------------------------------------

const csvField = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
const csvLine = (...fields) => fields.map((field) => csvField(String(field))).join(",");

// One line per weight that is known; an error of 0 marks an exact number.
function weightLines(refs) {
  const lines = ["stack,layer,head,row,key,row_word,key_word,weight,error"];
  for (const ref of refs) {
    const map = mapOf(ref), queries = queryWords(ref), keys = keyWords(ref);
    for (let i = 0; i < map.rows; i++)
      for (let j = 0; j < map.seen(i); j++) {
        const { v, error } = map.cell(i, j);
        if (v !== undefined) lines.push(csvLine(stackOf(ref).name, ref.l, ref.h, i, j, queries[i], keys[j], v, error));
      }
  }
  return lines;
}

function headLines() {
  const { metrics } = page.reports[state.a.r];
  const lines = [csvLine("stack", "layer", "head", "role", ...metrics.map((metric) => metric.key))];
  for (const ref of allHeads(state.a.r))
    if (!isAbsent(ref)) lines.push(csvLine(stackOf(ref).name, ref.l, ref.h, roleOf(ref).key, ...metrics.map((_, m) => scoreOf(ref, m))));
  return lines;
}

function compareLines() {
  const a = mapOf(firstHead()), b = mapOf(otherHead()), lines = ["row,key,row_word,key_word,a,b,difference"];
  const queries = queryWords(a.ref), keys = keyWords(a.ref);
  if (!sameShape(a, b)) return weightLines([a.ref, b.ref]);
  for (let i = 0; i < a.rows; i++)
    for (let j = 0; j < a.seen(i); j++) {
      const one = a.cell(i, j).v, two = b.cell(i, j).v;
      if (one !== undefined && two !== undefined) lines.push(csvLine(i, j, queries[i], keys[j], one, two, two - one));
    }
  return lines;
}

function neuronLines() {
  const lines = ["row,key,row_word,key_word,dimension,q,k,product"], { vectors, q, products, order } = neuronAt;
  products.all.forEach(({ k, times }, j) => order.forEach((d, n) => lines.push(csvLine(state.i, j, queryWords(state.a)[state.i], keyWords(state.a)[j], d, q[d], k[d], times[n]))));
  return vectors ? lines : [];
}

// What the view shows.
function csvText() {
  const lines = { beams: () => weightLines(beamHeads()), heat: () => weightLines([state.a]), all: headLines, neuron: neuronLines, compare: compareLines }[state.view]();
  return `${lines.join("\n")}\n`;
}

function saveCsv() {
  download(fileName("csv"), new Blob([csvText()], { type: "text/csv" }));
}
