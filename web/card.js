// card.js - description and measures of the head, as HTML that screen readers can read.

function drawCard() {
  const ref = state.a, role = roleOf(ref), report = page.reports[ref.r];
  $("card-title").textContent = titleOf(ref);
  const index = report.roles.indexOf(role);
  $("card-role").replaceChildren(roleMark(role, index), index > 0 ? nameOf(role) : t("noRole"));
  $("card-role").title = ruleOf(role);
  $("card-why").textContent = reasonOf(stackOf(ref).why?.[indexOf(ref)]);
  drawTop(ref);
  if (changed("numbers", idOf(ref))) drawNumbers(ref);
  if (changed("circuit", idOf(ref))) drawCircuit(ref);
  if (changed("offsets", idOf(ref), space.card)) drawOffsets(ref);
  if (changed("outcomes", ref.r, idOf(ref), state.i)) drawOutcomes(ref);
}

// The ten partners of the picked words, or of the word under the cursor.
function drawTop(ref) {
  const words = state.picked.length ? state.picked : [state.seen ? state.j : state.i], all = stripWords();
  const body = $("top").tBodies[0];
  body.replaceChildren();
  $("top").hidden = $("top-title").hidden = !all.length || isAbsent(ref);
  if ($("top").hidden) return;
  const single = words.length === 1;
  $("top-title").textContent = single
    ? t(state.seen ? "whoSees" : "whereLooks", shown(all[words[0]]))
    : t(state.seen ? "whoSeesSum" : "whereLookSum", words.length);
  const found = topPartners(ref, words, state.seen), ranks = ranksOf(found);
  found.slice(0, 10).forEach((x, n) => {
    body.append(make("tr", {}, make("td", {}, make("s", {}, ranks[n])), make("td", {}, shown(x.word)), make("td", {}, cellText(x.cell))));
  });
}

// "3", or "=3" where the order of neighbours is not known: weights that are equal, or sums
// that differ by less than their errors.
function ranksOf(found) {
  const tied = (n) => n > 0 && n < found.length && (found[n - 1].cell.v === found[n].cell.v || found[n - 1].cell.v - found[n].cell.v < found[n - 1].cell.error + found[n].cell.error - 1e-9);
  let rank = 0;
  return found.map((_, n) => {
    if (!tied(n)) rank = n + 1;
    return `${tied(n) || tied(n + 1) ? "=" : ""}${rank}`;
  });
}

// What the head would look at and write, by its weights alone.
function drawCircuit(ref) {
  const [pairs, writes] = (stackOf(ref).circuit?.[indexOf(ref)] ?? "").split("\n");
  const arrows = (text) => shown(text).replaceAll(" > ", " → ");
  $("circuit-box").hidden = !pairs || !writes;
  $("circuit").replaceChildren(...(pairs && writes ? [make("dt", {}, t("circuitLooks")), make("dd", {}, arrows(pairs)), make("dt", {}, t("circuitWrites")), make("dd", {}, arrows(writes))] : []));
}

function meter(share, threshold) {
  const bar = make("b"), box = make("span", { class: "meter" }, bar);
  bar.style.width = percent(Math.max(0, Math.min(1, share)));
  if (threshold > 0) {
    const line = make("u");
    line.style.left = percent(Math.min(1, threshold));
    box.append(line);
  }
  return box;
}

// Measures that labels are based on; the others on demand.
function drawNumbers(ref) {
  const { metrics } = page.reports[ref.r], some = metrics.some((metric) => metric.threshold > 0);
  fillNumbers($("numbers").tBodies[0], ref, (metric) => !some || metric.threshold > 0 || metric.own);
  fillNumbers($("more-numbers").tBodies[0], ref, (metric) => some && !(metric.threshold > 0) && !metric.own);
  $("more-box").hidden = !$("more-numbers").tBodies[0].rows.length;
}

