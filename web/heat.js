// heat.js - one head as a heat map with words on both axes. The comparison
// uses it for three maps side by side.

const LABEL = 12.5; // size of words
const MOST_CELL = 64; // its width and height

const shownLists = new WeakMap();

// A question mark behind words that the model does not know, as on the terminal.
function shownWords(words) {
  if (!shownLists.has(words)) {
    const unknown = axisOf(words)?.unknown;
    shownLists.set(words, words.map((word, n) => shown(word) + (unknown?.[n] ? "?" : "")));
  }
  return shownLists.get(words);
}

const widths600 = new WeakMap();

// Of the first few hundred words: later ones may be cut.
function widest(words) {
  if (!widths600.has(words)) widths600.set(words, words.slice(0, 600).reduce((most, word) => Math.max(most, textWidth(word, LABEL, 650)), 0));
  return widths600.get(words);
}
const TITLE = 16; // of an axis
const labelWidth = (map) => Math.min(150, widest(shownWords(queryWords(map.ref)))) + 10 + TITLE;
const SHARES = 74; // bars at the right: how much the head counts for a row

// The layout. box: { x, y, w, h }; left: words of the rows are wanted; fit: size of
// a cell, where several maps must agree.
function heatLayout(map, box, { zoom = 1, x = 0, y = 0, left = true, fit: given, shares = false } = {}) {
  const rowWords = shownWords(queryWords(map.ref)), keyLabels = shownWords(keyWords(map.ref));
  const tall = Math.min(96, widest(keyLabels)), wide = left ? labelWidth(map) : 0;
  const top = Math.round(tall * 0.72 + 14) + TITLE, right = Math.max(shares ? SHARES : 0, Math.round(Math.min(tall * 0.7, 60)));
  const roomX = Math.max(40, box.w - wide - right), roomY = Math.max(40, box.h - top - 2);
  const fit = given ?? Math.min(MOST_CELL, roomX / Math.max(1, map.keys), roomY / Math.max(1, map.rows));
  const cell = Math.min(MOST_CELL, Math.max(fit, fit * zoom));
  const cols = Math.min(map.keys, Math.max(1, Math.floor(roomX / cell + 1e-6)));
  const rows = Math.min(map.rows, Math.max(1, Math.floor(roomY / cell + 1e-6)));
  const j0 = Math.floor(Math.min(x, map.keys - cols)), i0 = Math.floor(Math.min(y, map.rows - rows));
  return { map, box, cell, fit, rows, cols, i0: Math.max(0, i0), j0: Math.max(0, j0), gx: box.x + wide, gy: box.y + top, rowWords, keyLabels, left: wide, tall, shares };
}

function heatHit(layout, x, y) {
  if (!layout) return null;
  const j = Math.floor((x - layout.gx) / layout.cell), i = Math.floor((y - layout.gy) / layout.cell);
  if (i < 0 || j < 0 || i >= layout.rows || j >= layout.cols) return null;
  return { i: i + layout.i0, j: j + layout.j0 };
}

// The weight that is darkest: 1, but of a head that is broad over a long text four times
// the largest weight of nearly every row, so that an even row is half dark: on a scale to
// 1 nothing of it could be seen.
const PALE = 0.1, HEADROOM = 4;

function darkest(map, valued) {
  if (map.remote) return 1;
  if (state.scale === "head" || valued) return map.largest(valued) || 1;
  if (state.scale !== "auto") return 1;
  map.usual ??= Float32Array.from(map.rowMost(false)).sort()[Math.floor(0.95 * Math.max(0, map.rows - 1))] || 1;
  return map.usual < PALE ? HEADROOM * map.usual : 1;
}

// The mapping from values to colours: { cells, most(i), lut, signed, name }; the name tells shades of
// one head apart.
function plainShade(map, valued) {
  const name = `${valued}/${state.scale}/${theme()}`;
  if (map.remote) return { remote: true, name, lut: rampLut(), most: () => 1, valued };
  const cells = map.shownCells(valued), signed = map.smallest() < -1e-6;
  const largest = darkest(map, valued), rows = state.scale === "row" ? map.rowMost(valued) : null;
  return { cells, name, signed, lut: signed ? divergingLut() : rampLut(), most: rows ? (i) => rows[i] : () => largest, rest: valued ? null : restOf(map) };
}

