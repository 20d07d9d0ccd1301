/*
 * embedded.c - the trained model that lies in the library itself.
 *
 * models/pronouns.safetensors becomes an array when the library is built.
 */
#include "model/embedded.h"

static ph_status read_embedded(ph_model **out, ph_ctx *ctx)
{
    ph_file *file;
    PH_TRY(ph_store_parse(&file, ctx, "the embedded model", ph_model_pronouns_safetensors,
                          ph_model_pronouns_safetensors_size));
    ph_status status = ph_store_model(out, ctx, file, "the embedded model");
    ph_file_free(file);
    return status;
}

ph_status ph_model_embedded(ph_model **out, ph_ctx *ctx)
{
    if (out) *out = NULL;
    if (!out || !ctx) return ph_ctx_null(ctx, "out");
    return PH_WITHIN(ctx, read_embedded(out, ctx));
}
