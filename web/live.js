// live.js - requests to the program that serves this page; unused in a saved file.
//
// The program stores only the last run: each request has the text and all edits. It
// answers with the report before the edits and, if there are any, the one after them.
// For long texts it sends no weights: the page requests the window it shows.

const live = { token: "", text: "", target: "", words: false, file: "", edits: [], frozen: false, sent: "", past: [], future: [], effects: null, note: "", first: "", dragging: false, running: false, again: false };

async function askProgram(path, body) {
  const bytes = body instanceof Blob, type = bytes ? "application/octet-stream" : "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: "POST", body: bytes ? body : JSON.stringify(body), headers: { "Content-Type": type, "X-Polyhead-Token": live.token } });
  } catch {
    throw new Error(t("lost"));
  }
  if (!answer.ok) throw new Error(t("failed", (await answer.json()).error));
  return answer;
}

// What is read, and how: what this model has no use for is not sent.
function asked() {
  const { text, target, words, file, edits, frozen } = live, can = page.live;
  return { text, edits, frozen, ...(can.target ? { target } : {}), ...(can.words ? { words } : {}), ...(readsFile() ? { file } : {}) };
}

const readsFile = () => page.live.picture || page.live.sound;
const readKey = () => JSON.stringify([live.text, live.target, live.file]);
const MAX_ADDRESS = 4000; // letters of the address for text and edits; longer ones are not stored

