// main.js - controls, pointer, keys, drawing.

const VIEW = { heat: heatView, beams: beamsView, all: allView, neuron: neuronView, compare: compareView };
const viewOf = () => VIEW[state.view];

// ---- drawing -------------------------------------------------------------------------

// Sizes are read before anything is changed: reading one in between would force a layout
// each time. Where drawing changes a size, the observers redraw.
const space = {};

function measureRoom() {
  const panel = $("panel"), box = panel.getBoundingClientRect();
  space.width = Math.floor(box.width);
  const most = box.width < 600 ? Math.max(420, 1.2 * box.width) : 1000; // on a phone controls come soon after it
  space.height = Math.floor(Math.max(340, Math.min(most, innerHeight - box.top - scrollY - 84))); // the rest of the window
  space.height = viewOf().tall?.(space.width, space.height) ?? space.height;
  space.grid = $("grid").parentElement.clientWidth;
  space.card = $("card-title").parentElement.clientWidth - 20;
  panel.style.height = `${space.height}px`;
}

function drawView() {
  viewOf().draw(openCanvas($("view"), space.width, space.height), space.width, space.height);
}

// What the colours of the view stand for.
function keyScale() {
  const maps = (state.view === "heat" || state.view === "compare") && !isAbsent(state.a);
  if (state.view === "neuron") return { signed: true, most: neuronAt?.most ?? 1 };
  return { signed: maps && mapOf(state.a).smallest() < -1e-6, most: maps ? darkest(mapOf(state.a), state.valued) : 1 };
}

function drawKey() {
  const { most, signed } = keyScale(), ramp = $("ramp");
  ramp.hidden = state.view === "beams";
  if (!ramp.hidden) drawRamp(ramp, most, signed);
  ramp.setAttribute("aria-label", t("rampLabel"));
  const difference = $("ramp-difference"), last = state.view === "compare" ? compareAt[2] : null;
  difference.hidden = !last;
  if (last) drawRamp(difference, last.most || 1, true);
  difference.setAttribute("aria-label", `${t("rampLabel")} ${t("difference")}`);
  $("key-note").textContent = viewOf().note();
}

function drawControls() {
  for (const button of $("tabs").children) {
    const on = button.dataset.view === state.view;
    button.setAttribute("aria-selected", String(on));
    button.tabIndex = on ? 0 : -1;
  }
  $("panel").setAttribute("aria-labelledby", `tab-${state.view}`);
  $("view").setAttribute("aria-label", t("viewLabel", t(state.view)));
  const heat = state.view === "heat" || state.view === "compare";
  $("scale-field").hidden = !heat && state.view !== "all";
  $("mass-field").hidden = state.view !== "beams";
  $("zoom-field").hidden = !heat;
  $("value-field").hidden = !(heat || state.view === "beams") || stackOf(state.a).norms < 0;
  $("scale").value = state.scale;
  $("mass").value = state.mass;
  $("mass-out").textContent = percent(state.mass);
  $("value").checked = state.valued;
  $("gives").setAttribute("aria-pressed", String(!state.seen));
  $("gets").setAttribute("aria-pressed", String(state.seen));
  $("metric").value = state.metric;
  $("stack").value = state.a.s;
  $("report-choice").value = state.a.r;
  $("save-csv").disabled = state.view !== "all" && (isAbsent(state.a) || !mapOf(state.a).stored || page.mode === "live" || (state.view === "neuron" && !vectorsOf(state.a)));
  if ($("filter").value !== state.filter) $("filter").value = state.filter;
}

function drawChips() {
  const box = $("chips");
  box.hidden = state.view !== "beams";
  if (box.hidden || !changed("chips", [state.a, ...state.extra].map(idOf))) return;
  box.replaceChildren(...[state.a, ...state.extra].map((ref, n) => {
    const mark = make("i"), role = roleOf(ref);
    mark.style.background = headColour(n);
    const name = `${labelOf(ref)}${role.key === "none" ? "" : ` · ${nameOf(role)}`}`;
    const remove = () => set(n ? { extra: state.extra.filter((x) => x !== ref) } : state.extra.length ? { a: state.extra[0], extra: state.extra.slice(1) } : {});
    return make("button", { type: "button", onclick: remove, "aria-label": t("chipRemove", name), disabled: !state.extra.length }, mark, name);
  }));
}

