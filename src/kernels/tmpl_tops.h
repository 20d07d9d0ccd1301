/*
 * tmpl_tops.h - the running maximum of the softmax, in the vector vocabulary.
 */
#define MINUS_INF v_set1(-__builtin_inff())

/* New maxima of m rows and the factors old results shrink by; all rows in one vector, or
   a few, so that no row waits for another. base is what scores are measured from. */
static void raise_tops(int m, const float *peak, float *top, float *alpha, float *base)
{
    float old[PH_LANES] = {0}, new[PH_LANES] = {0};
    for (int i = 0; i < m; i++) {
        vec group[GROUP];
        for (int v = 0; v < GROUP; v++) group[v] = v_load(peak + i * PH_LANES + v * VL);
        float highest = v_max16(group);
        old[i] = top[i];
        new[i] = highest <= old[i] ? old[i] : highest; /* keeps NaN */
        top[i] = new[i];
    }
    for (int c = 0; c < PH_LANES; c += VL) {
        vec high = v_load(new + c);
        high =
            v_select(v_eq(high, MINUS_INF), v_zero(), high); /* nothing seen: not NaN */
        v_store(base + c, high);
        v_store(new + c, v_exp2(v_sub(v_load(old + c), high)));
    }
    for (int i = 0; i < m; i++) alpha[i] = new[i];
}
