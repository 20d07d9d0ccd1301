// data.js - access to the report: heads by reference, weights by row and cell.
// src/view/page.h has the layout of the arrays.
//
// A head is named { r, s, l, h }: report, stack, layer, head. Every value says whether it
// is exact, so that an approximate one is never printed as if it were.

let page = null; // the description
let arrays = null; // ArrayBuffer

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

// Clears everything that was computed from an older report.
function forget() {
  for (const known of [cache, thumbs, edges, drawnFor, pictures, differences]) known.clear();
  atlas = lastDifference = {};
  stripKey = "";
}

async function openData() {
  if (!document.getElementById("report").textContent) return openLive();
  page = JSON.parse(document.getElementById("report").textContent);
  arrays = await inflate(fromBase64(document.getElementById("arrays").textContent.trim()));
  if (arrays.byteLength !== page.bytes) throw new Error("the arrays of this page are damaged");
  addTextMeasures();
  return undefined;
}

const stackOf = (ref) => page.reports[ref.r].stacks[ref.s];
const indexOf = (ref) => ref.l * stackOf(ref).heads + ref.h;
const idOf = (ref) => `${ref.r}.${ref.s}.${ref.l}.${ref.h}`;
const sameHead = (a, b) => a && b && idOf(a) === idOf(b);
const isAbsent = (ref) => Boolean(stackOf(ref).absent?.[indexOf(ref)]);
const queryWords = (ref) => page.reports[ref.r].axes[stackOf(ref).q].tokens;
const keyWords = (ref) => page.reports[ref.r].axes[stackOf(ref).k].tokens;
const sameAxes = (a, b) => a.r === b.r && stackOf(a).q === stackOf(b).q && stackOf(a).k === stackOf(b).k;
const isSelf = (ref) => stackOf(ref).q === stackOf(ref).k;
// Shown names count from one; the address and all arrays from zero.
const partOf = (ref) => (page.reports[ref.r].stacks.length > 1 ? said(stackOf(ref).name) : "");
const labelOf = (ref) => `${partOf(ref)} ${ref.l + 1}-${ref.h + 1}`.trim();
const titleOf = (ref) => (partOf(ref) && `${partOf(ref)} · `) + t("layerHead", ref.l + 1, ref.h + 1);

// How much the head counts for the answer about row i, where its weights are the answer.
function shareOf(ref, i) {
  const { share } = stackOf(ref);
  return share ? share[indexOf(ref) * queryWords(ref).length + i] : 1;
}

// The head and the cell that gave the answer about word i: { a, i, j }, or null.
function answerPlace(r, i) {
  const s = page.reports[r].stacks.findIndex((stack) => stack.share);
  if (s < 0 || i >= queryWords({ r, s, l: 0, h: 0 }).length) return null;
  const heads = headsOf({ r, s }).filter((a) => !isAbsent(a) && mapOf(a).stored && !mapOf(a).remote);
  const parts = heads.map((a) => mapOf(a).row(i).map((w) => w * shareOf(a, i)));
  if (!parts.length) return null;
  const sums = parts[0].map((_, j) => parts.reduce((sum, part) => sum + part[j], 0)), j = sums.indexOf(Math.max(...sums));
  const best = parts.reduce((most, part, n) => (part[j] > parts[most][j] ? n : most), 0);
  return { a: heads[best], i, j };
}

const axisOf = (words) => page.reports.flatMap((report) => report.axes).find((axis) => axis.tokens === words);
const isUnknown = (words, n) => Boolean(axisOf(words)?.unknown?.[n]);

function roleOf(ref) {
  const roles = page.reports[ref.r].roles;
  return roles[stackOf(ref).role?.[indexOf(ref)] ?? 0] ?? { glyph: ".", key: "none", name: "", help: "" };
}

// Measures of heads that belong to this text, not to the survey: they follow its measures.
const TEXT_MEASURES = ["contribution", "effect", "worth"];

