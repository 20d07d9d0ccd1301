// paint.js - colours, and two painters with the same interface: one draws on a canvas, one
// writes SVG, so that the saved picture is the one shown.

let dark = false;

// Values of the style sheet, cached per theme: reading them is slow.
const cssKnown = new Map();

function css(name) {
  const key = `${name}${dark}`;
  if (!cssKnown.has(key)) cssKnown.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return cssKnown.get(key);
}
const FONT = () => css("--sans");

// ---- colours -------------------------------------------------------------------------

// The table of colours comes with the report: src/view/palette.c has it for terminals,
// figures and this page.
const MAX_HEADS = 8; // shown together, each with a colour of its own

const theme = () => (dark ? "dark" : "light");

function parseColour(text) {
  const n = parseInt(text.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

function makeLut(stops) {
  const colours = stops.map(parseColour), lut = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i++) {
    const x = (i / 255) * (colours.length - 1), low = Math.min(Math.floor(x), colours.length - 2);
    for (let c = 0; c < 3; c++) lut[3 * i + c] = Math.round(colours[low][c] + (colours[low + 1][c] - colours[low][c]) * (x - low));
  }
  return lut;
}
const luts = {};
const lutOf = (name) => (luts[name + theme()] ??= makeLut(page.palette[theme()][name]));
// The same as pixels of an image.
const wordsOf = new WeakMap();

function lutWords(lut) {
  if (!wordsOf.has(lut)) wordsOf.set(lut, Uint32Array.from({ length: 256 }, (_, n) => (255 << 24) | (lut[3 * n + 2] << 16) | (lut[3 * n + 1] << 8) | lut[3 * n]));
  return wordsOf.get(lut);
}
const rampLut = () => lutOf("ramp");
const rampWords = () => lutWords(rampLut());
const divergingLut = () => lutOf("diverging");

const rgb = (lut, level) => `rgb(${lut[3 * level]},${lut[3 * level + 1]},${lut[3 * level + 2]})`;
const levelOf = (v, most) => (!(v > 0) || most <= 0 ? 0 : v >= most ? 255 : Math.round(255 * Math.sqrt(v / most)));
const signedLevel = (v, most) => Math.round(127.5 + 127.5 * Math.sign(v) * Math.min(1, Math.sqrt(Math.abs(v) / (most || 1))));
const rampColour = (v, most = 1) => rgb(rampLut(), levelOf(v, most));
const signedColour = (v, most) => rgb(divergingLut(), signedLevel(v, most));

// Black or white, whichever reads better on a colour of a ramp.
function inkOn(colour) {
  const [r, g, b] = colour.match(/\d+/g).map(Number).map((c) => (c / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.22 ? "#0b0e13" : "#ffffff";
}
const hexToRgb = (hex) => `rgb(${parseColour(hex).join(",")})`;
const roleColour = (index) => page.palette[theme()].roles[(index - 1) % page.palette[theme()].roles.length];
const headColour = (n) => roleColour(1 + (n % MAX_HEADS));

function mix(a, b, share) {
  const x = parseColour(a), y = parseColour(b);
  return `rgb(${x.map((c, n) => Math.round(c + (y[n] - c) * share)).join(",")})`;
}
// Roles beyond the colours there are have a bar below their letter, then above it, then both.
function roleBars(index) {
  const bars = index > 0 ? Math.floor((index - 1) / page.palette[theme()].roles.length) % 4 : 0;
  return { below: bars & 1, above: bars & 2 };
}
// A label's cell: a tint of its colour, and a glyph that reads on it.
const roleTint = (index) => (index > 0 ? mix(css("--paper"), roleColour(index), dark ? 0.34 : 0.26) : hexToRgb(css("--raised")));
const roleInk = (index) => (index > 0 ? mix(roleColour(index), css("--ink"), dark ? 0.25 : 0.45) : css("--quiet"));

// ---- painters ------------------------------------------------------------------------

const measure = document.createElement("canvas").getContext("2d");
const widths = new Map();

function textWidth(text, size = 13, weight = 400) {
  const key = `${size}/${weight}/${text}`;
  if (!widths.has(key)) {
    if (widths.size > 20000) widths.clear();
    measure.font = `${weight} ${size}px ${FONT()}`;
    widths.set(key, measure.measureText(text).width);
  }
  return widths.get(key);
}

// The longest beginning of a word that fits, with an ellipsis.
function fitText(text, width, size = 13, weight = 400) {
  if (textWidth(text, size, weight) <= width) return text;
  const points = Array.from(text);
  let low = 0, high = points.length;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (textWidth(points.slice(0, mid).join("") + "…", size, weight) <= width) low = mid;
    else high = mid - 1;
  }
  return low ? points.slice(0, low).join("") + "…" : "";
}

class CanvasPainter {
  constructor(ctx) { this.ctx = ctx; }
  rect(x, y, w, h, fill, alpha = 1) {
    this.ctx.globalAlpha = alpha;
    this.ctx.fillStyle = fill;
    this.ctx.fillRect(x, y, w, h);
    this.ctx.globalAlpha = 1;
  }
  frame(x, y, w, h, stroke, width = 1) {
    this.ctx.strokeStyle = stroke;
    this.ctx.lineWidth = width;
    this.ctx.strokeRect(x, y, w, h);
  }
  path(points, stroke, width = 1, alpha = 1) {
    this.ctx.globalAlpha = alpha;
    this.ctx.strokeStyle = stroke;
    this.ctx.lineWidth = width;
    this.ctx.beginPath();
    points.forEach(([x, y], i) => (i ? this.ctx.lineTo(x, y) : this.ctx.moveTo(x, y)));
    this.ctx.stroke();
    this.ctx.globalAlpha = 1;
  }
  curve(x1, y1, cx1, cy1, cx2, cy2, x2, y2, stroke, width, alpha) {
    this.ctx.globalAlpha = alpha;
    this.ctx.strokeStyle = stroke;
    this.ctx.lineWidth = width;
    this.ctx.beginPath();
    this.ctx.moveTo(x1, y1);
    this.ctx.bezierCurveTo(cx1, cy1, cx2, cy2, x2, y2);
    this.ctx.stroke();
    this.ctx.globalAlpha = 1;
  }
  text(text, x, y, { size = 13, weight = 400, align = "left", fill = css("--ink"), angle = 0, base = "middle" } = {}) {
    const { ctx } = this, font = `${weight} ${size}px ${FONT()}`;
    if (angle) {
      ctx.save();
      ctx.translate(x, y);
      ctx.rotate((angle * Math.PI) / 180);
    }
    if (font !== this.font) ctx.font = this.font = font; // setting a font is slow
    ctx.textAlign = align;
    ctx.textBaseline = base;
    ctx.fillStyle = fill;
    ctx.fillText(text, angle ? 0 : x, angle ? 0 : y);
    if (angle) this.restore();
  }
  restore() {
    this.ctx.restore();
    this.font = "";
  }
  // A whole image, or { of, x, y, w, h }: a part of one.
  image(image, x, y, w, h) {
    this.ctx.imageSmoothingEnabled = false;
    if (image.of) this.ctx.drawImage(canvasOf(image.of), image.x, image.y, image.w, image.h, x, y, w, h);
    else this.ctx.drawImage(canvasOf(image), x, y, w, h);
  }
  group(x, y, draw) {
    this.ctx.save();
    this.ctx.translate(x, y);
    draw();
    this.restore();
  }
  clip(x, y, w, h, draw) {
    this.ctx.save();
    this.ctx.beginPath();
    this.ctx.rect(x, y, w, h);
    this.ctx.clip();
    draw();
    this.restore();
  }
}

const escapeXml = (text) => text.replace(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);
const num = (x) => String(Math.round(x * 100) / 100);
// The namespace of SVG; no address that is ever requested.
const SVG_NAME = atob("aHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmc=");

const MOST_VECTORS = 4096;

class SvgPainter {
  constructor() { this.parts = []; this.clips = 0; }
  rect(x, y, w, h, fill, alpha = 1) {
    this.parts.push(`<rect x="${num(x)}" y="${num(y)}" width="${num(w)}" height="${num(h)}" fill="${fill}"${alpha < 1 ? ` fill-opacity="${num(alpha)}"` : ""}/>`);
  }
  frame(x, y, w, h, stroke, width = 1) {
    this.parts.push(`<rect x="${num(x)}" y="${num(y)}" width="${num(w)}" height="${num(h)}" fill="none" stroke="${stroke}" stroke-width="${width}"/>`);
  }
  path(points, stroke, width = 1, alpha = 1) {
    this.parts.push(`<polyline points="${points.map(([x, y]) => `${num(x)},${num(y)}`).join(" ")}" fill="none" stroke="${stroke}" stroke-width="${width}" stroke-opacity="${num(alpha)}"/>`);
  }
  curve(x1, y1, cx1, cy1, cx2, cy2, x2, y2, stroke, width, alpha) {
    const d = `M${num(x1)} ${num(y1)}C${num(cx1)} ${num(cy1)} ${num(cx2)} ${num(cy2)} ${num(x2)} ${num(y2)}`;
    this.parts.push(`<path d="${d}" fill="none" stroke="${stroke}" stroke-width="${num(width)}" stroke-opacity="${num(alpha)}"/>`);
  }
  text(text, x, y, { size = 13, weight = 400, align = "left", fill = css("--ink"), angle = 0, base = "middle" } = {}) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const shift = base === "middle" ? size * 0.35 : 0;
    const turn = `translate(${num(x)} ${num(y)})${angle ? ` rotate(${angle})` : ""}`;
    this.parts.push(`<text transform="${turn}" y="${num(shift)}" font-size="${size}"${weight !== 400 ? ` font-weight="${weight}"` : ""} text-anchor="${anchor}" fill="${fill}" xml:space="preserve">${escapeXml(text)}</text>`);
  }
  // Few cells are drawn as vectors, many as an image, parts of one always as images.
  image(image, x, y, w, h) {
    if (image.of) return this.picture(cutImage(image), x, y, w, h);
    if (image.w * image.h > MOST_VECTORS) {
      return this.picture(image, x, y, w, h);
    }
    const dx = w / image.w, dy = h / image.h;
    for (let i = 0, at = 0; i < image.h; i++)
      for (let j = 0; j < image.w; j++, at += 4) {
        const [r, g, b, a] = image.rgba.subarray(at, at + 4);
        const fill = `#${((1 << 24) | (r << 16) | (g << 8) | b).toString(16).slice(1)}`;
        if (a) this.rect(x + j * dx, y + i * dy, dx, dy, fill);
      }
    return undefined;
  }
  picture(image, x, y, w, h) {
    this.parts.push(`<image x="${num(x)}" y="${num(y)}" width="${num(w)}" height="${num(h)}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${canvasOf(image).toDataURL("image/png")}"/>`);
  }
  group(x, y, draw) {
    this.parts.push(`<g transform="translate(${num(x)} ${num(y)})">`);
    draw();
    this.parts.push("</g>");
  }
  clip(x, y, w, h, draw) {
    const id = `c${this.clips++}`;
    this.parts.push(`<clipPath id="${id}"><rect x="${num(x)}" y="${num(y)}" width="${num(w)}" height="${num(h)}"/></clipPath><g clip-path="url(#${id})">`);
    draw();
    this.parts.push("</g>");
  }
  finish(width, height) {
    const family = escapeXml(FONT());
    return `<svg xmlns="${SVG_NAME}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${family}"><rect width="100%" height="100%" fill="${css("--paper")}"/>${this.parts.join("\n")}</svg>\n`;
  }
}

function cutImage({ of, x, y, w, h }) {
  const from = new Uint32Array(of.rgba.buffer), to = new Uint32Array(w * h);
  for (let i = 0; i < h; i++) to.set(from.subarray((y + i) * of.w + x, (y + i) * of.w + x + w), i * w);
  return { w, h, rgba: new Uint8ClampedArray(to.buffer) };
}

// An image is { w, h, rgba }.
function canvasOf(image) {
  if (!image.canvas) {
    image.canvas = document.createElement("canvas");
    image.canvas.width = image.w;
    image.canvas.height = image.h;
    image.canvas.getContext("2d").putImageData(new ImageData(image.rgba, image.w, image.h), 0, 0);
  }
  return image.canvas;
}

// Sizes a canvas to its box, sharp on every screen; returns a painter in CSS pixels.
function openCanvas(canvas, width, height) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  const w = Math.max(1, Math.round(width * ratio)), h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return new CanvasPainter(ctx);
}

// ---- numbers -------------------------------------------------------------------------

function number(v, digits) {
  if (!Number.isFinite(v)) return "–";
  const size = Math.abs(v);
  if (size !== 0 && size < 0.0001 && !digits) return v.toExponential(1);
  return v.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : digits > 0 ? digits : 4);
}

// What is printed for a cell: exact digits, or the certain ones with their error.
function cellText(cell) {
  if (cell.forbidden) return t("forbidden");
  if (cell.pending) return "…";
  if (cell.below !== undefined) return t("notKept", number(cell.below));
  if (cell.digits >= 3 && Math.abs(cell.v) < 10) return cell.v ? number(cell.v, cell.digits) : t("lessThan", number(cell.error, cell.digits + 1));
  if (!cell.error) return number(cell.v);
  return `${cell.v.toFixed(Math.min(6, Math.max(2, Math.ceil(-Math.log10(cell.error)))))} ${t("about", cell.error.toPrecision(1))}`;
}

const percent = (x) => `${Math.round(100 * x)}%`;
