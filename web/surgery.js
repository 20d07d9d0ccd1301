// surgery.js - live: what heads are worth, the least of them pruned, before against after.
//
// The program measures in steps; the page asks how far it is. Pruned heads are edits like
// all others ("zero", which gives what removing them gives), so undo, plans and addresses
// know nothing of this file.

// worth: the last measurement, { method, texts, data, text, values, errors, order, gone }.
const surgery = { worth: null, compared: null, running: "", done: 0, of: 0, note: "" };
const ASK_EVERY = 150; // ms between questions

const measuring = () => page.live?.measuring;
const zeroAt = (ref) => editOf(ref)?.kind === "zero";
const isMeasured = (ref) => Number.isFinite(surgery.worth?.values[flatIndex(ref)]);

// Heads of all stacks in one list, as the program sends them.
function flatIndex({ s, l, h }) {
  const { stacks } = page.reports[0];
  return stacks.slice(0, s).reduce((sum, stack) => sum + stack.layers * stack.heads, l * stacks[s].heads + h);
}

// ---- measuring -----------------------------------------------------------------------

async function measureHeads(method, onData) {
  if (surgery.running) return;
  const request = { ...asked(), method, data: onData };
  Object.assign(surgery, { running: method, done: 0, of: 0, note: "" });
  drawSurgery();
  try {
    await askProgram("/measure", request);
    const found = await askUntilDone();
    if (found) takeMeasured(found, request);
  } catch (error) {
    surgery.note = error.message;
  }
  surgery.running = "";
  drawSurgery();
}

// What was found; null where it was cancelled.
async function askUntilDone() {
  while (surgery.running) {
    const now = await (await askProgram("/progress", {})).json();
    if (now.method) return now;
    Object.assign(surgery, { done: now.done, of: now.of });
    drawSurgery();
    await new Promise((done) => { setTimeout(done, ASK_EVERY); });
  }
  return null;
}

async function cancelMeasuring() {
  surgery.running = "";
  surgery.note = t("cancelled");
  drawSurgery();
  await askProgram("/cancel", {}).catch(() => {});
}

function takeMeasured(found, { text, edits }) {
  if (found.method === "compare") {
    surgery.compared = { ...found, edits: JSON.stringify(edits), text };
    return;
  }
  const refs = allHeads(0), gone = refs.filter((ref) => edits.some((e) => e.kind === "zero" && sameEdit(e, ref)) && !stackOf(ref).share);
  const values = found.worth.map((v) => v ?? NaN), known = refs.filter((ref) => Number.isFinite(values[flatIndex(ref)]));
  known.sort((a, b) => values[flatIndex(a)] - values[flatIndex(b)]);
  surgery.worth = { ...found, text, values, errors: found.error, order: [...gone, ...known], gone: gone.length };
  for (const report of page.reports) report.metrics.length = report.metrics.findLastIndex((metric) => !metric.own) + 1;
  addTextMeasures();
  forget();
  drawLanguage();
  set({ metric: "worth" });
}

const sameEdit = (e, ref) => e.stack === ref.s && e.layer === ref.l && e.head === ref.h;

// Puts the last measurement into the reports, as a measure of heads like others.
function attachWorth() {
  const { worth } = surgery;
  for (const report of page.reports) {
    let at = 0;
    for (const stack of report.stacks) {
      const count = stack.layers * stack.heads;
      if (worth && page.live) stack.worth = worth.values.slice(at, at + count);
      at += count;
    }
  }
}

// 1 is the head that is worth most; 0: not measured.
function worthRank(ref) {
  if (!isMeasured(ref)) return 0;
  const { order } = surgery.worth;
  return order.length - order.findIndex((x) => x.s === ref.s && x.l === ref.l && x.h === ref.h);
}

const rankText = (ref) => (worthRank(ref) ? t("rank", worthRank(ref), surgery.worth.order.length - surgery.worth.gone) : "");

// ---- pruning -------------------------------------------------------------------------

// How many of the least are off, without a gap.
function prunedCount() {
  const order = surgery.worth?.order ?? [], first = order.findIndex((ref) => !zeroAt(ref));
  return first < 0 ? order.length : first;
}

// The edits of these heads, where there are several: one chip stands for them.
function prunedEdits() {
  const count = prunedCount(), off = surgery.worth?.order.slice(0, count) ?? [];
  return count > 1 ? live.edits.filter((e) => e.kind === "zero" && off.some((ref) => sameEdit(e, ref))) : [];
}