function addTextMeasures() {
  attachWorth();
  for (const report of page.reports) {
    report.surveyed = report.metrics.length;
    for (const key of TEXT_MEASURES)
      if (report.stacks.some((stack) => stack[key])) report.metrics.push({ key, name: t(key), help: t(`${key}Help`), threshold: 0, own: true });
  }
}

function scoreOf(ref, m) {
  const report = page.reports[ref.r], { own, key } = report.metrics[m];
  return (own ? stackOf(ref)[key]?.[indexOf(ref)] : stackOf(ref).scores?.[indexOf(ref) * report.surveyed + m]) ?? NaN;
}

// The weights of one head.
class HeadMap {
  constructor(ref) {
    const stack = stackOf(ref), at = stack.maps[indexOf(ref)];
    this.ref = ref;
    this.stack = stack;
    this.rows = queryWords(ref).length;
    this.keys = keyWords(ref).length;
    this.remote = page.mode === "live" ? new RemoteMap(ref, this.rows, this.keys) : null;
    this.stored = at >= 0 || Boolean(this.remote);
    this.top = page.top;
    if (at >= 0) this.open(at);
    const norms = stack.norms;
    this.norms = norms >= 0 ? new Float32Array(arrays, norms + 4 * indexOf(ref) * this.keys, this.keys) : null;
  }

  open(at) {
    const take = (Type, count) => {
      const part = new Type(arrays, at, count);
      at += (part.byteLength + 3) & ~3;
      return part;
    };
    const { rows, keys, top } = this;
    const Key = page.colBytes === 2 ? Uint16Array : Uint32Array;
    if (page.mode === "f32") {
      this.cells = take(Float32Array, rows * keys);
      return;
    }
    this.sums = take(Float32Array, rows);
    if (page.mode === "dec") {
      this.base = take(Int32Array, rows);
      this.digits = take(Int8Array, rows);
      this.low = take(Uint8Array, rows * keys);
      this.high = take(Uint8Array, rows * keys);
      return;
    }
    this.exact = take(Float32Array, rows * top);
    this.cols = take(Key, rows * top);
    this.none = page.colBytes === 2 ? 65535 : 4294967295;
  }

  seen(i) {
    if (!this.stack.causal) return this.keys;
    return Math.max(0, Math.min(this.keys, i + this.stack.offset + 1));
  }

  // Row i as floats, in a new array or in `out`; weights that are not stored are 0.
  row(i, out = new Float32Array(this.keys)) {
    const { keys, top } = this, at = i * keys;
    if (!this.stored) return out.fill(0);
    if (this.remote) {
      out.set(this.remote.row(i));
      return out;
    }
    if (page.mode === "f32") {
      out.set(this.cells.subarray(at, at + keys));
      return out;
    }
    out.fill(0);
    if (page.mode === "dec") {
      const { low, high } = this, base = this.base[i], unit = 10 ** -this.digits[i];
      for (let j = 0, n = this.seen(i); j < n; j++) out[j] = (base + low[at + j] + 256 * high[at + j]) * unit;
      return out;
    }
    for (let n = i * top; n < (i + 1) * top && this.cols[n] !== this.none; n++) out[this.cols[n]] = this.exact[n];
    return out;
  }

  // One weight: { v, error } with error 0 where it is exact; with digits too where v is the
  // weight rounded to so many; { below } where it is not stored; { forbidden } where the mask
  // hides it.
  cell(i, j) {
    if (j >= this.seen(i)) return { forbidden: true };
    if (!this.stored) return { below: 1 };
    if (this.remote) return this.remote.cell(i, j);
    if (page.mode === "f32") return { v: this.cells[i * this.keys + j], error: 0 };
    if (page.mode === "dec") {
      const at = i * this.keys + j, digits = this.digits[i], unit = 10 ** digits;
      return { v: (this.base[i] + this.low[at] + 256 * this.high[at]) / unit, error: 0.5 / unit, digits };
    }
    let least = 0;
    for (let n = i * this.top; n < (i + 1) * this.top && this.cols[n] !== this.none; n++) {
      if (this.cols[n] === j) return { v: this.exact[n], error: 0 };
      least = this.exact[n];
    }
    return { below: least };
  }

