// neuron.js - why a weight is what it is: q of one word, k of every word, their product
// dimension by dimension, the sum as it grows, score and weight.

const NEURON_TOP = 74; // above the first key

// Rotary pairs are adjacent: dimension 0, its partner, dimension 1, ...
function dimOrder(vectors) {
  const { dim, pair } = vectors, order = [], done = new Set();
  for (let d = 0; d < dim; d++) {
    if (done.has(d)) continue;
    order.push(d);
    done.add(d);
    if (pair && d + pair < dim && !done.has(d + pair)) {
      order.push(d + pair);
      done.add(d + pair);
    }
  }
  return order;
}

let neuronAt = null;

const neuronView = {
  draw(p, w, h) {
    neuronAt = null;
    if (drawMissing(p, state.a)) return;
    const vectors = vectorsOf(state.a), map = mapOf(state.a);
    if (!vectors || !map.rows || !map.keys) {
      p.text(t("neuronNone"), 0, 20, { fill: css("--quiet") });
      return;
    }
    neuronAt = this.layout(vectors, map, w, h);
    this.drawHead(p, neuronAt);
    for (let n = 0; n < neuronAt.count; n++) this.drawKey(p, neuronAt, neuronAt.first + n, NEURON_TOP + n * neuronAt.step);
  },

  layout(vectors, map, w, h) {
    const keys = shownWords(keyWords(state.a)), seen = map.seen(state.i), wide = Math.min(130, widest(keys)) + 16;
    const block = Math.max(60, (w - wide - 150 - 48) / 3), step = Math.max(24, Math.min(36, Math.floor((h - NEURON_TOP) / Math.max(1, seen))));
    const count = Math.min(seen, Math.max(1, Math.floor((h - NEURON_TOP) / step))), first = Math.max(0, Math.min(state.scroll, seen - count));
    const spread = (values) => values.reduce((most, v) => Math.max(most, Math.abs(v)), 0) || 1;
    const q = vectors.q.subarray(state.i * vectors.dim, (state.i + 1) * vectors.dim);
    const layout = { vectors, map, keys, wide, block, step, count, first, w, q, order: dimOrder(vectors), most: spread(Float32Array.from([spread(q), spread(vectors.k)])) };
    layout.x = { k: wide, times: wide + block + 16, sum: wide + 2 * (block + 16), score: wide + 3 * (block + 16) };
    layout.products = this.products(layout);
    return layout;
  },

  // q x k of every key that is seen, the largest product and the largest partial sum.
  products({ vectors, map, q, order }) {
    const { dim } = vectors, seen = map.seen(state.i), all = [];
    let most = 0, reach = 0;
    for (let j = 0; j < seen; j++) {
      const k = vectors.k.subarray(j * dim, (j + 1) * dim), times = new Float64Array(dim), sum = new Float64Array(dim);
      let total = 0;
      order.forEach((d, n) => {
        times[n] = q[d] * k[d] * vectors.scale;
        total += times[n];
        sum[n] = total;
        most = Math.max(most, Math.abs(times[n]));
        reach = Math.max(reach, Math.abs(total));
      });
      all.push({ k, times, sum, total });
    }
    return { all, most: most || 1, reach: reach || 1 };
  },

  drawHead(p, layout) {
    const { x, block, order, q } = layout, quiet = css("--quiet"), style = { size: 12, fill: quiet };
    p.text(t("neuronHead", shown(queryWords(state.a)[state.i])), 0, 10, { size: 13, weight: 600 });
    p.text(t("queryVector"), x.k - 8, 36, { ...style, align: "right" });
    const cell = block / order.length;
    order.forEach((d, n) => p.rect(x.k + n * cell, 26, cell + 0.3, 20, signedColour(q[d], layout.most)));
    p.frame(x.k - 0.5, 25.5, block + 1, 21, css("--line"));
    p.text(t("keyVector"), x.k, 62, style);
    p.text(t("times"), x.times, 62, style);
    p.text(t("cumulative"), x.sum, 62, style);
    p.text(t("score"), x.score + 52, 62, { ...style, align: "right" });
    p.text(t("weight"), layout.w - 2, 62, { ...style, align: "right" });
  },

  drawKey(p, layout, j, y) {
    const { x, block, order, products, map } = layout, { k, times, sum, total } = products.all[j];
    const cell = block / order.length, tall = layout.step - 4, strong = j === state.j;
    p.text(fitText(layout.keys[j], layout.wide - 12, 13), layout.wide - 10, y + tall / 2, { align: "right", weight: strong ? 650 : 400 });
    order.forEach((d, n) => {
      p.rect(x.k + n * cell, y, cell + 0.3, tall, signedColour(k[d], layout.most));
      p.rect(x.times + n * cell, y, cell + 0.3, tall, signedColour(times[n], products.most));
    });
    p.frame(x.k - 0.5, y - 0.5, block + 1, tall + 1, css("--line"));
    p.frame(x.times - 0.5, y - 0.5, block + 1, tall + 1, css("--line"));
    const mid = y + tall / 2, place = (n, v) => [x.sum + n * cell, mid - (v / products.reach) * (tall / 2)];
    p.path([[x.sum, mid], [x.sum + block, mid]], css("--line"));
    p.path([[x.sum, mid], ...Array.from(sum, (v, n) => place(n + 1, v))], signedColour(Math.sign(total), 1), 1.6);
    p.text(number(total), x.score + 52, mid, { size: 12, align: "right", weight: strong ? 650 : 400 });
    this.drawWeight(p, layout, map.cell(state.i, j), mid, strong);
  },

  drawWeight(p, layout, cell, mid, strong) {
    const right = layout.w - 2, from = layout.x.score + 62;
    const v = cell.v ?? 0, wide = Math.max(0, right - 54 - from);
    p.rect(from, mid - 4, wide * Math.min(1, v), 8, css("--accent"));
    const text = cell.v === undefined ? `<${number(cell.below)}` : cell.v || !cell.error ? number(cell.v, cell.digits) : `<${number(cell.error, cell.digits + 1)}`;
    p.text(text, right, mid, { size: 12, align: "right", weight: strong ? 650 : 400 });
  },

  hit(x, y) {
    if (!neuronAt) return null;
    const n = Math.floor((y - NEURON_TOP) / neuronAt.step);
    if (n < 0 || n >= neuronAt.count) return null;
    const blocks = [neuronAt.x.k, neuronAt.x.times, neuronAt.x.sum];
    const from = blocks.find((at) => x >= at && x < at + neuronAt.block);
    const d = from === undefined ? -1 : Math.floor(((x - from) / neuronAt.block) * neuronAt.order.length);
    return { neuron: { j: neuronAt.first + n, d } };
  },

  lines({ j, d }) {
    const { products, order, q, vectors } = neuronAt, { k, times, sum } = products.all[j], lines = cellLines(state.a, state.i, j);
    if (d < 0) return lines;
    lines.push([t("dims", order[d], number(q[order[d]]), number(k[order[d]]), number(times[d]), number(sum[d]))]);
    const a = Math.min(order[d], order[d ^ 1] ?? order[d]), b = a + vectors.pair;
    if (!vectors.pair || b >= vectors.dim) return lines;
    const angle = (v) => Math.round((Math.atan2(v[b], v[a]) * 180) / Math.PI), length = (v) => number(Math.hypot(v[a], v[b]));
    lines.push([t("pairDims", `${a}, ${b}`, angle(q), angle(k), length(q), length(k))]);
    return lines;
  },

  move(di, dj) {
    const map = mapOf(state.a), i = Math.max(0, Math.min(map.rows - 1, state.i + dj));
    const j = Math.max(0, Math.min(Math.max(0, map.seen(i) - 1), state.j + di));
    const count = neuronAt ? neuronAt.count : 1, first = neuronAt ? neuronAt.first : 0;
    set({ i, j, scroll: Math.min(Math.max(first, j - count + 1), j) });
    say(cellSentence(state.a, i, j));
  },
  pan(dx, dy) {
    if (neuronAt) set({ scroll: Math.max(0, state.scroll + Math.sign(dy) * Math.max(1, Math.round(Math.abs(dy) / neuronAt.step))) });
  },
  note: () => "",
};