// The first `count` of the order off; heads that are edited elsewhere stay as they are.
function withPruned(count) {
  const { order } = surgery.worth, had = order.slice(0, prunedCount()), off = order.slice(0, count);
  const isOf = (list, e) => e.kind !== "mask" && list.some((ref) => sameEdit(e, ref));
  const others = live.edits.filter((e) => !isOf(had, e) && !isOf(off, e));
  return [...others, ...off.map(({ s, l, h }) => ({ kind: "zero", stack: s, layer: l, head: h }))];
}

// As with a gate, a whole drag is one edit.
function dragPruned(count) {
  const edits = withPruned(count);
  if (!live.dragging) {
    live.dragging = true;
    return change(edits);
  }
  live.edits = edits;
  return runAgain();
}

// ---- the panel -----------------------------------------------------------------------

function makeSurgery() {
  const button = (id, key, act, tip) => make("button", { type: "button", id, "data-t": key, "data-title": tip, onclick: act });
  const dragEnds = () => { live.dragging = false; };
  const chosen = () => [$("surgery-method").value, $("surgery-on").value === "data"];
  const controls = make("div", {},
    make("p", { class: "note", "data-t": "surgeryHelp" }),
    make("div", { class: "line" },
      make("label", { class: "field" }, make("span", { "data-t": "method" }), make("select", { id: "surgery-method", onchange: drawSurgery })),
      make("label", { class: "field", id: "surgery-on-field" }, make("span", { "data-t": "measureOn" }), make("select", { id: "surgery-on", onchange: drawMethods })),
      button("surgery-measure", "measure", () => measureHeads(...chosen()), "tipMeasure"),
      button("surgery-cancel", "cancel", cancelMeasuring), make("progress", { id: "surgery-progress", "data-label": "progress" })),
    make("p", { id: "surgery-note", class: "note", role: "status" }),
    make("div", { class: "line" },
      make("label", { class: "field", "data-title": "tipPrune" }, make("span", { "data-t": "pruneLeast" }),
        make("input", { type: "range", id: "surgery-count", min: 0, step: 1, oninput: (event) => dragPruned(Number(event.target.value)), onchange: dragEnds, onpointerdown: dragEnds }), make("output", { id: "surgery-out", for: "surgery-count" })),
      button("surgery-compare", "compareData", () => measureHeads("compare", true), "tipCompareData"),
      button("surgery-weights", "compareWeights", () => set({ view: "compare", b: null }))),
    make("p", { id: "surgery-command" }));
  const head = make("thead", {}, make("tr", {}, ...["compared", "before", "after"].map((key) => make("th", { scope: "col", "data-t": key }))));
  const table = make("div", { class: "scroll" }, make("table", { id: "surgery-table" }, head, make("tbody")));
  return make("details", { id: "surgery", ontoggle: drawSurgery }, make("summary", { "data-t": "surgery" }), make("div", { class: "sides" }, controls, table));
}

const thisInput = () => t(page.live.picture ? "thisPicture" : page.live.sound ? "thisSound" : "thisText");

function drawMethods() {
  const { methods, dataMethods, dataTexts } = measuring(), on = $("surgery-on"), method = $("surgery-method");
  const was = [on.value, method.value];
  on.replaceChildren(option("text", thisInput()), ...(dataTexts ? [option("data", t("dataTexts", dataTexts))] : []));
  on.value = was[0] === "data" && dataTexts ? "data" : "text";
  $("surgery-on-field").hidden = !dataTexts;
  const names = on.value === "data" ? dataMethods : methods;
  method.replaceChildren(...names.map((name) => make("option", { value: name, title: methodHelp(name) }, methodName(name))));
  method.value = names.includes(was[1]) ? was[1] : names[0];
}

const methodName = (name) => (WORDS.en[`m_${name}`] ? t(`m_${name}`) : name);
const methodHelp = (name) => (WORDS.en[`mh_${name}`] ? t(`mh_${name}`) : "");

function surgeryNote() {
  const { running, done, of, worth, note } = surgery;
  if (running) return of ? t("measured", done, of) : t("busy");
  if (note || !worth) return note || methodHelp($("surgery-method").value);
  const last = worth.order[worth.order.length - 1], least = worth.order[worth.gone];
  if (!least) return "";
  const on = worth.data ? t("dataTexts", worth.texts) : worth.text === live.text ? thisInput() : `“${shown(worth.text.slice(0, 40))}”`;
  return t("worthNote", methodName(worth.method), on, labelOf({ r: 0, ...last }), labelOf({ r: 0, ...least }));
}