function drawFilter() {
  if (!changed("filter", state.a.r, state.filter)) return;
  const note = $("filter-note"), heads = allHeads(state.a.r).filter((ref) => !isAbsent(ref));
  try {
    passes = parseFilter(state.filter, page.reports[state.a.r]);
    note.textContent = state.filter.trim() ? t("filterCount", heads.filter(passes).length, heads.length) : "";
    note.classList.remove("bad");
    $("filter").removeAttribute("aria-invalid");
  } catch (error) {
    if (!(error instanceof FilterError)) throw error;
    passes = () => true;
    note.textContent = t("filterBad", error.message, error.at + 1);
    note.classList.add("bad");
    $("filter").setAttribute("aria-invalid", "true");
  }
}

function draw() {
  measureRoom();
  drawFilter();
  drawHeader();
  drawControls();
  drawChips();
  drawGrid();
  drawStrip();
  drawView();
  drawKey();
  drawCard();
  if (page.live) drawLive();
}

// ---- words of the frame --------------------------------------------------------------

// Words that the model does not know.
function unknownNote() {
  const names = page.reports[state.a.r].axes.flatMap((axis) => axis.tokens.filter((_, n) => axis.unknown?.[n]));
  return names.length ? t("unknownWords", [...new Set(names)].slice(0, 12).map(shown).join(", ")) : "";
}

// "encoder: 2 layers x 8 heads" of every stack; one alone needs no name.
function shapesOf({ stacks }) {
  return stacks.map(({ name, layers, heads }) => `${stacks.length > 1 ? `${said(name)}: ` : ""}${t("shape", counted(layers, "layer"), counted(heads, "head"))}`);
}

function drawHeader() {
  if (!changed("header", idOf(state.a))) return;
  const report = page.reports[state.a.r], stack = stackOf(state.a);
  const rows = queryWords(state.a).length, keys = keyWords(state.a).length;
  const size = isSelf(state.a) ? counted(rows, report.picture ? "token" : "word") : t("rowsKeys", rows, keys);
  const group = stack.kvHeads < stack.heads ? ` · ${t("group", stack.heads / stack.kvHeads)}` : "";
  $("title").textContent = shown(said(report.title) || "Polyhead");
  document.title = `${shown(report.title || "Polyhead")} – Polyhead`;
  const text = report.text ? `“${shown(report.text.slice(0, 400))}${report.text.length > 400 ? "…" : ""}” · ` : "";
  $("subtitle").textContent = `${text}${shapesOf(report).join(" · ")} · ${size}${group}`;
  $("found").textContent = said(report.found.replace(/^(\d+ heads?): [^;]*; /, "$1; ")); // the legend counts roles
  const notes = unknownNote() + leftOut();
  $("left-out").textContent = notes;
  $("left-out").hidden = !notes;
}

// What the file does not hold, or only approximately.
function leftOut() {
  if (page.mode === "live") return "";
  const refs = headsOf(state.a).filter((ref) => !isAbsent(ref)), stack = stackOf(state.a);
  const stored = refs.filter((ref) => stack.maps[indexOf(ref)] >= 0);
  let text = "";
  const worst = isAbsent(state.a) ? 1 : mapOf(state.a).worstSum();
  if (Math.abs(worst - 1) > 0.004) text += t("rowSum", number(worst));
  if (page.mode === "top" && stack.maps[indexOf(state.a)] >= 0) text += t("left", Math.round(100 * mapOf(state.a).keptShare()), page.top);
  if (stored.length < refs.length) text += t("leftHeads", refs.length - stored.length, refs.length);
  if (page.mode === "dec") text += t("quantised");
  const vectors = refs.filter((ref) => stack.vectors[indexOf(ref)] >= 0).length;
  if (stack.dim && vectors < refs.length) text += t("leftVectors", vectors, refs.length);
  return text.trim();
}

function option(value, text) {
  return make("option", { value }, text);
}

