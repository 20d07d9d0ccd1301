/*
 * page.h - a report as a page: a description in JSON, one byte string with all large
 * arrays, and a frame around both. The live server sends the same parts separately.
 *
 * Layout of the byte string; everything little-endian and aligned to 4:
 *
 *   one head, "f32"   weights f32 (rows, keys)
 *   one head, "dec"   sum f32 (rows), base i32 (rows), digits i8 (rows), low u8 (rows,
 *                     keys), high u8 (rows, keys): weight = n / 10^digits, rounded to
 *                     the nearest, with n = base + low + 256 high
 *   one head, "top"   sum f32 (rows), exact f32 (rows, top), its keys u16 or u32
 *                     (rows, top)
 *   thumbnails        per head: scale f32, cells u8 (min(rows, side), min(keys, side)),
 *                     maxima of what each cell covers, value = scale * cell / 255
 *   vectors           per head: q f32 (rows, qk_dim), k f32 (keys, qk_dim)
 *   value norms       f32 (layers, heads, keys)
 *
 * Unused entries of "top" hold key 65535 or 4294967295. The description has the offset of
 * each part; -1: left out.
 */
#ifndef PH_VIEW_PAGE_H
#define PH_VIEW_PAGE_H

#include "polyhead_view.h"
#include "view/bytes.h"

enum {
    PH_PAGE_BUDGET = 8 << 20,
    PH_PAGE_DECIMALS = 3000000, /* bytes beyond which one digit less is stored */
    PH_PAGE_REPORTS = 2
};

/* PH_PAGE_LIVE: no weights at all, the page requests what it shows. */
typedef enum ph_page_mode {
    PH_PAGE_F32,
    PH_PAGE_DECIMAL,
    PH_PAGE_TOP,
    PH_PAGE_LIVE
} ph_page_mode;

/* How weights are stored within the budget; depends on sizes alone. */
typedef struct ph_page_plan {
    ph_page_mode mode;
    int digits;       /* decimals, mode "dec" */
    int top;          /* largest weights of a row that are stored, exact */
    int side;         /* of a thumbnail; 0: none, the page computes them */
    int col_bytes;    /* 2 or 4: of a key among the largest */
    size_t map_left;  /* bytes that remain for maps; mode "top" leaves heads out */
    size_t pair_left; /* bytes that remain for vectors */
} ph_page_plan;

typedef struct ph_page_source {
    const ph_report *reports[PH_PAGE_REPORTS];
    int count;
    ph_page page;
    const ph_io *io;
    const ph_live *live; /* the page is served by this, or NULL */
    int tight;           /* decimals took too much: 1: a digit less, 2: none of them */
} ph_page_source;

/* Refuses what cannot be drawn, with a sentence. */
ph_status ph_report_check(const ph_report *report, const ph_io *io);

ph_page_plan ph_page_make_plan(const ph_page_source *source);

/* Fills json and blob, whose io is set and which the caller frees. */
ph_status ph_page_pack(const ph_page_source *source, ph_bytes *json, ph_bytes *blob);

/* How far measuring heads is, and in the end what was found, as JSON. */
void ph_page_describe_measured(ph_bytes *json, const ph_live_measured *m);

/* The frame. With a nonce the policy names it and is sent as a header by the server;
   without, the policy is in the page and names digests. */
void ph_page_frame(ph_bytes *out, const ph_bytes *json, const ph_bytes *blob,
                   const char *nonce);

#endif