function drawSurgery() {
  if (!$("surgery")) return;
  $("surgery").hidden = !measuring();
  if (!measuring()) return;
  if (changed("methods", page.live.measuring.dataTexts)) drawMethods();
  const { running, worth } = surgery, count = $("surgery-count"), heads = worth?.order.length ?? 0, pruned = prunedCount();
  $("surgery-measure").disabled = Boolean(running);
  $("surgery-cancel").hidden = $("surgery-progress").hidden = !running;
  $("surgery-progress").max = surgery.of || 1;
  $("surgery-progress").value = surgery.done;
  $("surgery-note").textContent = surgeryNote();
  count.disabled = !worth;
  count.max = heads;
  count.value = pruned;
  $("surgery-out").textContent = worth ? t("prunedOf", pruned, heads) : t("measureFirst");
  $("surgery-compare").hidden = !measuring().dataTexts;
  $("surgery-compare").disabled = Boolean(running) || !live.edits.some((e) => e.kind === "zero" || e.kind === "mean");
  $("surgery-weights").disabled = page.reports.length < 2;
  drawCompared();
  drawCommand();
}

// ---- before and after ----------------------------------------------------------------

// Answers that became others, or whose probability moved; the most moved first.
function movedAnswers(before, after) {
  const pairs = after.outcomes.map((x) => ({ x, old: before.outcomes.find((o) => o.about === x.about) }));
  const moved = pairs.filter(({ x, old }) => (old ? old.text !== x.text : x.value >= 0.005) || Math.abs((old ?? x).value - x.value) >= 0.005);
  const by = ({ x, old }) => (old && old.text === x.text ? Math.abs(old.value - x.value) : 1 + x.value);
  return moved.sort((p, q) => by(q) - by(p)).slice(0, 5);
}

const answerText = (x) => (x ? `${shown(x.text)} ${percent(x.value)}` : "–");

function comparedRows() {
  const [before, after = before] = page.reports, heads = allHeads(0).filter((ref) => !isAbsent(ref) && !stackOf(ref).share);
  const rows = [[t("headsOn"), heads.length, heads.filter((ref) => !zeroAt(ref)).length]];
  if (after.loss !== undefined) rows.push([t("lossText"), number(before.loss), number(after.loss)]);
  if (after.cosine !== undefined) rows.push([t("cosine"), number(1), number(after.cosine)]);
  if (after.divergence !== undefined) rows.push([t("klText"), number(0), number(after.divergence)]);
  for (const { x, old } of after === before ? [] : movedAnswers(before, after)) rows.push(old?.text === x.text ? [shown(x.text), percent(old.value), percent(x.value)] : [t("answerRow"), answerText(old), answerText(x)]);
  const { compared } = surgery;
  if (!compared || compared.edits !== JSON.stringify(live.edits)) return rows;
  const known = ([a, b]) => a !== null && b !== null, on = t("dataTexts", compared.texts);
  if (known(compared.loss)) rows.push([`${t("lossName")}, ${on}`, ...compared.loss.map((v) => number(v))]);
  if (known(compared.accuracy)) rows.push([`${t(after.cosine === undefined ? "accuracy" : "cosine")}, ${on}`, ...compared.accuracy.map((v) => number(v))]);
  if (compared.divergence !== null) rows.push([`${t("klName")}, ${on}`, number(0), number(compared.divergence)]);
  return rows;
}

function drawCompared() {
  const table = $("surgery-table");
  table.hidden = page.reports.length < 2;
  if (table.hidden) return;
  table.tBodies[0].replaceChildren(...comparedRows().map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, String(cell))))));
}

// Lines are broken between words only, not at the dashes of an option.
const wholeWords = (text) => text.split(" ").flatMap((word, n) => [n ? " " : "", make("span", {}, word)]);

// What takes the heads of the saved plan out for good. Gates and means cannot be removed.
function drawCommand() {
  const { command } = measuring(), { plan } = surgery, heads = live.edits.filter((e) => e.kind !== "mask");
  const box = $("surgery-command"), removable = heads.length && heads.every((e) => e.kind === "zero" && !page.reports[0].stacks[e.stack]?.share);
  box.hidden = !command || !removable || !page.live.save;
  if (box.hidden) return;
  if (plan?.edits !== JSON.stringify(live.edits)) box.replaceChildren(make("span", { class: "note" }, t("saveFirst", t("savePlan"))));
  else box.replaceChildren(make("span", { class: "note" }, t("removeBy")), " ", make("code", {}, ...wholeWords(`${command} ${plan.name}`)));
}
