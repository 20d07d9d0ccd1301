/*
 * tmpl_row_max.h - the running row maximum of the online softmax, in the vector
 * vocabulary.
 */
#define MINUS_INF v_set1(-__builtin_inff())

/* Updates the row maxima and computes the factors that rescale earlier sums. base is the
   new maximum, or 0 where a row has seen no key yet. It is stored first, because the
   exponentials depend on it alone; the factors of all rows are one exp2 of a vector. */
static void raise_row_max(int m, const float *lane_max, float *row_max, float *rescale,
                          float *base)
{
    vec old[GROUP];
    for (int v = 0, left = m; v < GROUP; v++, left -= VL) {
        old[v] = left >= VL ? v_load(row_max + v * VL) : v_load_n(row_max + v * VL, left);
        v_store(base + v * VL, v_zero());
    }
    for (int i = 0; i < m; i++) {
        vec group[GROUP];
        for (int v = 0; v < GROUP; v++)
            group[v] = v_load(lane_max + i * PH_LANES + v * VL);
        float highest = v_max16(group);
        if (highest <= row_max[i]) highest = row_max[i]; /* keeps NaN */
        row_max[i] = highest;
        base[i] = highest == -__builtin_inff() ? 0 : highest; /* -inf - -inf is NaN */
    }
    for (int v = 0, left = m; v < GROUP; v++, left -= VL) {
        vec shrink = v_exp2(v_sub(old[v], v_load(base + v * VL)));
        if (left >= VL)
            v_store(rescale + v * VL, shrink);
        else
            v_store_n(rescale + v * VL, shrink, left);
    }
}