function drawLanguage() {
  document.documentElement.lang = lang === "zh" ? "zh-Hans" : "en";
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-title]")) node.title = t(node.dataset.title);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", t(node.dataset.label));
  for (const kind of ["svg", "png", "csv"]) $(`save-${kind}`).setAttribute("aria-label", ($(`save-${kind}`).title = t("saveAs", kind.toUpperCase())));
  $("filter").placeholder = t("filterHint");
  const button = $("lang-button");
  button.textContent = t("otherLang");
  button.lang = lang === "zh" ? "en" : "zh-Hans";
  $("theme-button").textContent = t(dark ? "light" : "dark");
  $("tabs").replaceChildren(...viewsHere().map((view) => make("button", { type: "button", role: "tab", id: `tab-${view}`, "data-view": view, "aria-controls": "panel", onclick: () => set({ view }) }, t(view))));
  $("scale").replaceChildren(...SCALES.map((scale) => option(scale, t(`scale${scale[0].toUpperCase()}${scale.slice(1)}`))));
  const report = page.reports[state.a.r];
  $("metric").replaceChildren(option("role", t("role")), ...report.metrics.map((m) => option(m.key, nameOf(m))));
  $("stack").replaceChildren(...report.stacks.map((s, n) => option(n, said(s.name) || String(n))));
  $("stack-field").hidden = report.stacks.length < 2;
  $("report-choice").replaceChildren(...page.reports.map((_, n) => option(n, page.live ? reportName(n) : `${n ? "B" : "A"} ${reportName(n)}`)));
  $("report-field").hidden = page.reports.length < 2;
  stripKey = "";
}

function chooseLanguage(to) {
  lang = state.lang = to;
  live.note = ""; // it was in the other language
  drawLanguage();
  set({});
}

function chooseTheme(to) {
  state.theme = to;
  dark = to === "dark";
  document.documentElement.dataset.theme = to;
  $("theme-button").textContent = t(dark ? "light" : "dark");
  set({});
}

// ---- help ----------------------------------------------------------------------------

const KEYS = [["← ↑ → ↓", "k_arrows"], ["[ ]", "k_brackets"], ["PgUp PgDn", "k_page"], ["+ −", "k_zoom"], ["1 … 5", "k_views"], ["Space", "k_space"], ["Esc", "k_escape"], ["/", "k_find"], ["f", "k_filter"], ["c", "k_compare"], ["v", "k_value"], ["e", "k_export"], ["Ctrl-Z Ctrl-Shift-Z", "k_undo"], ["?", "k_help"]];

// With words of the text that is shown.
function howToRead() {
  const words = [queryWords(state.a)[state.i] ?? "", keyWords(state.a)[state.j] ?? ""].map(shown);
  const answers = page.reports[state.a.r].stacks.some((stack) => stack.share);
  return ["read_rows", "read_colour", "read_beams", "read_heads", ...(answers ? ["read_answers"] : [])].map((key) => t(key, ...words));
}

function openHelp() {
  const dialog = $("help"), report = page.reports[state.a.r], list = (rows) => {
    const box = make("dl");
    for (const [key, text] of rows) box.append(make("dt", {}, key), make("dd", {}, text));
    return box;
  };
  const label = report.roles[1]?.key ?? "prev";
  dialog.replaceChildren(
    make("button", { type: "button", class: "close", onclick: () => dialog.close() }, t("close")),
    make("h2", { id: "help-title" }, t("help")),
    make("h3", {}, t("readTitle")), make("ul", { class: "reading" }, ...howToRead().map((text) => make("li", {}, text))),
    make("h3", {}, t("keysTitle")), list(KEYS.map(([key, text]) => [make("kbd", {}, key), t(text)])),
    make("h3", {}, t("defsTitle")), make("p", { class: "note" }, t("filterHelp", label)),
    list(report.metrics.map((m) => [m.key, `${nameOf(m)}: ${helpOf(m)}${m.threshold > 0 ? ` (${t("threshold", number(m.threshold))})` : ""}`])),
    make("h3", {}, t("rolesTitle")), list(report.roles.slice(1).map((role) => [role.glyph, `${nameOf(role)}: ${ruleOf(role)}`])));
  dialog.showModal();
}

// ---- pointer -------------------------------------------------------------------------

function showTip(lines, x, y) {
  const tip = $("tip");
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((line) => make("div", {}, ...line)));
  const { offsetWidth: w, offsetHeight: h } = tip;
  tip.style.left = `${x + 18 + w > innerWidth ? Math.max(4, x - w - 12) : x + 18}px`;
  tip.style.top = `${Math.max(4, Math.min(innerHeight - h - 4, y + 16))}px`;
}

function linesFor(hit) {
  if (!hit) return null;
  if (hit.head) return headTip(hit.head);
  if (hit.word) return wordLines(hit.word.side, hit.word.n);
  if (hit.neuron) return neuronView.lines(hit.neuron);
  if (hit.cell) return state.view === "compare" ? compareView.lines(hit) : cellLines(hit.ref, hit.cell.i, hit.cell.j);
  return null;
}

let drag = null;

