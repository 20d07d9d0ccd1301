/*
 * export_folder.c - any model as a Hugging Face folder: a folder is copied, others are
 * written (export.c).
 */
#include "checkpoint/checkpoint.h"
#include "model/export.h"

/* A folder that no command reads is not copied either. */
static ph_status check_model(ph_ctx *ctx, const char *from)
{
    ph_model *m = NULL;
    ph_status status = ph_model_read(&m, ctx, from);
    ph_model_free(m);
    return status;
}

static ph_status export_path(ph_ctx *ctx, const char *from, const char *to,
                             const ph_dtype *type)
{
    char error[512] = "";
    ph_io io = {.error = error,
                .error_size = sizeof error,
                .stopped = ctx->options.stopped,
                .user = ctx->options.user};
    ph_directory directory;
    ph_checkpoint *c;
    if (!from || !to) return ph_fail(ctx, PH_BAD_ARGUMENT, "a path is NULL");
    if (type && *type != PH_F32 && *type != PH_F16 && *type != PH_BF16)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "the type is %d, expected F32, F16 or BF16",
                       (int)*type);
    ph_status status = ph_checkpoint_open(&c, from, &io);
    if (status != PH_OK) return ph_fail(ctx, status, "%s", error);
    int folder = c->kind == PH_CHECKPOINT_FOLDER;
    if (folder && (status = check_model(ctx, from)) != PH_OK) {
        ph_checkpoint_free(c);
        return status;
    }
    status = ph_directory_create(&directory, to, &io);
    if (status == PH_OK && folder)
        status = ph_folder_copy(c, from, &directory, type, &io);
    if (status != PH_OK) ph_fail(ctx, status, "%s", error);
    ph_checkpoint_free(c);
    if (status == PH_OK && !folder)
        status = ph_export_model(ctx, from, &directory, type, &io);
    if (status == PH_OK && (status = ph_directory_commit(&directory)) != PH_OK)
        ph_fail(ctx, status, "%s", error);
    ph_directory_abandon(&directory);
    return status;
}

ph_status ph_model_export(ph_ctx *ctx, const char *from, const char *to,
                          const ph_dtype *type)
{
    if (!ctx) return PH_BAD_ARGUMENT;
    return PH_WITHIN(ctx, export_path(ctx, from, to, type));
}
