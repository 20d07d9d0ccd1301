/*
 * section_json.c - parts of a tokenizer.json that is written; see section_json.h.
 */
#include "text/section_json.h"

#include <string.h>

void ph_json_text_append(void *text, const char *bytes, size_t count)
{
    ph_json_text *t = text;
    void *grown = t->bytes;
    if (t->status == PH_OK)
        t->status = ph_io_grow(t->io, &grown, &t->capacity, t->length + count + 1, 1);
    if (t->status != PH_OK) return;
    t->bytes = grown;
    memcpy(t->bytes + t->length, bytes, count);
    t->length += count;
    t->bytes[t->length] = 0;
}

/* A text of the template, or a mark. */
static void write_part(ph_json_writer *out, const char *kind, const char *id, int type)
{
    ph_json_begin_object(out, NULL);
    ph_json_begin_object(out, kind);
    ph_json_string(out, "id", id);
    ph_json_integer(out, "type_id", type);
    ph_json_end(out);
    ph_json_end(out);
}

static void write_parts(ph_json_writer *out, const ph_template_marks *marks, int pair)
{
    for (int text = 0; text <= pair; text++) {
        int type = text ? marks->second_type : 0;
        for (int i = 0; i < marks->count && (!text || marks->around_both); i++)
            write_part(out, "SpecialToken", marks->before[i].text, type);
        write_part(out, "Sequence", text ? "B" : "A", type);
        if (marks->after.text && (text == pair || marks->around_both))
            write_part(out, "SpecialToken", marks->after.text, type);
    }
}

static void write_mark(ph_json_writer *out, ph_template_mark mark)
{
    ph_json_begin_object(out, mark.text);
    ph_json_string(out, "id", mark.text);
    ph_json_begin_array(out, "ids");
    ph_json_integer(out, NULL, mark.id);
    ph_json_end(out);
    ph_json_begin_array(out, "tokens");
    ph_json_string(out, NULL, mark.text);
    ph_json_end(out);
    ph_json_end(out);
}

void ph_json_template(ph_json_writer *out, const ph_template_marks *marks)
{
    int known = !marks->after.text; /* the mark behind a text may stand before it too */
    ph_json_begin_object(out, "post_processor");
    ph_json_string(out, "type", "TemplateProcessing");
    for (int pair = 0; pair < 2; pair++) {
        ph_json_begin_array(out, pair ? "pair" : "single");
        write_parts(out, marks, pair);
        ph_json_end(out);
    }
    ph_json_begin_object(out, "special_tokens");
    for (int i = 0; i < marks->count; i++) {
        write_mark(out, marks->before[i]);
        known |= marks->after.text && !strcmp(marks->after.text, marks->before[i].text);
    }
    if (!known) write_mark(out, marks->after);
    ph_json_end(out);
    ph_json_end(out);
}
