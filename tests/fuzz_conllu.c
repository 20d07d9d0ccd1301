/*
 * fuzz_conllu.c - any bytes as a treebank.
 *
 * Beyond not crashing: words lie within their text, in order, and dependencies name
 * words and relations that exist.
 */
#include <string.h>

#include "fuzz.h"
#include "polyhead_treebank.h"

static void check_tree(const ph_treebank *t, const ph_tree *tree)
{
    int at = 0, length = (int)strlen(tree->text);
    for (int i = 0; i < tree->word_count; i++) {
        REQUIRE(tree->words[i].start >= at && tree->words[i].length > 0);
        at = tree->words[i].start + tree->words[i].length;
        REQUIRE(at <= length);
    }
    for (int i = 0; i < tree->dependency_count; i++) {
        const ph_dependency *d = &tree->dependencies[i];
        REQUIRE(d->dependent >= 0 && d->dependent < tree->word_count);
        REQUIRE(d->head >= -1 && d->head < tree->word_count && d->head != d->dependent);
        REQUIRE(ph_treebank_relation(t, d->relation) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    const ph_tree *tree;
    ph_treebank *t;
    ph_status status = ph_treebank_parse(&t, "fuzz", (const char *)data, size, &io);
    REQUIRE(status == PH_OK || (status == PH_BAD_FILE && error[0]));
    for (int i = 0; status == PH_OK && (tree = ph_treebank_sentence(t, i)); i++)
        check_tree(t, tree);
    ph_treebank_free(t);
    return 0;
}
