/*
 * say.c - errors and warnings on stderr, exit codes, and opening a ctx for a command.
 */
#include <stdarg.h>
#include <string.h>

#include "framework/cli.h"
#include "framework/term.h"

const char *const cli_isa_names[] = {"best",   "ref", "avx2", "avx512",
                                     "amx", "amx-f32", "neon", NULL};
const char *const cli_device_names[] = {"cpu", "cuda", NULL};
const char *const cli_dtype_names[] = {"f32", "f16", "bf16", NULL};

static void say(term_style style, const char *before, const char *format, va_list list)
    CLI_PRINTF(3, 0);

static void say(term_style style, const char *before, const char *format, va_list list)
{
    char line[4096];
    term_wait_end();
    term_progress_end();
    fflush(stdout); /* what was said before stands before it */
    fprintf(stderr, "%spolyhead:%s %s", term_on(stderr, style),
            term_on(stderr, TERM_PLAIN), before);
    vsnprintf(line, sizeof line, format, list);
    for (char *c = line; *c; c++) /* names of files and tensors are anybody's */
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    fprintf(stderr, "%s\n", line);
}

int cli_fail(int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(TERM_BAD, "", format, list);
    va_end(list);
    return code;
}

void cli_warn(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(TERM_WARN, "warning: ", format, list);
    va_end(list);
}

int cli_exit_code(ph_status status)
{
    static const unsigned char codes[] = {
        [PH_OK] = EXIT_OK,
        [PH_BAD_ARGUMENT] = EXIT_USAGE,
        [PH_BAD_SHAPE] = EXIT_BAD_INPUT,
        [PH_BAD_VALUE] = EXIT_BAD_INPUT,
        [PH_UNSUPPORTED] = EXIT_UNSUPPORTED,
        [PH_OUT_OF_MEMORY] = EXIT_MEMORY,
        [PH_BAD_FILE] = EXIT_BAD_INPUT,
        [PH_IO_ERROR] = EXIT_IO,
    };
    return (size_t)status < sizeof codes ? codes[status] : EXIT_FAILED;
}

int cli_result(ph_status status, const char *sentence)
{
    if (status == PH_OK) return EXIT_OK;
    return cli_fail(cli_exit_code(status), "%s",
                    *sentence ? sentence : ph_status_text(status));
}

int cli_refuse_idle(const cli_idle *options)
{
    for (; options->sentence; options++)
        if (options->idle) return cli_fail(EXIT_USAGE, "%s", options->sentence);
    return EXIT_OK;
}

int cli_fail_status(ph_status status, const ph_ctx *ctx)
{
    return cli_result(status, ctx ? ph_error(ctx) : "");
}

int cli_open(ph_ctx **ctx, const ph_machine *machine, int checked)
{
    char error[CLI_ERROR_SIZE] = "";
    ph_options options = {.device = (ph_device)machine->device,
                          .threads = (int)machine->threads,
                          .isa = machine->isa ? cli_isa_names[machine->isa] : NULL,
                          .checked = checked,
                          .stopped = cli_stopped,
                          .error = error,
                          .error_size = sizeof error};
    ph_status status = ph_open(ctx, &options);
    if (machine->device != PH_CPU && status == PH_UNSUPPORTED)
        return cli_fail(EXIT_UNSUPPORTED, "--device %s is not available: %s",
                        cli_device_names[machine->device], error);
    return cli_result(status, error);
}