function pointerMoves(event) {
  const { offsetX: x, offsetY: y } = event;
  if (drag) {
    viewOf().pan?.(drag.x - x, drag.y - y);
    drag = { x, y, moved: true };
    return;
  }
  const hit = viewOf().hit(x, y);
  showTip(linesFor(hit), event.clientX, event.clientY);
  if (state.view !== "beams") return;
  const before = JSON.stringify(beamsView.hover);
  beamsView.hover = hit?.word ?? null;
  if (JSON.stringify(beamsView.hover) !== before) drawView();
}

function pointerPresses(event) {
  const hit = viewOf().hit(event.offsetX, event.offsetY), more = event.shiftKey || event.ctrlKey || event.metaKey;
  if (hit?.head) return more ? addHead(hit.head) : chooseHead(hit.head);
  if (hit?.word) {
    if ((hit.word.side === "k") !== state.seen) set({ seen: hit.word.side === "k", picked: [] });
    return pickWord(hit.word.n, more);
  }
  if (hit?.neuron) return set({ j: hit.neuron.j });
  if (hit?.cell) return set({ i: hit.cell.i, j: hit.cell.j });
  return undefined;
}

function bindPointer() {
  const view = $("view"), grid = $("grid");
  view.addEventListener("pointermove", pointerMoves);
  view.addEventListener("pointerdown", (event) => {
    if (viewOf().pan && (state.zoom > 1 || state.view === "beams" || state.view === "neuron")) {
      drag = { x: event.offsetX, y: event.offsetY };
      view.setPointerCapture(event.pointerId);
    }
  });
  view.addEventListener("pointerup", () => { setTimeout(() => { drag = null; }); });
  view.addEventListener("click", (event) => { if (!drag?.moved) pointerPresses(event); });
  view.addEventListener("dblclick", () => { if (state.view === "all") set({ view: "heat" }); });
  view.addEventListener("pointerleave", () => {
    showTip(null);
    if (beamsView.hover) {
      beamsView.hover = null;
      drawView();
    }
  });
  view.addEventListener("wheel", (event) => {
    if (event.ctrlKey && viewOf().zoom) viewOf().zoom(event.deltaY < 0 ? 1.25 : 0.8);
    else if (viewOf().pan && (state.zoom > 1 || (beamsAt && !beamsAt.across) || state.view === "neuron")) viewOf().pan(event.deltaX, event.deltaY);
    else return;
    event.preventDefault();
  }, { passive: false });
  grid.addEventListener("pointermove", (event) => {
    const head = gridHit(gridAt, event.offsetX, event.offsetY);
    showTip(head && headTip(head), event.clientX, event.clientY);
  });
  grid.addEventListener("pointerleave", () => showTip(null));
  grid.addEventListener("click", (event) => {
    const head = gridHit(gridAt, event.offsetX, event.offsetY);
    if (head) (event.shiftKey ? addHead : chooseHead)(head);
  });
}

// ---- keys ----------------------------------------------------------------------------

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const ANYWHERE = {
  "[": () => moveHead(0, -1),
  "]": () => moveHead(0, 1),
  PageUp: () => moveHead(-1, 0),
  PageDown: () => moveHead(1, 0),
  "+": () => viewOf().zoom?.(1.5),
  "=": () => viewOf().zoom?.(1.5),
  "-": () => viewOf().zoom?.(1 / 1.5),
  "/": () => $("find").focus(),
  f: () => $("filter").focus(),
  c: () => set({ view: "compare", b: state.b ?? state.before ?? null }),
  v: () => set({ valued: !state.valued && stackOf(state.a).norms >= 0 }),
  e: () => saveSvg(),
  "?": openHelp,
  Escape: () => set({ picked: [] }),
};
VIEWS.forEach((_, n) => { ANYWHERE[String(n + 1)] = () => { if (viewsHere()[n]) set({ view: viewsHere()[n] }); }; });

// Fields have an undo of their own.
function undoPressed(event) {
  const key = event.key.toLowerCase(), typing = event.target.matches("textarea, input[type=text], input[type=search]");
  if (!page.live || typing || $("help").open || !["z", "y"].includes(key)) return;
  (key === "y" || event.shiftKey ? redo : undo)();
  event.preventDefault();
}

