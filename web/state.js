// state.js - what is shown, stored in the address so that a view can be shared. Drawing
// reads `state`; every event calls set(), which draws once per frame.

const VIEWS = ["beams", "heat", "all", "neuron", "compare"];
// Neurons need vectors, which maps of other programs do not have.
const viewsHere = () => VIEWS.filter((view) => view !== "neuron" || page.reports.some((report) => report.stacks.some((stack) => stack.dim)));
const SCALES = ["auto", "fixed", "head", "row"];

const state = {
  view: "heat",
  a: { r: 0, s: 0, l: 0, h: 0 }, // the head
  b: null, // what it is compared with
  extra: [], // more heads among the beams
  i: 0, j: 0, // cursor: row and key
  picked: [], // words of the strip
  seen: false, // the strip shows who attends to the picked words, not what they attend to
  mass: 0.7,
  valued: false,
  scale: "auto",
  metric: "role",
  filter: "",
  find: "",
  zoom: 1, x: 0, y: 0, // heat map: times the fitting size; first key and row shown
  scroll: 0, // beams and neurons: first word shown
};

// Format of the address: [key, write, read]; read returns undefined for malformed values.
const readHead = (text) => {
  const n = text.split(".").map(Number);
  return n.length === 4 && n.every((x) => Number.isInteger(x) && x >= 0) ? { r: n[0], s: n[1], l: n[2], h: n[3] } : undefined;
};
const oneOf = (list) => (text) => (list.includes(text) ? text : undefined);
const readInt = (text) => (/^\d{1,7}$/.test(text) ? Number(text) : undefined);
const readInts = (text) => text.split(".").map(readInt).filter((n) => n !== undefined);
const readShare = (text) => (Number(text) >= 0.05 && Number(text) <= 1 ? Number(text) : undefined);
const readText = (text) => text.slice(0, 500);
const readBool = (text) => text === "1";
const FIELDS = {
  view: [String, oneOf(VIEWS)],
  a: [idOf, readHead],
  b: [(b) => (b ? idOf(b) : ""), readHead],
  extra: [(list) => list.map(idOf).join("_"), (text) => text.split("_").map(readHead).filter(Boolean).slice(0, MAX_HEADS - 1)],
  i: [String, readInt],
  j: [String, readInt],
  picked: [(list) => list.join("."), readInts],
  seen: [(v) => (v ? "1" : ""), readBool],
  mass: [String, readShare],
  valued: [(v) => (v ? "1" : ""), readBool],
  scale: [String, oneOf(SCALES)],
  metric: [String, (text) => (/^\w{1,40}$/.test(text) ? text : undefined)],
  filter: [String, readText],
  zoom: [(v) => (v === 1 ? "" : v.toFixed(2)), (text) => (Number(text) >= 1 && Number(text) <= 400 ? Number(text) : undefined)],
  x: [(v) => (v ? v.toFixed(1) : ""), (text) => Math.max(0, Number(text) || 0)],
  y: [(v) => (v ? v.toFixed(1) : ""), (text) => Math.max(0, Number(text) || 0)],
  lang: [String, oneOf(["en", "zh"])],
  theme: [String, oneOf(["light", "dark"])],
};
const usual = {};

function headExists(ref) {
  const stack = ref && page.reports[ref.r]?.stacks[ref.s];
  return Boolean(stack) && ref.l < stack.layers && ref.h < stack.heads;
}

// Clamps the state, so that it names things that exist whatever the address was.
function settle() {
  if (!viewsHere().includes(state.view)) state.view = "heat";
  if (!headExists(state.a)) state.a = { ...usual.a };
  if (state.b && !headExists(state.b)) state.b = null;
  state.extra = state.extra.filter((ref) => headExists(ref) && sameAxes(ref, state.a) && !sameHead(ref, state.a));
  const rows = queryWords(state.a).length, keys = keyWords(state.a).length;
  const words = stripWords().length;
  state.i = Math.max(0, Math.min(rows - 1, state.i));
  state.j = Math.max(0, Math.min(keys - 1, state.j));
  state.picked = [...new Set(state.picked)].filter((n) => n < words).sort((x, y) => x - y);
  const known = ["role", ...page.reports[state.a.r].metrics.map((m) => m.key)];
  if (!known.includes(state.metric)) state.metric = "role";
}

const stripWords = () => (state.seen ? keyWords(state.a) : queryWords(state.a));

function readAddress() {
  for (const part of location.hash.slice(1).split("&")) {
    const [key, text = ""] = part.split("=", 2);
    if (!FIELDS[key]) continue;
    let plain;
    try {
      plain = decodeURIComponent(text);
    } catch {
      continue;
    }
    const value = FIELDS[key][1](plain);
    if (value !== undefined) state[key] = value;
  }
}

function writeAddress() {
  const parts = [];
  for (const [key, [write]] of Object.entries(FIELDS)) {
    const text = write(state[key] ?? ""), old = write(usual[key] ?? "");
    if (text !== old && text !== "undefined") parts.push(`${key}=${encodeURIComponent(text)}`);
  }
  if (liveAddress()) parts.push(liveAddress());
  if (live.token) parts.push(`token=${live.token}`);
  const hash = parts.length ? `#${parts.join("&")}` : " ";
  if (hash.trim() !== location.hash) history.replaceState(null, "", hash === " " ? location.pathname + location.search : hash);
}

// Whether a part of the page must be redrawn: `parts` are what it depends on besides theme,
// language and screen.
const drawnFor = new Map();

function changed(part, ...parts) {
  const key = [theme(), lang, window.devicePixelRatio, ...parts].join("|");
  if (drawnFor.get(part) === key) return false;
  drawnFor.set(part, key);
  return true;
}

let planned = 0, addressTimer = 0;

// Changes the state; draws once at the next frame.
function set(change) {
  Object.assign(state, change);
  settle();
  planned ||= requestAnimationFrame(() => {
    planned = 0;
    draw();
    clearTimeout(addressTimer); // browsers limit changes of the address
    addressTimer = setTimeout(writeAddress, 120);
  });
}

const say = (text) => { document.getElementById("say").textContent = text; };
const $ = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}
