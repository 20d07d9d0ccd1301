/*
 * look_heads.c - which heads of a report are meant, which tell most, and words of reports
 * as they may be printed.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "commands/cmd_look.h"

/* ---- choosing heads ---- */

static int is_wanted(const ph_stack *stack, const look_wish *wish, int layer, int head)
{
    if (wish->stack && strcmp(wish->stack, stack->name)) return 0;
    if (stack->absent && stack->absent[layer * stack->heads + head]) return 0;
    return (!wish->layer || wish->layer == layer + 1) &&
           (!wish->head || wish->head == head + 1);
}

/* What there is instead: the stack's names, or how many layers and heads. */
static int nothing_there(const ph_report *report, const look_wish *wish)
{
    char names[1200] = "", word[LOOK_WORD];
    int layers = 0, heads = 0, known = 0;
    for (int s = 0; s < report->stack_count; s++) {
        const ph_stack *stack = &report->stacks[s];
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%.60s", s ? ", " : "",
                 look_word(stack->name, word));
        if (wish->stack && strcmp(wish->stack, stack->name)) continue;
        known = 1;
        layers = stack->layers > layers ? stack->layers : layers;
        heads = stack->heads > heads ? stack->heads : heads;
    }
    if (!wish->stack && !heads)
        return cli_fail(EXIT_BAD_INPUT,
                        "the model has no heads left, expected one with a head");
    if (!known)
        return cli_fail(EXIT_USAGE, "no stack '%s'; there are: %s",
                        look_word(wish->stack, word), names);
    if (wish->layer > layers)
        return cli_fail(EXIT_USAGE, "--layer is %lld, expected 1 to %d",
                        (long long)wish->layer, layers);
    if (wish->head > heads)
        return cli_fail(EXIT_USAGE, "--head is %lld, expected 1 to %d",
                        (long long)wish->head, heads);
    return cli_fail(EXIT_USAGE, "there is no such head");
}

int look_select(const ph_report *report, const look_wish *wish, look_heads *out)
{
    size_t capacity = 0;
    for (int s = 0; s < report->stack_count; s++)
        capacity += (size_t)report->stacks[s].layers * (size_t)report->stacks[s].heads;
    out->count = 0;
    out->chosen = wish->stack || wish->layer || wish->head;
    out->picks = calloc(capacity ? capacity : 1, sizeof *out->picks);
    if (!out->picks) return cli_fail(EXIT_MEMORY, "out of memory");
    for (int s = 0; s < report->stack_count; s++)
        for (int l = 0; l < report->stacks[s].layers; l++)
            for (int h = 0; h < report->stacks[s].heads; h++)
                if (is_wanted(&report->stacks[s], wish, l, h))
                    out->picks[out->count++] = (ph_pick){s, l, h};
    return out->count > 0 ? EXIT_OK : nothing_there(report, wish);
}

/* ---- heads that tell most ---- */

/* 1: the head has the label of links, for this relation. */
static int finds(const ph_head_stats *head, int relation)
{
    ph_label labels[PH_MAX_LABELS];
    int count = ph_head_labels(head, labels);
    for (int n = 0; n < count; n++)
        if (labels[n].rule->measure == PH_LINK) return head->relation == relation;
    return 0;
}

/* The head that finds one kind of link best. */
static int best_for(const look_source *source, int relation, ph_pick *best)
{
    const ph_report *report = &source->report;
    int64_t most = 0;
    for (int s = 0; s < report->stack_count; s++)
        for (int n = 0; n < report->stacks[s].layers * report->stacks[s].heads; n++) {
            int heads = report->stacks[s].heads;
            const ph_head_stats *head =
                ph_survey_head(source->survey, s, n / heads, n % heads);
            if (!finds(head, relation) || head->link[relation].right <= most) continue;
            most = head->link[relation].right;
            *best = (ph_pick){s, n / heads, n % heads};
        }
    return most > 0;
}

int look_telling(const look_source *source, ph_pick picks[LOOK_TELLING])
{
    static const char *const kinds[] = {"reference", "actor",      "object",  "state",
                                        "place",     "determiner", "property"};
    int count = 0, last = source->report.stack_count - 1;
    if (source->relation_count && source->report.stacks[last].share)
        picks[count++] = (ph_pick){last, 0, 0}; /* the pointer: its map is the answer */
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0] && count < LOOK_TELLING; k++)
        for (int r = 0; r < source->relation_count; r++)
            if (!strcmp(source->relations[r], kinds[k]))
                count += best_for(source, r, &picks[count]);
    return count;
}

/* ---- words ---- */

int look_is_file(const char *word)
{
    struct stat info;
    return stat(word, &info) == 0 && S_ISREG(info.st_mode);
}

static int ends_with(const char *word, const char *ending)
{
    size_t length = strlen(word), tail = strlen(ending);
    return length > tail && !strcmp(word + length - tail, ending);
}

/* GGUF files by their first bytes; those of llama2.c have none of their own. */
static int holds_model(const char *path)
{
    char first[4] = "";
    FILE *file = fopen(path, "rb");
    int gguf = file && fread(first, 1, 4, file) == 4 && !memcmp(first, "GGUF", 4);
    if (file) fclose(file);
    return gguf || ends_with(path, ".bin");
}

int look_is_model(const char *word)
{
    struct stat info;
    if (stat(word, &info) == 0 && S_ISDIR(info.st_mode)) return 1;
    if (ends_with(word, ".safetensors") || ends_with(word, ".gguf")) return 1;
    return look_is_file(word) && holds_model(word);
}

const char *look_word(const char *word, char buffer[LOOK_WORD])
{
    ph_text_clean(word, 0, buffer, LOOK_WORD);
    return buffer;
}

int look_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]);
        if (!value || !*value) continue;
        const char *charset = strchr(value, '.');
        return charset &&
               (!strncasecmp(charset, ".UTF-8", 6) || !strncasecmp(charset, ".UTF8", 5));
    }
    return 0;
}