async function openLive() {
  live.token = /(?:^|[#&])token=([0-9a-f]{32})/.exec(location.hash)?.[1] ?? "";
  const before = /[#&]live=([^&]*)/.exec(location.hash)?.[1];
  await fetchRun({});
  Object.assign(live, { text: page.reports[0].text, target: page.live.firstTarget, words: page.live.byWords, edits: page.live.edits }); // edits of a plan
  live.first = JSON.stringify(asked());
  readEffects();
  try {
    const { text = live.text, target = live.target, words = live.words, file = "", edits = live.edits, frozen = false } = before ? JSON.parse(decodeURIComponent(before)) : {};
    Object.assign(live, { text, target, words, file, edits, frozen });
    if (JSON.stringify(asked()) !== live.first || live.edits.length) await fetchRun(asked());
    readEffects();
  } catch (error) { // another model's, or malformed
    Object.assign(live, JSON.parse(live.first), { note: error.message });
    await fetchRun(asked());
  }
  $("live").hidden = !Object.values(page.live).includes(true); // maps alone have nothing to run
  makeLivePanel();
}

// The head whose absence moves the answers most; the program measures it for texts without
// edits, as long as the model is small. Heads that are the answer come last: without them
// there is none.
function readEffects() {
  const all = allHeads(0).map((ref) => ({ ref, by: stackOf(ref).effect?.[indexOf(ref)] ?? 0 }));
  const inner = all.filter((x) => x.by > 0 && !stackOf(x.ref).share), found = inner.length ? inner : all;
  const most = found.reduce((best, x) => (x.by > best.by ? x : best), { by: 0 });
  if (live.edits.length && live.effects?.key === readKey()) return;
  live.effects = { key: readKey(), ...most };
}

// What a reload of the page restores.
function liveAddress() {
  const now = live.token && JSON.stringify(asked());
  return !now || now === live.first || now.length > MAX_ADDRESS ? "" : `live=${encodeURIComponent(now)}`;
}

// ---- files: pictures, features of sound ----------------------------------------------

const files = new Map(); // by the name that the program gave them; it holds the last only
const MOST_FILE = 64 << 20; // bytes that it takes: PH_REQUEST_FILE

async function sendFile(file) {
  if (file.size > MOST_FILE) throw new Error(t("failed", t("tooLarge", shown(file.name), MOST_FILE >> 20)));
  live.sent = (await (await askProgram("/file", file)).json()).file;
  files.set(live.sent, file);
}

async function chooseFile(file) {
  if (!file) return;
  try {
    await sendFile(file);
    change(live.edits, { text: file.name, file: live.sent });
  } catch (error) {
    live.note = error.message;
    drawLive();
  }
}

function takeDrops() {
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => { // or the browser would leave for it
    event.preventDefault();
    chooseFile(event.dataTransfer.files[0]);
  });
}

// ---- runs ----------------------------------------------------------------------------

async function fetchRun(body) {
  if (files.has(body.file) && body.file !== live.sent) await sendFile(files.get(body.file));
  const data = await (await askProgram("/run", body)).arrayBuffer(), length = new DataView(data).getUint32(0, true);
  page = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  arrays = data.slice(4 + length);
  addTextMeasures();
  remoteKnown.clear();
  questions.length = 0;
  runs++;
  forget();
}

// ---- edits ---------------------------------------------------------------------------

const editOf = (ref) => live.edits.find((e) => e.kind !== "mask" && e.stack === ref.s && e.layer === ref.l && e.head === ref.h);
const maskOf = (axis, word) => live.edits.find((e) => e.kind === "mask" && e.axis === axis && e.word === word);

const sameRun = (a, b) => JSON.stringify(a) === JSON.stringify(b);

function change(edits, more = {}) {
  if (sameRun({ ...asked(), edits, ...more }, asked())) return;
  live.past.push(asked());
  live.future = [];
  Object.assign(live, { edits, ...more });
  runAgain();
}

// Takes the last of `from` that differs from what is shown; what is shown goes to `to`.
function step(from, to) {
  const now = asked();
  while (from.length && sameRun(from[from.length - 1], now)) from.pop();
  if (!from.length) return drawLive();
  to.push(now);
  Object.assign(live, from.pop());
  $("live-text").value = live.text;
  $("live-target").value = live.target;
  return runAgain();
}
const undo = () => step(live.past, live.future);
const redo = () => step(live.future, live.past);

// One run at a time; edits made meanwhile run when it is done.
async function runAgain() {
  live.again = true;
  live.note = t("busy");
  drawLive();
  if (live.running) return;
  live.running = true;
  const wordsNow = () => JSON.stringify(page.reports[0].axes.map((axis) => axis.tokens)), before = wordsNow();
  while (live.again) {
    live.again = false;
    const began = performance.now();
    try {
      await fetchRun(asked());
      readEffects();
      live.note = live.again ? t("busy") : t("ready", Math.round(performance.now() - began));
    } catch (error) {
      live.note = error.message;
      if (live.past.length) Object.assign(live, live.past.pop()); // a refused edit is dropped
      await fetchRun(asked()).catch(() => {}); // it stores the last run only
    }
  }
  live.running = false;
  const now = (ref) => ({ ...ref, r: page.reports.length - 1 });
  Object.assign(state, { a: now(state.a), extra: state.extra.map(now) });
  if (wordsNow() !== before) startWord();
  settle();
  drawLanguage();
  set({});
}

function withHead(kind, gate = 1) {
  const { s, l, h } = state.a, others = live.edits.filter((e) => e !== editOf(state.a));
  if (kind === "on" || (kind === "gate" && gate === 1)) return others;
  return [...others, { kind, stack: s, layer: l, head: h, ...(kind === "gate" ? { gate } : {}) }];
}

const setHead = (kind) => change(withHead(kind));

// A whole drag of the slider is one edit: undo restores the value before it.
function dragGate(gate) {
  const edits = withHead("gate", gate);
  if (!live.dragging) {
    live.dragging = true;
    return change(edits);
  }
  live.edits = edits;
  return runAgain();
}

// The picked words, or the one under the cursor.
function toggleMask() {
  const axis = state.seen ? stackOf(state.a).k : stackOf(state.a).q;
  const words = state.picked.length ? state.picked : [state.seen ? state.j : state.i];
  const masked = maskOf(axis, words[0]);
  const others = live.edits.filter((e) => e.kind !== "mask" || e.axis !== axis || !words.includes(e.word));
  change(masked ? others : [...others, ...words.map((word) => ({ kind: "mask", axis, word }))]);
}

async function savePlan() {
  try {
    const edits = JSON.stringify(live.edits), { name } = await (await askProgram("/save", asked())).json();
    surgery.plan = { name, edits };
    live.note = t("planSaved", name);
  } catch (error) {
    live.note = error.message;
  }
  drawLive();
}

// ---- the panel -----------------------------------------------------------------------

function makeLivePanel() {
  const button = (id, act, tip) => make("button", { type: "button", id, onclick: act, "data-title": tip });
  const enters = (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    runText();
  };
  const text = make("textarea", { id: "live-text", rows: 1, spellcheck: "false", "data-label": "textBox", "data-title": "tipText", onkeydown: enters });
  const target = make("textarea", { id: "live-target", rows: 1, spellcheck: "false", "data-label": "targetBox", "data-title": "tipTarget", onkeydown: enters });
  text.value = live.text;
  target.value = live.target;
  const takeFile = (event) => {
    chooseFile(event.target.files[0]);
    event.target.value = ""; // the same file may be chosen again
  };
  const file = make("input", { type: "file", id: "live-file", hidden: true, onchange: takeFile, accept: page.live.picture ? "image/png,image/jpeg,.ppm" : ".npy,.safetensors" });
  const words = make("input", { type: "checkbox", id: "live-words", onchange: (event) => change(live.edits, { words: event.target.checked }) });
  if (readsFile()) takeDrops();
  const dragEnds = () => { live.dragging = false; }; // no change event where it ends at its old value
  const gate = make("input", { type: "range", id: "live-gate", min: 0, max: 1, step: 0.05, oninput: (event) => dragGate(Number(event.target.value)), onchange: dragEnds, onpointerdown: dragEnds });
  const frozen = make("input", { type: "checkbox", id: "live-frozen", onchange: (event) => change(live.edits, { frozen: event.target.checked }) });
  const heads = make("span", { class: "group", role: "group", id: "live-head", "data-label": "ablate" },
    button("live-on", () => setHead("on"), "tipOn"), button("live-zero", () => setHead("zero"), "tipZero"), button("live-mean", () => setHead("mean"), "tipMean"));
  $("live").replaceChildren(
    make("h2", { id: "live-title", class: "hidden", "data-t": "liveTitle" }),
    make("div", { class: "line", id: "live-text-line" }, text, file, button("live-choose", () => file.click(), "tipFile"), target,
      make("button", { type: "button", id: "live-run", "data-t": "run", "data-title": "tipRun", onclick: runText }),
      make("label", { class: "field check", id: "live-words-field", "data-title": "tipWords" }, words, make("span", { "data-t": "byWords" })),
      make("span", { id: "live-note", class: "note", role: "status" })),
    make("div", { class: "line" }, make("span", { id: "live-hint" }), make("button", { type: "button", id: "live-go", class: "plain", "data-t": "goThere", onclick: goToEffect })),
    make("div", { class: "line controls" },
      make("span", { id: "live-which", class: "note" }), heads,
      make("label", { class: "field", id: "live-gate-field", "data-title": "tipGate" }, make("span", { "data-t": "gate" }), gate, make("output", { id: "live-gate-out", for: "live-gate" })),
      make("label", { class: "field check", id: "live-frozen-field", "data-title": "tipFrozen" }, frozen, make("span", { "data-t": "frozen" })),
      button("live-mask", toggleMask, "tipMask"), button("live-undo", undo, "tipUndo"), button("live-redo", redo, "tipRedo"), button("live-save", savePlan, "tipSave")),
    make("div", { class: "line lists" },
      make("span", { class: "pair" }, make("span", { class: "note", "data-t": "edits" }), make("ul", { id: "live-edits" })),
      make("span", { class: "pair", id: "live-changed-line" }, make("span", { class: "note", "data-t": "changed" }), make("ul", { id: "live-changed" }))),
    makeSurgery());
}

const goToEffect = () => chooseHead({ ...live.effects.ref, r: state.a.r });

function drawHint() {
  const { ref, by } = live.effects ?? {};
  $("live-hint").textContent = by > 0 ? t(readsFile() ? "hintHeadFile" : "hintHead", titleOf(ref), number(by), t("zero")) : t(readsFile() ? "hintFile" : "hintAny", t("zero"));
  $("live-go").hidden = !(by > 0);
  $("live-go").disabled = by > 0 && sameHead({ ...ref, r: state.a.r }, state.a);
}

function runText() {
  const text = page.live.text ? $("live-text").value : live.text, target = page.live.target ? $("live-target").value : live.target;
  if (text !== live.text || target !== live.target) change(live.edits.filter((e) => e.kind !== "mask"), { text, target });
}

function editName(e) {
  if (e.kind === "mask") return t("editMask", shown(page.reports[0].axes[e.axis]?.tokens[e.word] ?? ""));
  const name = labelOf({ r: 0, s: e.stack, l: e.layer, h: e.head });
  if (e.kind === "gate") return t("editGate", name, e.gate);
  return t(e.kind === "zero" ? "editZero" : "editMean", name);
}

function drawLive() {
  if (!$("live-note")) return;
  const can = page.live, now = editOf(state.a), kind = now?.kind ?? "on";
  $("live-note").textContent = live.note;
  $("live-which").textContent = titleOf(state.a);
  for (const [id, name] of [["live-on", "restore"], ["live-zero", "zero"], ["live-mean", "mean"]]) {
    $(id).textContent = t(name);
    $(id).setAttribute("aria-pressed", String(id === `live-${kind}`));
  }
  drawHint();
  $("live-text-line").hidden = !can.text && !can.target && !readsFile();
  $("live-text").hidden = !can.text;
  $("live-target").hidden = !can.target;
  $("live-target").placeholder = t("generated");
  $("live-run").hidden = !can.text && !can.target;
  $("live-choose").hidden = !readsFile();
  $("live-choose").textContent = t(can.sound ? "otherSound" : "otherPicture");
  $("live-words-field").hidden = !can.words;
  $("live-words").checked = live.words;
  $("live-zero").hidden = !can.zero;
  $("live-mean").hidden = !can.mean;
  $("live-gate-field").hidden = !can.gate;
  $("live-frozen-field").hidden = !can.frozen;
  $("live-save").hidden = !can.save;
  $("live-gate").value = kind === "gate" ? now.gate : kind === "zero" ? 0 : 1;
  $("live-gate-out").textContent = $("live-gate").value;
  $("live-frozen").checked = live.frozen;
  const axis = state.seen ? stackOf(state.a).k : stackOf(state.a).q, word = state.picked[0] ?? (state.seen ? state.j : state.i);
  $("live-mask").hidden = !can.mask || !stripWords().length;
  $("live-mask").textContent = t(maskOf(axis, word) ? "unmask" : "mask", shown(page.reports[0].axes[axis]?.tokens[word] ?? ""));
  $("live-undo").textContent = t("undo");
  $("live-undo").disabled = !live.past.some((before) => !sameRun(before, asked()));
  $("live-redo").textContent = t("redo");
  $("live-redo").disabled = !live.future.length;
  $("live-save").textContent = t("savePlan");
  $("live-save").disabled = !live.edits.some((e) => e.kind !== "mask");
  drawEdits();
  drawSurgery();
}

function drawEdits() {
  const list = $("live-edits");
  const chip = (name, gone) => make("li", {}, make("button", { type: "button", "aria-label": t("removeEdit", name), onclick: () => change(live.edits.filter((x) => !gone.includes(x))) }, `${name} ×`));
  const pruned = prunedEdits(), alone = live.edits.filter((e) => !pruned.includes(e));
  list.replaceChildren(...(pruned.length ? [chip(t("editPruned", pruned.length), pruned)] : []), ...alone.map((e) => chip(editName(e), [e])));
  if (!live.edits.length) list.append(make("li", { class: "note" }, t("noEdits")));
  const changed = mostChanged();
  $("live-changed-line").style.visibility = changed.length ? "visible" : "hidden"; // nothing may move
  $("live-changed").replaceChildren(...changed.map(({ ref, by }) => make("li", {}, make("button", { type: "button", onclick: () => set({ a: ref, view: "compare", b: null }) },
    `${labelOf(ref)} ${number(by)}`))));
}

// Heads whose patterns changed most: the mean over rows of the total variation distance.
// Only where the weights are in the page.
function mostChanged() {
  if (page.reports.length < 2 || page.mode === "live") return [];
  if (page.changed) return page.changed;
  const found = [];
  page.reports[1].stacks.forEach((stack, s) => {
    for (const ref of headsOf({ r: 1, s })) {
      if (isAbsent(ref)) continue;
      const a = new HeadMap({ ...ref, r: 0 }), b = new HeadMap(ref);
      if (!sameShape(a, b) || !a.stored || !b.stored || !a.rows) continue;
      const from = a.dense(), to = b.dense();
      let sum = 0;
      for (let n = 0; n < from.length; n++) sum += Math.abs(to[n] - from[n]);
      found.push({ ref, by: sum / 2 / a.rows });
    }
  });
  page.changed = found.filter((x) => x.by > 1e-6).sort((x, y) => y.by - x.by).slice(0, 6);
  return page.changed;
}

// ---- weights on demand ---------------------------------------------------------------

const remoteKnown = new Map(); // request to answer: Float32Array, or null while it is pending
let asking = 0, runs = 0;
const questions = [];
const MOST_ASKING = 2, MOST_KNOWN = 600;

// The answer if it is known; else requests it and redraws when it arrives.
function remoteFloats(path, body) {
  const key = `${path}${JSON.stringify(body)}`, known = remoteKnown.get(key);
  if (known !== undefined) return known;
  if (remoteKnown.size > MOST_KNOWN) for (const old of [...remoteKnown.keys()].slice(0, MOST_KNOWN / 2)) if (remoteKnown.get(old)) remoteKnown.delete(old);
  remoteKnown.set(key, null);
  questions.push({ key, path, body });
  askNext();
  return null;
}

// The newest request first: it is about what is shown now. None is sent during a run, which
// replaces the reports, and a refused one is not repeated before the next run.
async function askNext() {
  if (live.running || asking >= MOST_ASKING || !questions.length) return;
  const { key, path, body } = questions.pop(), run = runs;
  asking++;
  try {
    const data = await (await askProgram(path, body)).arrayBuffer();
    if (run === runs) remoteKnown.set(key, new Float32Array(data));
  } catch (error) {
    if (run === runs && !live.running) live.note = error.message;
  }
  asking--;
  atlas = {};
  set({});
  askNext();
}

const placeOf = (ref) => ({ which: ref.r, stack: ref.s, layer: ref.l, head: ref.h });

class RemoteMap {
  constructor(ref, rows, keys) {
    Object.assign(this, { ref, rows, keys, blank: new Float32Array(keys) });
  }
  window(row0, rows, col0, cols, height, width) {
    return remoteFloats("/window", { ...placeOf(this.ref), row0, rows, col0, cols, height, width });
  }
  // Rows are fetched in blocks: neighbouring rows are usually shown next.
  block(i) {
    const size = Math.max(1, Math.min(64, Math.floor(131072 / this.keys))), row0 = Math.floor(i / size) * size;
    const rows = Math.min(size, this.rows - row0), data = this.window(row0, rows, 0, this.keys, rows, this.keys);
    return data && data.subarray((i - row0) * this.keys, (i - row0 + 1) * this.keys);
  }
  has(i) { return Boolean(this.block(i)); }
  row(i) { return this.block(i) ?? this.blank; }
  columns(words) {
    this.open = new Map(words.map((j) => [j, this.window(0, this.rows, j, 1, this.rows, 1)]));
  }
  cell(i, j) {
    if (this.open?.has(j)) {
      const column = this.open.get(j);
      return column ? { v: column[i], error: 0 } : { pending: true };
    }
    const row = this.block(i);
    return row ? { v: row[j], error: 0 } : { pending: true };
  }
}

// The window of a heat map as an image; of a difference where shade.from is the other map.
// null: still requested.
function remoteImage(layout, shade, w, h) {
  const { map, rows, cols, i0, j0 } = layout, ask = (m) => m.remote.window(i0, rows, j0, cols, h, w);
  const to = ask(map), from = shade.from && ask(shade.from);
  if (!to || (shade.from && !from)) return null;
  const image = { w, h, rgba: new Uint8ClampedArray(4 * w * h) };
  const out = new Uint32Array(image.rgba.buffer), colours = lutWords(shade.lut);
  for (let n = 0; n < w * h; n++) {
    const row = i0 + Math.min(rows - 1, Math.floor((((n / w) | 0) + 1) * (rows / h)) - 1), col = j0 + Math.floor((n % w) * (cols / w));
    if (col >= map.seen(Math.max(i0, row))) continue;
    const norm = shade.valued && map.norms ? map.norms[col] : 1;
    out[n] = colours[shadeLevel(shade, (from ? to[n] - from[n] : to[n]) * norm, 1)];
  }
  return image;
}

function remoteThumb(ref, w, h) {
  const rows = queryWords(ref).length, keys = keyWords(ref).length;
  const data = w && h ? remoteFloats("/window", { ...placeOf(ref), row0: 0, rows, col0: 0, cols: keys, height: h, width: w }) : null;
  if (!data) return { w, h, scale: 1, cells: new Uint8Array(w * h) };
  const scale = data.reduce((most, v) => Math.max(most, v), 0) || 1;
  return { w, h, scale, cells: Uint8Array.from(data, (v) => Math.max(0, Math.floor((v / scale) * 255))) };
}

const remoteVectors = (ref) => remoteFloats("/vectors", placeOf(ref));