function keyPressed(event) {
  if ((event.ctrlKey || event.metaKey) && !event.altKey) return undoPressed(event);
  if (event.altKey || $("help").open) return undefined;
  const where = event.target, typing = /^(INPUT|SELECT|TEXTAREA)$/.test(where.tagName);
  if (typing) {
    if (event.key === "Escape") $("view").focus();
    return undefined;
  }
  const arrow = ARROWS[event.key];
  if (where === $("grid") && (arrow || event.key === "Enter")) {
    if (arrow) moveHead(...arrow);
    else if (event.shiftKey) addHead(state.a);
    else set({ view: state.view === "all" ? "heat" : state.view });
  } else if (where === $("view") && arrow) {
    viewOf().move(...arrow);
  } else if (where === $("view") && event.key === " ") {
    pickWord(state.seen ? state.j : state.i, true);
  } else if (where === $("view") && event.key === "Enter" && state.view === "all") {
    set({ view: "heat" });
  } else if ($("strip").contains(where) && arrow) {
    stripButtons[stripButtons.indexOf(where) + Math.sign(arrow[0] + arrow[1])]?.focus();
  } else if (where.getAttribute("role") === "tab" && arrow) {
    const views = viewsHere(), n = views.indexOf(state.view) + arrow[1];
    if (views[n]) set({ view: views[n] });
    $(`tab-${views[n] ?? state.view}`).focus();
  } else if (ANYWHERE[event.key]) ANYWHERE[event.key]();
  else return undefined;
  return event.preventDefault();
}

// ---- controls ------------------------------------------------------------------------

function findWord(text) {
  const words = stripWords(), wanted = text.toLowerCase();
  const n = wanted ? words.findIndex((word) => word.toLowerCase().includes(wanted)) : -1;
  const place = n < 0 ? {} : state.seen ? { j: n, x: Math.max(0, n - 4) } : { i: n, y: Math.max(0, n - 4), scroll: Math.max(0, n - 4) };
  set({ find: text, ...place });
}

function bindControls() {
  const on = (id, event, act) => $(id).addEventListener(event, act);
  on("filter", "input", (event) => set({ filter: event.target.value }));
  on("find", "input", (event) => findWord(event.target.value));
  on("metric", "change", (event) => set({ metric: event.target.value }));
  on("scale", "change", (event) => set({ scale: event.target.value }));
  on("mass", "input", (event) => set({ mass: Number(event.target.value) }));
  on("value", "change", (event) => set({ valued: event.target.checked }));
  on("stack", "change", (event) => changePart({ ...state.a, s: Number(event.target.value), l: 0, h: 0 }));
  on("report-choice", "change", (event) => changePart({ ...state.a, r: Number(event.target.value) }));
  on("gives", "click", () => set({ seen: false, picked: isSelf(state.a) ? state.picked : [] }));
  on("gets", "click", () => set({ seen: true, picked: isSelf(state.a) ? state.picked : [] }));
  on("clear", "click", () => set({ picked: [] }));
  on("zoom-in", "click", () => viewOf().zoom?.(1.5));
  on("zoom-out", "click", () => viewOf().zoom?.(1 / 1.5));
  on("save-svg", "click", saveSvg);
  on("save-png", "click", savePng);
  on("save-csv", "click", saveCsv);
  on("help-button", "click", openHelp);
  on("lang-button", "click", () => chooseLanguage(lang === "en" ? "zh" : "en"));
  on("theme-button", "click", () => chooseTheme(dark ? "light" : "dark"));
  $("strip").addEventListener("click", (event) => {
    const n = event.target.dataset.n;
    if (n !== undefined) pickWord(Number(n), event.shiftKey || event.ctrlKey || event.metaKey);
  });
  document.addEventListener("keydown", keyPressed);
  const watch = new ResizeObserver(() => set({}));
  for (const part of [$("panel"), $("grid").parentElement, $("strip"), document.querySelector("header")]) watch.observe(part);
  window.addEventListener("resize", () => set({}));
  window.addEventListener("hashchange", () => {
    readAddress();
    set({});
  });
}

function changePart(a) {
  set({ a, picked: [], extra: [], zoom: 1, x: 0, y: 0, scroll: 0 });
  drawLanguage();
}

// The head with the most telling label: reports list labels in that order.
function mostTelling() {
  const rank = (ref) => stackOf(ref).role?.[indexOf(ref)] || 255;
  return allHeads(0).reduce((best, ref) => (rank(ref) < rank(best) ? ref : best));
}

const PRONOUN = /^(it|he|she|they|him|them|itself|它|他|她|它们|他们|她们)$/i;

