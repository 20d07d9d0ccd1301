/*
 * fuzz_chat.c - any text as a chat template, for a user and for a user behind a system.
 *
 * Beyond not crashing: a prompt or a sentence, all memory is given back, and a second run
 * gives the same.
 */
#include <string.h>

#include "fuzz.h"
#include "text/chat.h"

static size_t blocks;

static void *counted(void *user, size_t bytes)
{
    (void)user;
    blocks++;
    return malloc(bytes ? bytes : 1);
}

static void uncounted(void *user, void *ptr)
{
    (void)user;
    blocks -= ptr != NULL;
    free(ptr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tm day = {.tm_year = 125, .tm_mday = 1};
    char error[512], *prompt[2], *text = malloc(size + 1);
    ph_io io = {.error = error,
                .error_size = sizeof error,
                .alloc = counted,
                .release = uncounted};
    memcpy(text, data, size);
    text[size] = 0;
    for (int system = 0; system < 2; system++) {
        const ph_chat_request request = {.template_text = text,
                                         .message = " Hi\n\303\244 \"x\"",
                                         .system = system ? "Be kind." : NULL,
                                         .tokens = {"<s>"},
                                         .today = &day};
        for (int i = 0; i < 2; i++) {
            error[0] = 0;
            ph_status status = ph_chat_print(&request, &prompt[i], &io);
            REQUIRE(status == PH_OK ? prompt[i] != NULL : error[0] && !prompt[i]);
        }
        REQUIRE(!prompt[0] == !prompt[1]);
        if (prompt[0]) REQUIRE(!strcmp(prompt[0], prompt[1]));
        ph_io_release(&io, prompt[0]);
        ph_io_release(&io, prompt[1]);
        REQUIRE(blocks == 0);
    }
    free(text);
    return 0;
}
