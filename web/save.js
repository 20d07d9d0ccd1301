// save.js - the picture as SVG or PNG, its weights as CSV.

function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const fileName = (end) => `polyhead-${state.view}-${labelOf(state.a).replaceAll(" ", "-")}.${end}`;

const viewSize = () => [Math.max(200, space.width), Math.max(200, space.height)];

function svgText() {
  const p = new SvgPainter(), [w, h] = viewSize();
  viewOf().draw(p, w, h);
  drawView(); // the layouts belong to the canvas again
  return p.finish(w, h);
}

function saveSvg() {
  download(fileName("svg"), new Blob([svgText()], { type: "image/svg+xml" }));
}

// Twice the size of the screen, on a background.
function savePng() {
  const [w, h] = viewSize(), canvas = document.createElement("canvas"), ctx = canvas.getContext("2d");
  canvas.width = 2 * w;
  canvas.height = 2 * h;
  ctx.scale(2, 2);
  const p = new CanvasPainter(ctx);
  p.rect(0, 0, w, h, css("--paper"));
  viewOf().draw(p, w, h);
  drawView();
  canvas.toBlob((blob) => download(fileName("png"), blob));
}

const csvField = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);

// One line per weight that is known; an error of 0 marks an exact number.
function csvText() {
  const ref = state.a, map = mapOf(ref), queries = queryWords(ref), keys = keyWords(ref);
  const lines = ["layer,head,row,key,row_word,key_word,weight,error"];
  for (let i = 0; i < map.rows; i++)
    for (let j = 0; j < map.seen(i); j++) {
      const { v, error } = map.cell(i, j);
      if (v !== undefined) lines.push([ref.l, ref.h, i, j, csvField(queries[i]), csvField(keys[j]), v, error].join(","));
    }
  return `${lines.join("\n")}\n`;
}

function saveCsv() {
  download(fileName("csv"), new Blob([csvText()], { type: "text/csv" }));
}