// A pronoun if there is one, since what it stands for is what people ask first; else the
// row with the largest weight on another word; in a long text the last word, of a picture
// the class token.
function startCursor() {
  const map = mapOf(state.a), { picture } = page.reports[state.a.r], rows = picture ? 1 : map.rows;
  const words = queryWords(state.a), pronoun = picture || rows > 200 ? -1 : words.findIndex((word, i) => PRONOUN.test(word.trim()) && (!page.live || shareOf(state.a, i) > 0.5));
  let most = -1;
  state.i = Math.max(0, rows - 1);
  state.scroll = rows > 200 ? state.i : 0;
  if (!map.rows || !map.stored || map.remote) return;
  for (let i = rows > 200 ? rows - 1 : 0; i < rows; i++) {
    const row = map.row(i), j = topMass(row, map.seen(i), 0.01)[0] ?? 0;
    if (isUnknown(words, i) || isUnknown(keyWords(state.a), j)) continue; // nothing is known about them
    if (pronoun >= 0 ? i === pronoun : row[j] * shareOf(state.a, i) > most && (j !== i || map.rows === 1)) [most, state.i, state.j] = [row[j] * shareOf(state.a, i), i, j];
  }
}

// Heads with the role of an answer's relation that look where the answer does: their beams
// beside that of the answer.
function likeMinded({ a, i, j }) {
  const relation = page.reports[a.r].outcomes.find((x) => x.about === i)?.relation;
  const heads = allHeads(a.r).filter((ref) => sameAxes(ref, a) && !isAbsent(ref) && roleOf(ref).key === relation && mapOf(ref).stored);
  const there = heads.map((ref) => ({ ref, row: mapOf(ref).row(i) })).filter(({ row }) => row.indexOf(Math.max(...row)) === j);
  return there.sort((x, y) => y.row[j] - x.row[j]).map(({ ref }) => ref).slice(0, MAX_HEADS - 1);
}

// Live: the head that matters most for this text, with the answer among the beams. Where
// heads give answers: the one that answers for the first word to look at.
function startHead() {
  const [s, l, h] = page.first;
  if (page.live) return { ...(live.effects?.ref ?? mostTelling()), r: page.reports.length - 1 };
  return headExists({ r: 0, s, l, h }) ? { r: 0, s, l, h } : { r: 0, s: 0, l: 0, h: 0 };
}

const MOST_BEAM_WORDS = 60; // longer texts start with the map

// Two reports start side by side, a picture or a long text as a map, all else as the beams
// of one word.
function startView() {
  if (page.reports.length > 1 && !page.live) return "compare";
  const { picture } = page.reports[state.a.r], map = mapOf(state.a);
  return picture || Math.max(map.rows, map.keys) > MOST_BEAM_WORDS || !map.stored || isAbsent(state.a) ? "heat" : "beams";
}

// Labels say little where most heads have none: then a measure.
function startMetric() {
  const heads = allHeads(state.a.r).filter((ref) => !isAbsent(ref)), { metrics } = page.reports[state.a.r];
  const none = heads.filter((ref) => roleOf(ref).key === "none").length;
  if (2 * none <= heads.length || !metrics.length) return "role";
  return (metrics.find((metric) => metric.key === "confidence") ?? metrics[0]).key;
}

function startState() {
  state.a = startHead();
  if (!headExists(state.a)) state.a = { r: 0, s: 0, l: 0, h: 0 };
  startCursor();
  const place = answerPlace(state.a.r, state.i);
  if (place && page.live) state.extra = [place.a];
  else if (place) Object.assign(state, place, { extra: likeMinded(place) });
  state.view = startView();
  state.metric = startMetric();
  pickStart();
}

function pickStart() {
  state.picked = state.view !== "heat" && queryWords(state.a).length ? [state.i] : [];
}

// The first word to look at in another text.
function startWord() {
  startCursor();
  pickStart();
}

// ---- start ---------------------------------------------------------------------------

async function start() {
  await openData();
  startState();
  Object.assign(usual, structuredClone(state));
  usual.lang = /^zh/i.test(navigator.language) ? "zh" : "en";
  usual.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  state.lang = usual.lang;
  state.theme = usual.theme;
  readAddress();
  settle();
  lang = state.lang;
  dark = state.theme === "dark";
  document.documentElement.dataset.theme = state.theme;
  drawLanguage();
  bindControls();
  bindPointer();
  draw();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  $("found").textContent = error.message;
  document.documentElement.dataset.ready = "failed";
});
