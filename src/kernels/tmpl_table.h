/*
 * tmpl_table.h - the table of one level; TABLE, NAME, VECTORS and, if it has any,
 * BF16_PAIRS, F32_TILES and another SCORES_IN_PLACE come from its .c file.
 */
#if !defined(SCORES_IN_PLACE)
#define SCORES_IN_PLACE scores_in_place
#endif
const ph_kernels TABLE = {
    .name = NAME,
    .vectors = VECTORS,
    .mr = MR,
    .nr = NR,
    .few_rows = FEW_ROWS,
#if defined(BF16_PAIRS)
    .bf16_pairs = BF16_PAIRS,
#endif
#if defined(F32_TILES)
    .f32_tiles = F32_TILES,
#endif
    .pack_panel = pack_panel,
    .pack_row_major = pack_row_major,
    .store_row = store_row,
    .finite = finite,
    .scores = scores,
    .scores_in_place = SCORES_IN_PLACE,
    .multiply_v = multiply_v,
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
    .row_lane_max = row_lane_max,
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
    .near_row_max = near_row_max,
    .power_sums = power_sums,
    .entmax = entmax,
    .pack_panels = pack_panels,
    .add_rows = add_rows,
    .product_few_rows = product_few_rows,
    .product_few_rows_t = product_few_rows_t,
};
