/*
 * chat.c - what a chat template writes; see chat.h.
 *
 * Of the language of templates there are texts, {{ }}, if, set, and loops over messages,
 * of which there is one. A condition that depends on what is not known here is passed
 * over where nothing is written under it, and refused elsewhere.
 */
#include "text/chat.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "text/chat_values.h"

/* A mark of one family may occur in a later one: the first that fits is taken. */
static const ph_chat families[] = {{"chatml", "<|im_start|>", "<|im_end|>"},
                                   {"llama3", "<|start_header_id|>", "<|eot_id|>"},
                                   {"gemma", "<start_of_turn>", "<end_of_turn>"},
                                   {"phi3", "<|end|>", "<|end|>"},
                                   {"zephyr", "<|user|>", "</s>"},
                                   {"llama2", "<<SYS>>", "</s>"},
                                   {"mistral", "[INST]", "</s>"}};

const ph_chat *ph_chat_find(const char *template_text)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strstr(template_text, families[i].mark)) return &families[i];
    return NULL;
}

typedef struct chat_span {
    const char *text;
    size_t length;
} chat_span;

typedef enum chat_piece {
    PIECE_TEXT,
    PIECE_VALUE,
    PIECE_STATEMENT,
    PIECE_END
} chat_piece;

/* How a block is read: as it is, under a condition that is not known, or not at all. */
typedef enum chat_mode { MODE_RUN, MODE_MAYBE, MODE_SKIP } chat_mode;

typedef struct chat_reader {
    const ph_io *io;
    const char *at, *end;
    int strip_next;  /* 1: the tag before ends with -%} */
    int line_begins; /* 1: the text before ended with a newline that was dropped */
    chat_span now;   /* the piece: of a tag what stands in it */
    chat_span maybe; /* the condition that is not known */
    int depth;
    ph_chat_scope scope;
    char *out;
    size_t used, size;
} chat_reader;

static ph_status refuse(const chat_reader *r, chat_span what, const char *why)
{
    return ph_io_fail(r->io, PH_UNSUPPORTED, "the chat template has %s, %s",
                      ph_io_quote(what.text, what.length).text, why);
}

/* ---- pieces ------------------------------------------------------------------------ */

static int is_space(char c)
{
    return isspace((unsigned char)c);
}

