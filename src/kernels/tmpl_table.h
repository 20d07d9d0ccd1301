/*
 * tmpl_table.h - the table of one level; TABLE, NAME, VECTORS and, if it has any, PAIRS,
 * F32_TILES and another SCORES_ALONG come from its .c file.
 */
#if !defined(SCORES_ALONG)
#define SCORES_ALONG scores_along
#endif
const ph_kernels TABLE = {
    .name = NAME,
    .vectors = VECTORS,
    .mr = MR,
    .nr = NR,
    .few = FEW,
#if defined(PAIRS)
    .pairs = PAIRS,
#endif
#if defined(F32_TILES)
    .f32_tiles = F32_TILES,
#endif
    .pack_across = pack_across,
    .pack_along = pack_along,
    .store_row = store_row,
    .finite = finite,
    .scores = scores,
    .scores_along = SCORES_ALONG,
    .weigh = weigh,
    .product = product,
    .head_forward = head_forward,
    .head_backward = head_backward,
    .axpy = axpy,
    .softmax = softmax,
    .gradient = gradient,
    .weights = weights,
    .logs = logs,
    .dot = dot,
    .dots = dots,
    .deltas = deltas,
    .times = times,
    .blend = blend,
    .row_peak = row_peak,
    .clip = clip,
    .lane_sums = lane_sums,
    .add_bias = add_bias,
    .add_alibi = add_alibi,
    .softcap = softcap,
    .hide = hide,
    .dropout = dropout,
    .load_row = load_row,
    .compose = compose,
    .decompose = decompose,
    .center = center,
    .gram = gram,
    .near_top = near_top,
    .power_sums = power_sums,
    .entmax = entmax,
    .pack_panels = pack_panels,
    .add_rows = add_rows,
    .stream = stream,
};