  // What is not stored of row i is at most this much, mode "top".
  leastStored(i) {
    let n = (i + 1) * this.top - 1;
    while (n > i * this.top && this.cols[n] === this.none) n--;
    return this.exact[n];
  }

  // All weights (rows, keys); cached, see mapOf.
  dense() {
    if (this.all) return this.all;
    if (this.stored && page.mode === "f32" && !this.stack.causal) return (this.all = this.cells);
    const all = new Float32Array(this.rows * this.keys);
    for (let i = 0; i < this.rows; i++) this.row(i, all.subarray(i * this.keys, (i + 1) * this.keys));
    return (this.all = all);
  }

  // Weights, or weights times the norm of their values.
  shownCells(valued) {
    const all = this.dense();
    if (!valued || !this.norms) return all;
    if (this.valued) return this.valued;
    const out = new Float32Array(all.length), { keys, norms, rows } = this;
    for (let i = 0, at = 0; i < rows; i++) for (let j = 0; j < keys; j++, at++) out[at] = all[at] * norms[j];
    return (this.valued = out);
  }

  // Row i of the above, to be read only.
  shownRow(i, valued) {
    if (!this.remote) return this.shownCells(valued).subarray(i * this.keys, (i + 1) * this.keys);
    const row = this.remote.row(i);
    return valued && this.norms ? row.map((v, j) => v * this.norms[j]) : row;
  }

  // The largest weight of every row.
  rowMost(valued) {
    const key = valued ? "rowMostValued" : "rowMostPlain";
    if (this[key]) return this[key];
    const cells = this.shownCells(valued), { rows, keys } = this, most = new Float32Array(rows);
    for (let i = 0, at = 0; i < rows; i++) for (let j = 0; j < keys; j++, at++) if (cells[at] > most[i]) most[i] = cells[at];
    return (this[key] = most);
  }

  largest(valued) {
    if (this.remote) return 1;
    const key = valued ? "largestValued" : "largestPlain";
    if (this[key] !== undefined) return this[key];
    const cells = this.shownCells(valued);
    let most = 0;
    for (let n = 0; n < cells.length; n++) if (cells[n] > most) most = cells[n];
    return (this[key] = most);
  }

  smallest() {
    if (this.remote) return 0;
    if (this.least !== undefined) return this.least;
    const cells = this.dense();
    let least = 0;
    for (let n = 0; n < cells.length; n++) if (cells[n] < least) least = cells[n];
    return (this.least = least);
  }

  // The sum of a row that is farthest from one, where sums are known exactly; rows without
  // any weight do not count.
  worstSum() {
    if (!this.stored || this.remote) return 1;
    if (this.worst) return this.worst;
    let worst = 1;
    for (let i = 0; i < this.rows; i++) {
      const sum = this.sums ? this.sums[i] : this.row(i).reduce((total, v) => total + v, 0);
      if (sum !== 0 && Math.abs(sum - 1) > Math.abs(worst - 1)) worst = sum;
    }
    return (this.worst = worst);
  }

  // Share of the rows' mass that is in the file, on average.
  keptShare() {
    if (page.mode !== "top") return 1;
    if (this.share !== undefined) return this.share;
    let share = 0;
    for (let i = 0; i < this.rows; i++) {
      let sum = 0;
      for (let n = i * this.top; n < (i + 1) * this.top; n++) sum += this.exact[n];
      share += this.sums[i] ? sum / this.sums[i] : 1;
    }
    return (this.share = this.rows ? share / this.rows : 1);
  }
}

const CACHE = 24; // heads whose unpacked weights are cached
const cache = new Map();

