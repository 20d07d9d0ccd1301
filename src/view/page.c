/*
 * page.c - the frame of a page, and its file; see page.h.
 *
 * web/page.html has a placeholder for each part. Contents of a report reach the frame
 * only as JSON or base64, so the content security policy can allow exactly one style and
 * one script by their digests and forbid every connection.
 */
#include "view/page.h"

#include <string.h>

#include "io/file.h"
#include "view/web.h"

/* ---- the parts of a frame ---- */

static void add_scripts(ph_bytes *out)
{
    ph_bytes_text(out, "\"use strict\";\n{\n");
#define ADD(name) ph_bytes_add(out, ph_web_##name##_js, ph_web_##name##_js_size);
    PH_WEB_SCRIPTS(ADD)
#undef ADD
    ph_bytes_text(out, "}\n");
}

static void add_digest(ph_bytes *out, const void *data, size_t count)
{
    unsigned char digest[32];
    ph_sha256(data, count, digest);
    ph_bytes_text(out, "'sha256-");
    ph_bytes_base64(out, digest, sizeof digest);
    ph_bytes_text(out, "'");
}

static void add_policy(ph_bytes *out, const ph_bytes *scripts)
{
    ph_bytes_text(out, "<meta http-equiv=\"Content-Security-Policy\" content=\""
                       "default-src 'none'; script-src ");
    add_digest(out, scripts->data, scripts->count);
    ph_bytes_text(out, "; style-src ");
    add_digest(out, ph_web_page_css, ph_web_page_css_size);
    ph_bytes_text(out, "; img-src data: blob:; base-uri 'none'; form-action 'none'\">");
}

static void add_open_tag(ph_bytes *out, const char *element, const char *nonce)
{
    ph_bytes_text(out, element);
    if (nonce) {
        ph_bytes_text(out, " nonce=\"");
        ph_bytes_text(out, nonce);
        ph_bytes_text(out, "\"");
    }
    ph_bytes_text(out, ">");
}

static void add_data(ph_bytes *out, const ph_bytes *json, const ph_bytes *blob)
{
    ph_bytes packed = {.io = out->io};
    ph_bytes_text(out, "<script type=\"application/json\" id=\"report\">");
    if (json) ph_bytes_add(out, json->data, json->count);
    ph_bytes_text(out, "</script>\n<script type=\"text/base64\" id=\"arrays\">");
    if (blob) {
        ph_bytes_deflate(&packed, blob->data, blob->count);
        ph_bytes_base64(out, packed.data, packed.count);
    }
    ph_bytes_text(out, "</script>");
    if (packed.status) out->status = packed.status;
    ph_bytes_free(&packed);
}

/* ---- the frame ---- */

typedef struct page_frame {
    ph_bytes *out;
    const ph_bytes *json, *blob;
    ph_bytes scripts;
    const char *nonce;
} page_frame;

static void fill_policy(page_frame *f)
{
    ph_bytes_text(f->out, "<meta name=\"generator\" content=\"Polyhead ");
    ph_bytes_text(f->out, ph_version());
    ph_bytes_text(f->out, "\">");
    if (!f->nonce) add_policy(f->out, &f->scripts);
}

static void fill_style(page_frame *f)
{
    add_open_tag(f->out, "<style", f->nonce);
    ph_bytes_add(f->out, ph_web_page_css, ph_web_page_css_size);
    ph_bytes_text(f->out, "</style>");
}

static void fill_data(page_frame *f)
{
    add_data(f->out, f->json, f->blob);
}

static void fill_script(page_frame *f)
{
    add_open_tag(f->out, "<script", f->nonce);
    ph_bytes_add(f->out, f->scripts.data, f->scripts.count);
    ph_bytes_text(f->out, "</script>");
}

/* In the order of web/page.html. */
static const struct mark {
    const char *text;
    void (*fill)(page_frame *);
} marks[] = {{"<!--policy-->", fill_policy},
             {"<!--style-->", fill_style},
             {"<!--data-->", fill_data},
             {"<!--script-->", fill_script}};

void ph_page_frame(ph_bytes *out, const ph_bytes *json, const ph_bytes *blob,
                   const char *nonce)
{
    page_frame f = {out, json, blob, {.io = out->io}, nonce};
    const char *html = (const char *)ph_web_page_html;
    size_t at = 0;
    add_scripts(&f.scripts);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t length = strlen(marks[i].text), from = at;
        while (memcmp(html + at, marks[i].text, length) != 0) at++;
        ph_bytes_add(out, html + from, at - from);
        marks[i].fill(&f);
        at += length;
    }
    ph_bytes_add(out, html + at, ph_web_page_html_size - at);
    if (f.scripts.status) out->status = f.scripts.status;
    ph_bytes_free(&f.scripts);
}

/* ---- the file ---- */

static ph_status make_page(const ph_page_source *source, ph_bytes *out)
{
    ph_bytes json = {.io = source->io}, blob = {.io = source->io};
    ph_status status = ph_page_pack(source, &json, &blob);
    if (!status) {
        ph_page_frame(out, &json, &blob, NULL);
        status = out->status;
    }
    ph_bytes_free(&json);
    ph_bytes_free(&blob);
    return status;
}

/* Size beyond which a page is written again with fewer digits. */
static size_t most_bytes(const ph_page_source *source)
{
    size_t budget = source->page.budget ? source->page.budget : PH_PAGE_BUDGET;
    if (ph_page_make_plan(source).mode != PH_PAGE_DECIMAL) return SIZE_MAX;
    return source->tight || budget < PH_PAGE_DECIMALS ? budget : PH_PAGE_DECIMALS;
}

ph_status ph_page_write(const char *path, const ph_report *first, const ph_report *second,
                        const ph_page *page, const ph_io *io)
{
    ph_page_source source = {
        .reports = {first, second}, .count = second ? 2 : 1, .io = io};
    ph_bytes out = {.io = io};
    if (page) source.page = *page;
    PH_IO_CHECK_RESERVED(io, "ph_page", source.page.reserved);
    ph_status status = ph_report_check(first, io);
    if (!status && second) status = ph_report_check(second, io);
    if (!status) status = make_page(&source, &out);
    while (!status && out.count > most_bytes(&source)) {
        source.tight++;
        out.count = 0;
        status = make_page(&source, &out);
    }
    if (!status) status = ph_output_save(path, out.data, out.count, io);
    ph_bytes_free(&out);
    return status;
}
