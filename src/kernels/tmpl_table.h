/*
 * tmpl_table.h - the table of one instruction set; TABLE and NAME come from its .c file.
 */
const ph_kernels TABLE = {
    .name = NAME,
    .mr = MR,
    .nr = NR,
    .pack_across = pack_across,
    .pack_along = pack_along,
    .store_row = store_row,
    .finite = finite,
    .scores = scores,
    .weigh = weigh,
    .product = product,
    .axpy = axpy,
    .softmax = softmax,
    .gradient = gradient,
    .weights = weights,
    .dot = dot,
    .times = times,
    .blend = blend,
    .row_peak = row_peak,
    .add_bias = add_bias,
    .add_alibi = add_alibi,
    .softcap = softcap,
    .hide = hide,
    .dropout = dropout,
    .load_row = load_row,
};