function fillNumbers(body, ref, wanted) {
  body.replaceChildren();
  const all = page.reports[ref.r].metrics.map((metric, m) => ({ metric, m })); // those of the text first
  for (const { metric, m } of [...all.filter((x) => x.metric.own), ...all.filter((x) => !x.metric.own)]) {
    if (!wanted(metric)) continue;
    const v = scoreOf(ref, m);
    if (!Number.isFinite(v)) continue;
    const most = metricRange(m), over = metric.threshold > 0 && v > metric.threshold;
    const title = helpOf(metric) + (metric.threshold > 0 ? ` (${t("threshold", number(metric.threshold))})` : "");
    body.append(make("tr", { class: over ? "over" : null, title },
      make("th", { scope: "row" }, metric.key === "worth" && rankText(ref) ? `${nameOf(metric)}, ${rankText(ref)}` : nameOf(metric)),
      make("td", {}, meter(v / most, metric.threshold / most)),
      make("td", {}, number(v))));
  }
}

function drawOffsets(ref) {
  const stack = stackOf(ref), { reach } = stack, count = 2 * reach + 1;
  $("offset-box").hidden = !stack.offsets || !reach;
  if (!stack.offsets || !reach) return;
  const shares = stack.offsets.slice(indexOf(ref) * count, (indexOf(ref) + 1) * count);
  const width = Math.max(120, Math.min(260, space.card)), height = 84, canvas = $("offsets");
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.setAttribute("aria-label", t("offsetsLabel", shares.map((v, n) => `${n - reach}: ${percent(v)}`).join(", ")));
  const p = openCanvas(canvas, width, height), step = width / count, most = Math.max(0.05, ...shares);
  shares.forEach((v, n) => {
    const tall = (v / most) * 58;
    p.rect(n * step + 0.5, 62 - tall, step - 1.5, tall, n === reach ? css("--quiet") : css("--accent"));
    if ((n - reach) % Math.max(1, Math.ceil(reach / 4)) === 0) p.text(String(n - reach), Math.max(9, Math.min(width - 9, (n + 0.5) * step)), 74, { size: 11, align: "center", fill: css("--quiet") });
  });
  p.rect(0, 62, width, 1, css("--line"));
  p.text(percent(most), width, 6, { size: 11, align: "right", fill: css("--quiet") });
}

// How far the predictions are from those without the edits.
function movedNote({ divergence, loss, cosine }, before) {
  const notes = [];
  if (cosine !== undefined) notes.push(t("cosineNote", number(cosine)));
  if (divergence !== undefined) notes.push(t("divergence", number(divergence)));
  if (loss !== undefined) notes.push(t("loss", before ? `${number(before.loss)} → ${number(loss)}` : number(loss)));
  return notes.join(" · ");
}

function drawOutcomes(ref) {
  const { outcomes, outcomeTitle } = page.reports[ref.r], body = $("outcomes").tBodies[0];
  const before = page.live && page.reports.length > 1 ? page.reports[0].outcomes : null;
  const unanswered = !outcomes.length && outcomeTitle && unknownNote() ? t("noAnswer") : "";
  $("outcome-note").textContent = [unanswered, movedNote(page.reports[ref.r], before && page.reports[0])].filter(Boolean).join(" · ");
  $("outcome-box").hidden = !outcomes.length && !$("outcome-note").textContent;
  $("outcome-title").textContent = (outcomes.length || unanswered ? said(outcomeTitle) : t("vector")) + (before ? `: ${t("before")} → ${t("after")}` : "");
  body.replaceChildren(...outcomes.flatMap((x) => {
    const old = before?.find((o) => o.about === x.about), moved = old && (old.text !== x.text || Math.abs(old.value - x.value) >= 0.005);
    const row = make("tr", { class: moved ? "over" : null }, make("td", {}, answerName(ref.r, x), ...relationMark(ref.r, x)), make("td", {}, meter(x.value, old?.value ?? 0)), make("td", {}, number(x.value)));
    if (!moved) return [row];
    return [row, make("tr", { class: "was" }, make("td", { colspan: 2 }, `${t("before")}: ${shown(old.text)}`), make("td", {}, number(old.value)))];
  }));
}

