/*
 * dates.c - the recipe "dates": dates as people write them to ISO 8601, by characters.
 *
 * One date in ten is held out for tests, in all its forms. With slashes the month comes
 * first, with points the day.
 */
#include <stdio.h>
#include <string.h>

#include "recipes/recipes.h"

enum {
    SOURCE_MOST = 40,
    TARGET_MOST = 11,
    FIRST_YEAR = 1900,
    YEARS = 200,
    TEST_SHARE = 10
};

static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};
static const char *const monate[] = {"Januar",    "Februar", "März",     "April",
                                     "Mai",       "Juni",    "Juli",     "August",
                                     "September", "Oktober", "November", "Dezember"};
static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};

typedef struct date {
    int year, month, day; /* from 1 */
} date;

static int month_days(int year, int month)
{
    static const int count[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return count[month - 1] + (month == 2 && leap);
}

/* 0: Sunday */
static int weekday(const date *d)
{
    static const int shift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
    int y = d->year - (d->month < 3);
    return (y + y / 4 - y / 100 + y / 400 + shift[d->month - 1] + d->day) % 7;
}

static const char *ordinal(int day)
{
    if (day / 10 == 1) return "th";
    return day % 10 == 1 ? "st" : day % 10 == 2 ? "nd" : day % 10 == 3 ? "rd" : "th";
}

enum { FORMS = 16 };

static void write_form(int form, const date *d, char *text, size_t size)
{
    const char *m = months[d->month - 1], *on = days[weekday(d)], *th = ordinal(d->day);
    int y = d->year, n = d->month, t = d->day;
    switch (form) {
    case 0: snprintf(text, size, "%d %s %d", t, m, y); break;
    case 1: snprintf(text, size, "%s %d, %d", m, t, y); break;
    case 2: snprintf(text, size, "%d.%d.%d", t, n, y); break;
    case 3: snprintf(text, size, "%02d.%02d.%d", t, n, y); break;
    case 4: snprintf(text, size, "%02d/%02d/%d", n, t, y); break;
    case 5: snprintf(text, size, "%d/%d/%d", n, t, y); break;
    case 6: snprintf(text, size, "%d-%02d-%02d", y, n, t); break;
    case 7: snprintf(text, size, "%.3s %d %d", m, t, y); break;
    case 8: snprintf(text, size, "%d%s of %s %d", t, th, m, y); break;
    case 9: snprintf(text, size, "%s, %d %s %d", on, t, m, y); break;
    case 10: snprintf(text, size, "%.3s, %.3s %d %d", on, m, t, y); break;
    case 11: snprintf(text, size, "%d年%d月%d日", y, n, t); break;
    case 12: snprintf(text, size, "%d. %s %d", t, monate[d->month - 1], y); break;
    case 13: snprintf(text, size, "%s %d%s, %d", m, t, th, y); break;
    case 14: snprintf(text, size, "%d%02d%02d", y, n, t); break;
    default: snprintf(text, size, "%d-%.3s-%d", t, m, y); break;
    }
}

static void sample(const ph_data *data, uint64_t key, int test, ph_sample *out)
{
    char text[96], iso[96];
    ph_word words[SOURCE_MOST];
    int32_t from[SOURCE_MOST], to[SOURCE_MOST];
    ph_draw d = {0};
    date when;
    for (uint32_t attempt = 0;; attempt++) {
        d = (ph_draw){ph_rng_key(key, attempt, 0, 0), 0};
        when.year = FIRST_YEAR + ph_draw_below(&d, YEARS);
        when.month = 1 + ph_draw_below(&d, 12);
        when.day = 1 + ph_draw_below(&d, month_days(when.year, when.month));
        uint64_t mixed =
            ph_rng_key(5, (uint64_t)when.year, (uint64_t)when.month, (uint64_t)when.day);
        if ((mixed % TEST_SHARE == 0) == (test != 0)) break;
    }
    write_form(ph_draw_below(&d, FORMS), &when, text, sizeof text);
    write_form(6, &when, iso, sizeof iso);
    int count = ph_vocab_split(&data->vocab, text, words, SOURCE_MOST);
    for (int i = 0; i < count; i++) from[i] = words[i].token;
    int length = ph_vocab_split(&data->vocab, iso, words, SOURCE_MOST);
    for (int i = 0; i < length; i++) to[i] = words[i].token;
    ph_sample_pair(data, from, count, to, length, out);
}

static ph_status open(ph_data *data)
{
    data->split = PH_SPLIT_CHARS;
    data->source_len = SOURCE_MOST;
    data->target_len = TARGET_MOST;
    char letter[2] = " ";
    for (char c = ' '; c <= '~'; c++) {
        letter[0] = c;
        PH_TRY(ph_data_token(data, letter));
    }
    static const char *const others[] = {"年", "月", "日", "ä"};
    for (int i = 0; i < 4; i++) PH_TRY(ph_data_token(data, others[i]));
    return PH_OK;
}

static void defaults(ph_train *t)
{
    t->config = (ph_config){.arch = PH_ARCH_ENCODER_DECODER,
                            .layers = 2,
                            .model_dim = 96,
                            .heads = 4,
                            .ff_dim = 256,
                            .max_len = 64,
                            .dropout = 0.05f};
    t->steps = 4000, t->batch = 64;
    t->lr = 2e-3f, t->warmup = 300;
}

const ph_recipe ph_recipe_dates = {
    .name = "dates",
    .help = "an encoder-decoder that translates dates as people write them to ISO dates",
    .defaults = defaults,
    .open = open,
    .sample = sample};
