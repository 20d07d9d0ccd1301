/*
 * layer_types.c - which layers of a folder's model have a window, by a list of names,
 * and which have rotary positions, by a list of numbers.
 */
#include <string.h>

#include "architectures/architecture.h"
#include "architectures/windows.h"

static const char *const names[] = {"full_attention", "sliding_attention"};

/* Whether a layer has the window. */
static int is_sliding(ph_import *in, const ph_value *list, int layer)
{
    ph_value item;
    int found = ph_values_item(&in->checkpoint->values, list, (size_t)layer, &item) &&
                item.kind == PH_VALUE_TEXT;
    if (found && !strcmp(item.text, names[1])) return 1;
    if (!found || strcmp(item.text, names[0]))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "layer_types.%d is neither sliding_attention nor full_attention",
                       layer);
    return 0;
}

/* Whether the first `period` layers come again and again. */
static int repeats(ph_import *in, const ph_value *list, int layers, int period)
{
    for (int l = period; l < layers; l++)
        if (is_sliding(in, list, l) != is_sliding(in, list, l % period)) return 0;
    return 1;
}

void ph_import_layer_types(ph_import *in, ph_config *c)
{
    const ph_value *list = ph_import_list(in, "layer_types");
    int same = 1, period = 1;
    if (!list) return;
    for (int l = 0; l < c->layers && in->status == PH_OK; l++)
        same &= is_sliding(in, list, l) == ph_config_windowed(c, l);
    if (same || in->status != PH_OK) return;
    if (!c->window) {
        ph_import_fail(in, PH_UNSUPPORTED,
                       "layer_types has sliding_attention, expected a window with it");
        return;
    }
    while (period < PH_WINDOW_TEXT && !repeats(in, list, c->layers, period)) period++;
    if (period == PH_WINDOW_TEXT) {
        ph_import_fail(in, PH_UNSUPPORTED,
                       "layer_types does not repeat after %d layers at most",
                       PH_WINDOW_TEXT - 1);
        return;
    }
    c->window_from = c->window_period = 0;
    memset(c->window_layers, 0, sizeof c->window_layers);
    for (int l = 0; l < period; l++)
        c->window_layers[l] = is_sliding(in, list, l) ? 's' : 'f';
}

void ph_publish_layer_types(const ph_config *c, ph_json_writer *json)
{
    ph_json_begin_array(json, "layer_types");
    for (int l = 0; l < c->layers; l++)
        ph_json_string(json, NULL, names[ph_config_windowed(c, l)]);
    ph_json_end(json);
}

/* ---- rotary positions -------------------------------------------------------------- */

/* Whether a layer has them. */
static int is_rotary(ph_import *in, const ph_value *list, int interval, int layer)
{
    ph_value item;
    if (!list) return (layer + 1) % interval != 0;
    int found = ph_values_item(&in->checkpoint->values, list, (size_t)layer, &item) &&
                item.kind == PH_VALUE_NUMBER && (item.number == 0 || item.number == 1);
    if (!found)
        ph_import_fail(in, PH_UNSUPPORTED, "no_rope_layers.%d is neither 0 nor 1", layer);
    return found && item.number == 1;
}

void ph_import_rope_layers(ph_import *in, ph_config *c)
{
    const ph_value *list = ph_import_list(in, "no_rope_layers");
    int interval = ph_import_size(in, "no_rope_layer_interval", NULL, 4), period = 1;
    int all = 1, same = 0;
    for (int l = 0; l < c->layers && in->status == PH_OK; l++)
        all &= is_rotary(in, list, interval, l);
    if (all || in->status != PH_OK) return;
    for (; period < PH_WINDOW_TEXT; period++) {
        same = 1;
        for (int l = period; l < c->layers; l++)
            same &= is_rotary(in, list, interval, l) ==
                    is_rotary(in, list, interval, l % period);
        if (same) break;
    }
    if (!same)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "no_rope_layers does not repeat after %d layers at most",
                       PH_WINDOW_TEXT - 1);
    for (int l = 0; same && l < period; l++)
        c->rope_layers[l] = is_rotary(in, list, interval, l) ? 'r' : 'n';
}

void ph_publish_rope_layers(const ph_config *c, ph_json_writer *json)
{
    ph_json_begin_array(json, "no_rope_layers");
    for (int l = 0; l < c->layers; l++)
        ph_json_integer(json, NULL, ph_config_rotates(c, l));
    ph_json_end(json);
}