// How the word belongs to the other one, in the colour that the relation has in the grid.
function relationMark(r, x) {
  if (!x.relation) return [];
  const mark = make("small", { class: "relation" }, ` ${RELATIONS_ZH[x.relation] && lang === "zh" ? RELATIONS_ZH[x.relation] : x.relation}`);
  mark.style.color = roleInk(page.reports[r].roles.findIndex((role) => role.key === x.relation));
  return [mark];
}

// The text of an answer; a button where one head and cell gave it.
function answerName(r, x) {
  const place = answerPlace(r, x.about);
  if (!place) return shown(x.text);
  const go = () => set({ ...place, seen: false, picked: [place.i], view: state.view === "beams" ? "beams" : "heat", zoom: 1, x: 0, y: 0, extra: [] });
  const here = sameHead(place.a, state.a) && place.i === state.i;
  return make("button", { type: "button", class: "answer", title: t("goToAnswer"), "aria-current": here ? "true" : null, onclick: go }, shown(x.text));
}

// ---- the strip of words --------------------------------------------------------------

const MAX_STRIP = 600; // buttons; for longer texts the words around the cursor

let rolled = false; // patches show rollout, not the weights of one head
let stripKey = ""; // which words the buttons are
let stripButtons = [];
let stripFocus = -1; // the word that was scrolled to

function drawStrip() {
  const words = stripWords(), strip = $("strip"), centre = state.seen ? state.j : state.i;
  const first = words.length > MAX_STRIP ? Math.max(0, Math.min(words.length - MAX_STRIP, Math.floor(centre / 200) * 200 - 200)) : 0;
  const stack = stackOf(state.a), key = `${state.a.r}.${state.seen ? stack.k : stack.q}.${first}.${words.length}`;
  if (key !== stripKey) {
    stripKey = key;
    stripButtons = words.slice(first, first + MAX_STRIP).map((_, n) => make("button", { type: "button", "data-n": first + n, tabindex: "-1" }, shownWords(words)[first + n]));
    stripButtons.forEach((button, n) => {
      if (!isUnknown(words, first + n)) return;
      button.classList.add("unknown");
      button.title = t("unknownWord");
    });
    const picture = words.length <= MAX_STRIP ? page.reports[state.a.r].picture : undefined;
    strip.replaceChildren(...(picture ? layPatches(picture) : stripButtons));
    strip.classList.toggle("picture", Boolean(picture));
  }
  const rollout = rolled && words.length <= MAX_STRIP ? page.reports[state.a.r].picture?.rollout : undefined;
  const shares = rollout ?? (isAbsent(state.a) ? null : stripShares()), focus = state.picked.length ? state.picked : [centre];
  const find = state.find.toLowerCase();
  const picked = new Set(state.picked), picture = strip.classList.contains("picture") ? page.reports[state.a.r].picture : null;
  const most = picture && shares ? Math.max(...shares.slice(picture.first)) : 1; // weights on patches are all small
  stripButtons.forEach((button, place) => {
    const n = first + place, share = Math.min(1, shares ? shares[n] : 0);
    const level = picture && n >= picture.first ? levelOf(share, most) : levelOf(share * 0.8, 1);
    const found = find !== "" && words[n].toLowerCase().includes(find);
    const look = `${level}/${theme()}/${picked.has(n)}/${found}/${n === focus[0]}`;
    if (button.look !== look) styleWord(button, level, picked.has(n), found, n === focus[0]);
    button.look = look;
  });
  drawPickedNote();
  const now = stripButtons[focus[0] - first];
  if (now && focus[0] !== stripFocus && !strip.contains(document.activeElement)) strip.scrollTop = Math.max(0, now.offsetTop - now.offsetHeight - 6); // with the line before it
  stripFocus = focus[0];
}