// Of a broad head in a long text most weights are not in the file. What is known of them,
// as a function of row and key: at most the smallest that is stored, and at most what the
// thumbnail shows there.
function restOf(map) {
  if (page.mode !== "top" || !map.stored || map.remote || map.keptShare() > 0.9) return null;
  const thumb = thumbOf(map.ref), { rows, keys } = map, least = Float32Array.from({ length: rows }, (_, i) => map.leastStored(i));
  return (i, j) => Math.min(least[i], (thumb.scale * thumb.cells[Math.floor((i * thumb.h) / rows) * thumb.w + Math.floor((j * thumb.w) / keys)]) / 255);
}

const shadeLevel = (shade, v, most) => (shade.signed ? signedLevel : levelOf)(v, most);

function imageSize({ rows, cols, cell }) {
  const ratio = Math.min(3, window.devicePixelRatio || 1), fine = cell * ratio >= 1;
  return { h: fine ? rows : Math.max(1, Math.floor(rows * cell * ratio)), w: fine ? cols : Math.max(1, Math.floor(cols * cell * ratio)) };
}

// The visible cells as an image: one pixel per cell, or the largest of many per pixel.
const pictures = new Map(); // moving the cursor does not change them
const MOST_PICTURES = 6;

function heatImage(layout, shade) {
  const { map, rows, cols, i0, j0 } = layout, { w, h } = imageSize(layout);
  const key = [idOf(map.ref), shade.name, rows, cols, i0, j0, w, h].join("|");
  if (pictures.has(key)) return pictures.get(key);
  const image = (shade.remote ? remoteImage : makeImage)(layout, shade, w, h);
  if (!image) return { w, h, rgba: new Uint8ClampedArray(4 * w * h) }; // still requested
  pictures.set(key, image);
  if (pictures.size > MOST_PICTURES) pictures.delete(pictures.keys().next().value);
  return image;
}

function makeImage({ map, rows, cols, i0, j0 }, shade, w, h) {
  const image = { w, h, rgba: new Uint8ClampedArray(4 * w * h) }, out = new Uint32Array(image.rgba.buffer);
  const colours = lutWords(shade.lut), { cells, signed } = shade;
  const column = Uint32Array.from({ length: cols }, (_, j) => Math.floor((j * w) / cols));
  const best = new Float32Array(w);
  for (let i = 0; i < rows; ) {
    const line = Math.floor((i * h) / rows);
    let open = -1; // last pixel of the line that covers a visible cell
    let most = 0;
    best.fill(0);
    for (; i < rows && Math.floor((i * h) / rows) === line; i++) {
      const at = (i0 + i) * map.keys + j0, seen = Math.min(cols, map.seen(i0 + i) - j0);
      most = Math.max(most, shade.most(i0 + i));
      for (let j = 0; j < seen; j++) {
        const v = cells[at + j] || (shade.rest ? shade.rest(i0 + i, j0 + j) : 0), to = column[j];
        if (signed ? Math.abs(v) > Math.abs(best[to]) : v > best[to]) best[to] = v;
      }
      if (seen > 0) open = Math.max(open, column[seen - 1]);
    }
    for (let n = 0; n <= open; n++) out[line * w + n] = colours[signed ? signedLevel(best[n], most) : levelOf(best[n], most)];
  }
  return image;
}

function drawHatch(p, x, y, w, h) {
  p.rect(x, y, w, h, css("--raised"));
  p.clip(x, y, w, h, () => {
    for (let d = -h; d < w; d += 7) p.path([[x + d, y + h], [x + d + h, y]], css("--line"));
  });
}

// Words of the axes; those of the cursor and picked ones are bold.
function drawAxes(p, layout, cursor) {
  const { rows, cols, i0, j0, cell, gx, gy, left, tall, box } = layout, step = Math.max(1, Math.ceil(13 / cell));
  const size = Math.min(LABEL, Math.max(10, cell * 0.95)), title = { size: 11.5, fill: css("--quiet") };
  if (left) p.text(fitText(t("axisKeys"), box.x + box.w - gx, 11.5), gx, box.y + 7, title);
  if (left) p.text(fitText(t("axisRows"), Math.max(60, rows * cell), 11.5), box.x + 6, gy + rows * cell, { ...title, angle: -90 });
  const style = (strong) => ({ size, weight: strong ? 650 : 400, fill: strong ? css("--ink") : css("--quiet") });
  for (let j = 0; j < cols; j++) {
    const strong = cursor && cursor.j === j + j0;
    if (j % step && !strong) continue;
    if (!strong && cursor && step > 1 && Math.abs(cursor.j - j0 - j) < step) continue;
    const word = fitText(layout.keyLabels[j + j0], tall, size, strong ? 650 : 400);
    p.text(word, gx + (j + 0.5) * cell + 1, gy - 7, { ...style(strong), angle: -45 });
  }
  if (!left) return;
  for (let i = 0; i < rows; i++) {
    const strong = cursor && cursor.i === i + i0;
    if (i % step && !strong) continue;
    if (!strong && cursor && step > 1 && Math.abs(cursor.i - i0 - i) < step) continue;
    const word = fitText(layout.rowWords[i + i0], left - 10 - TITLE, size, strong ? 650 : 400);
    p.text(word, gx - 8, gy + (i + 0.5) * cell, { ...style(strong), align: "right" });
  }
}