function mapOf(ref) {
  const id = idOf(ref);
  let map = cache.get(id);
  if (!map) map = new HeadMap(ref);
  cache.delete(id);
  cache.set(id, map);
  if (cache.size > CACHE) cache.delete(cache.keys().next().value);
  return map;
}

// A small picture of a head: { w, h, cells (0..255), scale }. From the file, or pooled here.
const SIDE = 64;
const thumbs = new Map();

function thumbOf(ref) {
  const id = idOf(ref);
  if (page.mode === "live") return makeThumb(ref);
  if (!thumbs.has(id)) thumbs.set(id, makeThumb(ref));
  return thumbs.get(id);
}

function makeThumb(ref) {
  const at = stackOf(ref).thumbs[indexOf(ref)];
  const rows = queryWords(ref).length, keys = keyWords(ref).length;
  const side = at >= 0 ? page.side : SIDE;
  const h = Math.min(rows, side), w = Math.min(keys, side);
  if (page.mode === "live") return remoteThumb(ref, w, h);
  if (at >= 0) {
    const scale = new Float32Array(arrays, at, 1)[0];
    return { w, h, scale, cells: new Uint8Array(arrays, at + 4, w * h) };
  }
  return poolThumb(new HeadMap(ref), w, h); // not from the cache: all heads pass here once
}

function poolThumb(map, w, h) {
  const most = new Float32Array(w * h), { rows, keys } = map, row = new Float32Array(keys);
  const column = Uint16Array.from({ length: keys }, (_, j) => Math.floor((j * w) / keys));
  let scale = 0;
  for (let i = 0; i < rows; i++) {
    const at = Math.floor((i * h) / rows) * w;
    map.row(i, row);
    for (let j = 0; j < keys; j++) if (row[j] > most[at + column[j]]) most[at + column[j]] = row[j];
  }
  for (const v of most) if (v > scale) scale = v;
  return { w, h, scale, cells: Uint8Array.from(most, (v) => (scale ? Math.floor((v / scale) * 255) : 0)) };
}

// q (rows, dim) and k (keys, dim) of a head, or null.
function vectorsOf(ref) {
  const stack = stackOf(ref), at = stack.vectors[indexOf(ref)];
  const rows = queryWords(ref).length, keys = keyWords(ref).length, dim = stack.dim;
  const all = at >= 0 ? new Float32Array(arrays, at, (rows + keys) * dim) : dim && page.live ? remoteVectors(ref) : null;
  if (!all) return null;
  return { dim, scale: stack.scale, pair: stack.pair, q: all.subarray(0, rows * dim), k: all.subarray(rows * dim) };
}

// The largest entries of a row that together reach share p of its mass, as keys in falling
// order of weight. Buckets by size first, so that only the last bucket is sorted.
function topMass(row, seen, p) {
  let total = 0, most = 0;
  for (let j = 0; j < seen; j++) {
    if (row[j] <= 0) continue;
    total += row[j];
    if (row[j] > most) most = row[j];
  }
  if (!total) return [];
  const buckets = 64, mass = new Float64Array(buckets);
  const bucketOf = (v) => Math.min(buckets - 1, Math.floor((v / most) * buckets));
  for (let j = 0; j < seen; j++) if (row[j] > 0) mass[bucketOf(row[j])] += row[j];
  let border = buckets - 1, sum = 0;
  while (border > 0 && sum + mass[border] < p * total) sum += mass[border--];
  const sure = [], maybe = [];
  for (let j = 0; j < seen; j++) {
    if (row[j] <= 0) continue;
    const b = bucketOf(row[j]);
    if (b > border) sure.push(j);
    else if (b === border) maybe.push(j);
  }
  maybe.sort((a, b) => row[b] - row[a] || a - b);
  for (const j of maybe) {
    if (sum >= p * total) break;
    sure.push(j);
    sum += row[j];
  }
  return sure.sort((a, b) => row[b] - row[a] || a - b);
}