static const char *find_tag(const char *at, const char *end)
{
    for (; at + 1 < end; at++)
        if (*at == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#')) return at;
    return end;
}

/* Where }}, %} or #} stands, outside of texts in quotes; NULL: nowhere. */
static const char *find_close(const char *at, const char *end, char open)
{
    char close = open == '{' ? '}' : open, quote = 0;
    for (; at + 1 < end; at++) {
        if (quote && *at == '\\') {
            at++;
        } else if (quote) {
            if (*at == quote) quote = 0;
        } else if (open != '#' && (*at == '\'' || *at == '"')) {
            quote = *at;
        } else if (*at == close && at[1] == '}') {
            return at;
        }
    }
    return NULL;
}

/* Text up to the next tag, without the blanks that the tags around it take: all where
   they have a -, else those before a statement on a line of its own. */
static chat_piece take_text(chat_reader *r, const char *tag)
{
    const char *begin = r->at, *stop = tag;
    if (r->strip_next)
        while (begin < stop && is_space(*begin)) begin++;
    if (tag < r->end && tag[2] == '-') {
        while (stop > begin && is_space(stop[-1])) stop--;
    } else if (tag < r->end && tag[1] != '{' && tag[2] != '+') {
        const char *line = stop;
        while (line > r->at && line[-1] != '\n' && is_space(line[-1])) line--;
        if (line > r->at ? line[-1] == '\n' : r->line_begins)
            stop = line > begin ? line : begin;
    }
    r->now = (chat_span){begin, (size_t)(stop - begin)};
    r->at = tag, r->strip_next = 0;
    return PIECE_TEXT;
}

static ph_status take_tag(chat_reader *r, chat_piece *kind)
{
    char open = r->at[1];
    const char *begin = r->at + 2, *close = find_close(begin, r->end, open);
    if (!close)
        return ph_io_fail(r->io, PH_BAD_FILE,
                          "the chat template has a {%c without an end", open);
    const char *after = close + 2, *stop = close;
    r->strip_next = stop > begin && stop[-1] == '-';
    if (stop > begin && (stop[-1] == '-' || stop[-1] == '+')) stop--;
    if (begin < stop && (*begin == '-' || *begin == '+')) begin++;
    while (begin < stop && is_space(*begin)) begin++;
    while (stop > begin && is_space(stop[-1])) stop--;
    r->line_begins = 0;
    if (open != '{' && after < r->end && *after == '\n') after++, r->line_begins = 1;
    r->now = (chat_span){begin, (size_t)(stop - begin)};
    r->at = after;
    *kind = open == '{' ? PIECE_VALUE : open == '%' ? PIECE_STATEMENT : PIECE_TEXT;
    if (open == '#') r->now.length = 0;
    return PH_OK;
}

static ph_status next_piece(chat_reader *r, chat_piece *kind)
{
    const char *tag = find_tag(r->at, r->end);
    if (r->at < tag) return *kind = take_text(r, tag), PH_OK;
    if (r->at < r->end) return take_tag(r, kind);
    return *kind = PIECE_END, PH_OK;
}

/* Behind a word at the beginning of the statement; 0: it begins otherwise. */
static int begins(chat_span s, const char *word, chat_span *rest)
{
    size_t length = strlen(word);
    if (s.length < length || memcmp(s.text, word, length)) return 0;
    if (s.length > length && !is_space(s.text[length]) && s.text[length] != '(') return 0;
    *rest = (chat_span){s.text + length, s.length - length};
    while (rest->length && is_space(*rest->text)) rest->text++, rest->length--;
    return 1;
}

/* ---- what is written --------------------------------------------------------------- */

static ph_status append(chat_reader *r, const char *text, size_t length)
{
    if (length > r->size - r->used)
        return ph_io_fail(r->io, PH_UNSUPPORTED, "the chat template writes too much");
    memcpy(r->out + r->used, text, length);
    r->used += length;
    return PH_OK;
}

static ph_status refuse_maybe(const chat_reader *r)
{
    return refuse(r, r->maybe, "which decides what is written and is not known here");
}

static ph_status write_text(chat_reader *r, chat_mode mode)
{
    if (mode == MODE_SKIP || !r->now.length) return PH_OK;
    if (mode == MODE_MAYBE) return refuse_maybe(r);
    for (size_t i = 0; i < r->now.length; i++)
        if ((unsigned char)r->now.text[i] <= PH_CHAT_TRIMMED)
            return refuse(r, r->now, "expected text");
    return append(r, r->now.text, r->now.length);
}

/* An exception is none where the conversation is one message of a user, unless it is
   certain. */
static ph_status write_value(chat_reader *r, chat_mode mode)
{
    chat_span rest;
    if (mode == MODE_SKIP) return PH_OK;
    if (mode == MODE_MAYBE && begins(r->now, "raise_exception", &rest)) return PH_OK;
    ph_chat_value v = ph_chat_evaluate(&r->scope, r->now.text, r->now.length);
    if (v.kind == PH_CHAT_UNDEFINED || (v.kind == PH_CHAT_TEXT && !v.length))
        return PH_OK;
    if (mode == MODE_MAYBE) return refuse_maybe(r);
    return v.kind == PH_CHAT_TEXT
               ? append(r, v.text, v.length)
               : refuse(r, r->now, "which is written and not known here");
}

/* ---- statements -------------------------------------------------------------------- */

static ph_status walk(chat_reader *r, chat_mode mode);

/* name=value, name=value of a namespace: variables name.name. */
static void set_members(chat_reader *r, chat_span name, chat_span list)
{
    while (list.length && *list.text != ')') {
        char whole[128];
        size_t key = 0, stop = 0;
        char quote = 0;
        while (key < list.length && list.text[key] != '=') key++;
        for (stop = key; stop < list.length; stop++) {
            char c = list.text[stop];
            if (quote ? c == quote : c == '\'' || c == '"') quote = quote ? 0 : c;
            if (!quote && (c == ',' || c == ')')) break;
        }
        if (stop == list.length) return;
        size_t begin = 0, end = key;
        while (begin < end && is_space(list.text[begin])) begin++;
        while (end > begin && is_space(list.text[end - 1])) end--;
        int length = snprintf(whole, sizeof whole, "%.*s.%.*s", (int)name.length,
                              name.text, (int)(end - begin), list.text + begin);
        if (length > 0 && length < (int)sizeof whole)
            ph_chat_set(&r->scope, whole, (size_t)length,
                        ph_chat_evaluate(&r->scope, list.text + key + 1, stop - key - 1));
        if (list.text[stop] == ',') stop++;
        list.text += stop, list.length -= stop;
    }
}

static ph_status set_variable(chat_reader *r, chat_mode mode, chat_span rest)
{
    size_t equals = 0;
    chat_span name = rest, members;
    while (equals < rest.length && rest.text[equals] != '=') equals++;
    name.length = equals;
    while (name.length && is_space(name.text[name.length - 1])) name.length--;
    ph_chat_value value = {.kind = PH_CHAT_UNKNOWN};
    if (equals == rest.length) { /* the block up to endset */
        PH_TRY(walk(r, MODE_SKIP));
        if (mode != MODE_SKIP) ph_chat_set(&r->scope, name.text, name.length, value);
        return PH_OK;
    }
    if (mode == MODE_SKIP) return PH_OK;
    rest.text += equals + 1, rest.length -= equals + 1;
    while (rest.length && is_space(*rest.text)) rest.text++, rest.length--;
    if (mode == MODE_RUN && begins(rest, "namespace", &members) && members.length) {
        members.text++, members.length--;
        set_members(r, name, members);
        return PH_OK;
    }
    if (mode == MODE_RUN) value = ph_chat_evaluate(&r->scope, rest.text, rest.length);
    ph_chat_set(&r->scope, name.text, name.length, value);
    return PH_OK;
}

/* Of if, elif and else the first that is true; after one that is not known, all that may
   be. */
static ph_status choose(chat_reader *r, chat_mode mode, chat_span condition)
{
    int done = mode == MODE_SKIP, maybe = mode == MODE_MAYBE, more = 1;
    chat_span outer = r->maybe, rest;
    while (more) {
        ph_chat_value v = {.kind = PH_CHAT_BOOL, .number = 1};
        if (condition.text && !done)
            v = ph_chat_evaluate(&r->scope, condition.text, condition.length);
        int truth = done ? 0 : ph_chat_truth(&v);
        if (truth < 0) maybe = 1, r->maybe = condition;
        PH_TRY(walk(r, truth == 0 ? MODE_SKIP : maybe ? MODE_MAYBE : MODE_RUN));
        done |= truth > 0;
        more = begins(r->now, "elif", &condition);
        if (!more && begins(r->now, "else", &rest)) condition.text = NULL, more = 1;
    }
    r->maybe = outer;
    if (begins(r->now, "endif", &rest)) return PH_OK;
    return refuse(r, r->now, "expected endif");
}

/* for message in messages: once. */
static ph_status loop(chat_reader *r, chat_mode mode, chat_span rest)
{
    chat_span outer = r->maybe, head = rest, ends;
    char name[sizeof r->scope.loop], outer_name[sizeof r->scope.loop];
    size_t length = 0;
    while (length < rest.length && !is_space(rest.text[length])) length++;
    size_t in = length;
    while (in < rest.length && is_space(rest.text[in])) in++;
    chat_span list = {rest.text + in, rest.length - in};
    ph_chat_value v = {.kind = PH_CHAT_UNKNOWN};
    memcpy(outer_name, r->scope.loop, sizeof outer_name);
    if (mode != MODE_SKIP && begins(list, "in", &list) && length < sizeof name)
        v = ph_chat_evaluate(&r->scope, list.text, list.length);
    if (v.kind == PH_CHAT_EMPTY || v.kind == PH_CHAT_UNDEFINED) mode = MODE_SKIP;
    if (mode != MODE_SKIP && v.kind == PH_CHAT_MESSAGES) {
        memcpy(r->scope.loop, rest.text, length);
        r->scope.loop[length] = 0;
    } else if (mode != MODE_SKIP) {
        mode = MODE_MAYBE, r->maybe = head;
    }
    PH_TRY(walk(r, mode));
    if (begins(r->now, "else", &ends)) PH_TRY(walk(r, MODE_SKIP));
    memcpy(r->scope.loop, outer_name, sizeof outer_name);
    r->maybe = outer;
    return begins(r->now, "endfor", &ends) ? PH_OK : refuse(r, r->now, "expected endfor");
}

/* *ends 1: the statement ends a block, and is left in r->now. */
static ph_status run_statement(chat_reader *r, chat_mode mode, int *ends)
{
    static const char *const closing[] = {"elif",   "else",     "endif",
                                          "endfor", "endmacro", "endset"};
    chat_span rest;
    for (size_t i = 0; i < sizeof closing / sizeof closing[0]; i++)
        if (begins(r->now, closing[i], &rest)) return *ends = 1, PH_OK;
    if (begins(r->now, "if", &rest)) return choose(r, mode, rest);
    if (begins(r->now, "for", &rest)) return loop(r, mode, rest);
    if (begins(r->now, "set", &rest)) return set_variable(r, mode, rest);
    if (begins(r->now, "macro", &rest)) return walk(r, MODE_SKIP);
    if (begins(r->now, "generation", &rest) || begins(r->now, "endgeneration", &rest))
        return PH_OK;
    return mode == MODE_SKIP ? PH_OK : refuse(r, r->now, "which is not known here");
}

/* Up to the statement that ends this block, or the end of the template. */
static ph_status walk(chat_reader *r, chat_mode mode)
{
    chat_piece kind = PIECE_TEXT;
    int ends = 0;
    if (++r->depth > PH_CHAT_DEPTH)
        return refuse(r, r->now, "which is nested too deeply");
    while (!ends) {
        PH_TRY(next_piece(r, &kind));
        if (kind == PIECE_END) break;
        if (kind == PIECE_TEXT) PH_TRY(write_text(r, mode));
        if (kind == PIECE_VALUE) PH_TRY(write_value(r, mode));
        if (kind == PIECE_STATEMENT) PH_TRY(run_statement(r, mode, &ends));
    }
    if (!ends) r->now = (chat_span){"", 0};
    r->depth--;
    return PH_OK;
}

/* ---- the prompt -------------------------------------------------------------------- */

static ph_status insert(const chat_reader *r, const char *message, char **prompt)
{
    size_t whole = strlen(message), first = strspn(message, " \t\r\n\v\f"), size = 1;
    size_t length = whole - first;
    while (length && strchr(" \t\r\n\v\f", message[first + length - 1])) length--;
    for (size_t i = 0; i < r->used; i++)
        size += r->out[i] == PH_CHAT_CONTENT   ? whole
                : r->out[i] == PH_CHAT_TRIMMED ? length
                                               : 1;
    char *to = *prompt = ph_io_alloc(r->io, size);
    if (!to) return ph_io_no_memory(r->io, size, "a prompt");
    for (size_t i = 0; i < r->used; i++) {
        int content = r->out[i] == PH_CHAT_CONTENT,
            trimmed = r->out[i] == PH_CHAT_TRIMMED;
        size_t count = content ? whole : trimmed ? length : 1;
        memcpy(to, content ? message : trimmed ? message + first : &r->out[i], count);
        to += count;
    }
    *to = 0;
    return PH_OK;
}

/* A prompt without the message cannot be what its template is for. */
static ph_status check(const chat_reader *r)
{
    if (r->now.length) return refuse(r, r->now, "which ends nothing");
    for (size_t i = 0; i < r->used; i++)
        if ((unsigned char)r->out[i] <= PH_CHAT_TRIMMED) return PH_OK;
    return ph_io_fail(r->io, PH_UNSUPPORTED,
                      "the chat template does not write the message of a user");
}

ph_status ph_chat_print(const ph_chat_request *request, char **prompt, const ph_io *io)
{
    size_t length = strlen(request->template_text);
    size_t out = length + (1 << 16), memory = 16 * length + (1 << 16);
    chat_reader *r = ph_io_alloc(io, sizeof *r + out + memory);
    *prompt = NULL;
    if (!r) return ph_io_no_memory(io, sizeof *r + out + memory, "a chat template");
    *r = (chat_reader){.io = io,
                       .at = request->template_text,
                       .end = request->template_text + length,
                       .line_begins = 1,
                       .out = (char *)(r + 1),
                       .size = out};
    r->scope.bos = request->bos, r->scope.eos = request->eos;
    r->scope.memory = r->out + out, r->scope.size = memory;
    /* transformers drops one newline at the end of a template */
    if (length && r->end[-1] == '\n') r->end--;
    ph_status status = walk(r, MODE_RUN);
    if (status == PH_OK) status = check(r);
    if (status == PH_OK) status = insert(r, request->message, prompt);
    ph_io_release(io, r);
    return status;
}