function drawCells(p, layout, shade) {
  const { map, rows, cols, i0, j0, cell, gx, gy } = layout;
  for (let i = 1; i < rows; i++) p.rect(gx, gy + i * cell - 0.5, cols * cell, 1, css("--paper"));
  for (let j = 1; j < cols; j++) p.rect(gx + j * cell - 0.5, gy, 1, rows * cell, css("--paper"));
  if (cell < 34 || shade.remote) return;
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < Math.min(cols, map.seen(i + i0) - j0); j++) {
      const v = shade.cells[(i + i0) * map.keys + j + j0], level = shadeLevel(shade, v, shade.most(i + i0));
      if (Math.abs(v) < 0.005) continue;
      const text = Math.abs(v) < 10 ? v.toFixed(2).replace(/^(-?)0\./, "$1.") : v.toFixed(0);
      p.text(text, gx + (j + 0.5) * cell, gy + (i + 0.5) * cell, { size: 11, align: "center", fill: inkOn(rgb(shade.lut, level)) });
    }
}

// Rows or columns of picked words get a bar at the edge of the map.
function drawPicked(p, layout) {
  const { rows, cols, i0, j0, cell, gx, gy } = layout;
  for (const n of state.picked) {
    if (state.seen && n >= j0 && n < j0 + cols) p.rect(gx + (n - j0) * cell, gy - 4, Math.max(1, cell - 1), 3, css("--accent"));
    if (!state.seen && n >= i0 && n < i0 + rows) p.rect(gx - 4, gy + (n - i0) * cell, 3, Math.max(1, cell - 1), css("--accent"));
  }
}

// One head alone answers for every row.
const sharesRows = (stack) => Boolean(stack.share) && stack.layers * stack.heads > 1;

// Rows that other heads answer for are faded; bars show how much this head counts.
function drawShares(p, layout) {
  const { map, rows, cols, i0, cell, gx, gy } = layout, from = gx + cols * cell + 12, wide = SHARES - 16;
  if (!sharesRows(map.stack)) return;
  for (let i = 0; i < rows; i++) {
    const share = shareOf(map.ref, i + i0), tall = Math.min(10, cell * 0.6);
    if (share < 0.995) p.rect(gx, gy + i * cell, cols * cell, cell, css("--paper"), 0.82 * (1 - share));
    if (!layout.shares) continue;
    p.rect(from, gy + (i + 0.5) * cell - tall / 2, wide, tall, css("--raised"));
    p.rect(from, gy + (i + 0.5) * cell - tall / 2, wide * Math.min(1, share), tall, css("--accent"));
  }
  if (layout.shares) p.text(t("counts"), from, gy - 9, { size: 11.5, fill: css("--quiet") });
}

function drawHeat(p, layout, shade, cursor) {
  const { map, rows, cols, i0, j0, cell, gx, gy } = layout, w = cols * cell, h = rows * cell;
  if (!map.rows || !map.keys) {
    p.text(t("noWords"), layout.box.x, layout.box.y + 20, { fill: css("--quiet") });
    return;
  }
  if (map.stack.causal) drawHatch(p, gx, gy, w, h);
  p.image(heatImage(layout, shade), gx, gy, w, h);
  if (cell >= 10) drawCells(p, layout, shade);
  drawShares(p, layout);
  p.frame(gx - 0.5, gy - 0.5, w + 1, h + 1, css("--line"));
  if (!p.figure) drawPicked(p, layout);
  drawAxes(p, layout, cursor);
  if (!cursor || cursor.i < i0 || cursor.j < j0 || cursor.i >= i0 + rows || cursor.j >= j0 + cols) return;
  const x = gx + (cursor.j - j0) * cell, y = gy + (cursor.i - i0) * cell, size = Math.max(4, cell);
  p.frame(x, y, size, size, css("--paper"), 4);
  p.frame(x, y, size, size, css("--accent"), 2);
}

