/*
 * refused_text.c - see refused_text.h.
 */
#include "commands/refused_text.h"

#include <stdio.h>
#include <string.h>

static size_t line_of(const text_origin *from, const char *text)
{
    size_t line = 1;
    for (const char *c = from->bytes; c < text; c++) line += *c == 0;
    return line;
}

/* The first text that is refused with this sentence by itself, or -1. Bytes alone are
   judged: what else is refused would be so in any text. */
static int find_refused(const text_origin *from, const ph_model *m, const ph_ctx *ctx,
                        const char *sentence)
{
    int tokens;
    for (int i = 0; i < from->count; i++)
        if (ph_model_split(m, from->texts[i], NULL, 0, &tokens) == PH_BAD_VALUE &&
            !strcmp(ph_error(ctx), sentence))
            return i;
    return -1;
}

int fail_with_text(const text_origin *from, const ph_model *m, const ph_ctx *ctx,
                   ph_status status)
{
    char sentence[CLI_ERROR_SIZE];
    if (status != PH_BAD_VALUE || !m) return cli_fail_status(status, ctx);
    snprintf(sentence, sizeof sentence, "%s", ph_error(ctx));
    int code = cli_exit_code(status), i = find_refused(from, m, ctx, sentence);
    if (i >= 0 && from->file)
        return cli_fail(code, "'%s', line %zu: %s", from->file,
                        line_of(from, from->texts[i]), sentence);
    if (i >= 0 && from->count > 1)
        return cli_fail(code, "text %d: %s", i + 1, sentence);
    return cli_result(status, sentence);
}