// Class tokens, then the picture with a button over each patch.
function layPatches({ first, columns, side, rgb: text, rollout }) {
  const canvas = make("canvas", { "aria-hidden": "true" }), pixels = new ImageData(side, side), bytes = fromBase64(text);
  for (let n = 0; n < side * side; n++) {
    for (let c = 0; c < 3; c++) pixels.data[4 * n + c] = bytes[3 * n + c];
    pixels.data[4 * n + 3] = 255;
  }
  canvas.width = canvas.height = side;
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  const box = make("div", { class: "patches" }, canvas, ...stripButtons.slice(first));
  box.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
  stripButtons.slice(first).forEach((button) => { button.title = button.textContent; });
  return [...stripButtons.slice(0, first), box, ...(rollout ? [rolloutChoice()] : [])];
}

function rolloutChoice() {
  const choice = make("input", { type: "checkbox" });
  choice.checked = rolled;
  choice.addEventListener("change", () => {
    rolled = choice.checked;
    drawStrip();
  });
  return make("label", { class: "rollout", title: t("rolloutHelp") }, choice, ` ${t("rollout")}`);
}

function styleWord(button, level, picked, found, focused) {
  const colour = rgb(rampLut(), level);
  button.style.background = level > 8 ? colour : "none";
  button.style.color = level > 8 ? inkOn(colour) : "";
  button.classList.toggle("picked", picked);
  button.classList.toggle("found", found);
  button.setAttribute("aria-pressed", String(picked));
  button.tabIndex = focused ? 0 : -1;
}

// Weight of each word of the text from (or to) the focus; null where texts differ.
function stripShares() {
  const map = mapOf(state.a), words = state.picked.length ? state.picked : [state.seen ? state.j : state.i];
  if (!isSelf(state.a) || !map.rows) return null;
  const sums = new Float32Array(map.rows), row = new Float32Array(map.keys);
  if (!state.seen) {
    for (const w of words) map.row(w, row).forEach((v, n) => { sums[n] += v / words.length; });
    return sums;
  }
  map.remote?.columns(words); // a few columns, not every row
  const all = map.remote ? null : map.dense();
  for (let n = 0; n < map.rows; n++)
    for (const w of words) if (w < map.seen(n)) sums[n] += all ? all[n * map.keys + w] : map.remote.cell(n, w).v ?? 0;
  return sums;
}

function drawPickedNote() {
  const words = stripWords(), { picked } = state;
  $("clear").disabled = !picked.length;
  if (!picked.length) $("picked").textContent = "";
  else if (picked.length === 1) $("picked").textContent = t("pickedOne", shown(words[picked[0]]));
  else $("picked").textContent = counted(picked.length, "word");
}

// A click picks one word; with a modifier key one more, or one less.
function pickWord(n, more) {
  let picked = more ? [...state.picked] : [];
  const had = state.picked.includes(n);
  if (more && had) picked = picked.filter((x) => x !== n);
  else if (!(had && state.picked.length === 1)) picked.push(n);
  set({ picked, ...(state.seen ? { j: n } : { i: n }) });
}

// ---- the scale of colours ------------------------------------------------------------

const SCALE_WIDTH = 190;

function drawRamp(canvas, most, signed) {
  canvas.style.width = `${SCALE_WIDTH}px`;
  canvas.style.height = "28px";
  drawScale(openCanvas(canvas, SCALE_WIDTH, 28), most, signed);
}

function drawScale(p, most, signed) {
  const lut = signed ? divergingLut() : rampLut(), from = 8, wide = SCALE_WIDTH - 30;
  for (let n = 0; n < wide; n++) p.rect(from + n, 2, 1.2, 10, rgb(lut, Math.round((n / (wide - 1)) * 255)));
  p.frame(from - 0.5, 1.5, wide + 1, 11, css("--line"));
  const ticks = signed ? [-1, -0.25, 0, 0.25, 1] : most < 0.01 ? [0, 0.25, 1] : [0, 0.1, 0.25, 0.5, 1];
  for (const tick of ticks) {
    const at = signed ? 0.5 + 0.5 * Math.sign(tick) * Math.sqrt(Math.abs(tick)) : Math.sqrt(tick), v = tick * most;
    p.text(String(Number(v.toPrecision(2))), from + at * wide, 21, { size: 10.5, align: "center", fill: css("--quiet") });
  }
}