// A sentence instead of a map that is missing; true if it is.
function drawMissing(p, ref) {
  const why = isAbsent(ref) ? "absent" : mapOf(ref).stored ? "" : "noMap";
  if (why) p.text(t(why), 0, 20, { fill: css("--quiet") });
  return Boolean(why);
}

let heatAt = null;

const heatView = {
  draw(p, w, h) {
    heatAt = null;
    if (drawMissing(p, state.a)) return;
    const map = mapOf(state.a);
    heatAt = heatLayout(map, { x: 0, y: 0, w, h }, { ...state, shares: sharesRows(map.stack) });
    drawHeat(p, heatAt, plainShade(map, state.valued), p.figure ? null : { i: state.i, j: state.j });
  },
  hit(x, y) {
    const cell = heatHit(heatAt, x, y);
    return cell && { cell, ref: state.a };
  },
  move(di, dj) { moveCursor(di, dj, heatAt); },
  zoom(factor) { zoomBy(factor, heatAt); },
  pan(dx, dy) { panBy(dx, dy, heatAt); },
  note() {
    const notes = [state.valued ? t("product") : t("legendZero")], map = mapOf(state.a), most = darkest(map, state.valued);
    if (state.scale === "auto" && most < 1 && !state.valued) notes.push(t("scaledTo", number(most)));
    if (heatAt && restOf(map)) notes.push(t("notStored"));
    if (sharesRows(map.stack)) notes.push(t("sharesNote"));
    if (stackOf(state.a).causal) notes.push(t("forbiddenKey"));
    if (heatAt && heatAt.cell * (window.devicePixelRatio || 1) < 1) notes.push(t("pooled"));
    return notes.join(" · ");
  },
};

// ---- cursor, zoom, pan: shared with the comparison -----------------------------------

function moveCursor(di, dj, layout) {
  const map = mapOf(state.a);
  const i = Math.max(0, Math.min(map.rows - 1, state.i + di)), j = Math.max(0, Math.min(map.keys - 1, state.j + dj));
  const change = { i, j };
  if (layout) { // the window follows
    change.x = Math.min(Math.max(layout.j0, j - layout.cols + 1), j);
    change.y = Math.min(Math.max(layout.i0, i - layout.rows + 1), i);
  }
  set(change);
  say(cellSentence(state.a, i, j));
}

function zoomBy(factor, layout) {
  if (!layout) return;
  const zoom = Math.max(1, Math.min(MOST_CELL / layout.fit, state.zoom * factor));
  const cols = layout.cols * (state.zoom / zoom), rows = layout.rows * (state.zoom / zoom);
  set({ zoom, x: Math.max(0, state.j - cols / 2), y: Math.max(0, state.i - rows / 2) });
}

function panBy(dx, dy, layout) {
  if (!layout) return;
  const { map, cols, rows, cell } = layout;
  set({
    x: Math.max(0, Math.min(map.keys - cols, state.x + dx / cell)),
    y: Math.max(0, Math.min(map.rows - rows, state.y + dy / cell)),
  });
}

// ---- description of one cell ---------------------------------------------------------

function rankOf(map, i, j) {
  if (map.remote && !map.remote.has(i)) return "…";
  const row = map.row(i), seen = map.seen(i);
  let rank = 1, equal = 0;
  for (let n = 0; n < seen; n++) {
    if (row[n] > row[j]) rank++;
    if (row[n] === row[j]) equal++;
  }
  return equal > 1 ? t("rankTie", rank, rank + equal - 1, seen) : t("rank", rank, seen);
}

function cellLines(ref, i, j) {
  const map = mapOf(ref), cell = map.cell(i, j);
  const words = t("toCell", `“${shown(queryWords(ref)[i])}”`, `“${shown(keyWords(ref)[j])}”`);
  const lines = [[make("b", {}, cellText(cell))], [words]];
  if (cell.v !== undefined) lines.push([rankOf(map, i, j)]);
  if (sharesRows(map.stack)) lines.push([t("countsFor", percent(shareOf(ref, i)), shown(queryWords(ref)[i]))]);
  if (map.norms) lines.push([t("valueOf", number(map.norms[j]))]);
  lines.push([`${i + 1} → ${j + 1}`]);
  return lines;
}

const cellSentence = (ref, i, j) => cellLines(ref, i, j).map((line) => line.map((x) => x.textContent ?? x).join("")).join(", ");
