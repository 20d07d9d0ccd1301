/*
 * tmpl_tops.h - the running maximum of the softmax, in the vector vocabulary.
 */
#define MINUS_INF v_set1(-__builtin_inff())

/* New maxima of m rows and the factors old results shrink by. base is what scores are
   measured from, all that the exponentials wait for; the factors of all rows come from
   one vector, or a few. */
static void raise_tops(int m, const float *peak, float *top, float *alpha, float *base)
{
    vec old[GROUP];
    for (int v = 0, left = m; v < GROUP; v++, left -= VL) {
        old[v] = left >= VL ? v_load(top + v * VL) : v_load_n(top + v * VL, left);
        v_store(base + v * VL, v_zero());
    }
    for (int i = 0; i < m; i++) {
        vec group[GROUP];
        for (int v = 0; v < GROUP; v++) group[v] = v_load(peak + i * PH_LANES + v * VL);
        float highest = v_max16(group);
        if (highest <= top[i]) highest = top[i]; /* keeps NaN */
        top[i] = highest;
        base[i] = highest == -__builtin_inff() ? 0 : highest; /* nothing seen: not NaN */
    }
    for (int v = 0, left = m; v < GROUP; v++, left -= VL) {
        vec shrink = v_exp2(v_sub(old[v], v_load(base + v * VL)));
        if (left >= VL)
            v_store(alpha + v * VL, shrink);
        else
            v_store_n(alpha + v * VL, shrink, left);
    }
}
