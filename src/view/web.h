/*
 * web.h - the page's sources (web/), compiled into the library by tools/embed.
 *
 * page.html is the frame, with a mark where each of the other parts goes; the scripts are
 * joined in the order of PH_WEB_SCRIPTS and share one scope.
 */
#ifndef PH_VIEW_WEB_H
#define PH_VIEW_WEB_H

#include <stddef.h>

#define PH_WEB_SCRIPTS(X)                                                                \
    X(words)                                                                             \
    X(data)                                                                              \
    X(paint)                                                                             \
    X(filter)                                                                            \
    X(state)                                                                             \
    X(grid)                                                                              \
    X(heat)                                                                              \
    X(beams)                                                                             \
    X(neuron)                                                                            \
    X(compare)                                                                           \
    X(card)                                                                              \
    X(save)                                                                              \
    X(live)                                                                              \
    X(surgery)                                                                           \
    X(main)

extern const unsigned char ph_web_page_html[], ph_web_page_css[];
extern const size_t ph_web_page_html_size, ph_web_page_css_size;

#define PH_WEB_DECLARE(name)                                                             \
    extern const unsigned char ph_web_##name##_js[];                                     \
    extern const size_t ph_web_##name##_js_size;
PH_WEB_SCRIPTS(PH_WEB_DECLARE)
#undef PH_WEB_DECLARE

#endif
