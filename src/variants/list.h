/*
 * list.h - one line per variant, in the order in which they are shown.
 */
VARIANT(mha)
VARIANT(entmax)
VARIANT(sparsemax)
VARIANT(talking)
VARIANT(dcmha)
VARIANT(gated)
VARIANT(moh)
VARIANT(moh_norm)
VARIANT(mohsa)
VARIANT(diff)
VARIANT(diff2)
VARIANT(collab)
VARIANT(mla)
VARIANT(merged)
