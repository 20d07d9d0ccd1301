/*
 * status.c - texts of the status codes, and the version.
 */
#include "base/base.h"

#define TEXT(x)          #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *ph_version(void)
{
    return VERSION(PH_VERSION_MAJOR, PH_VERSION_MINOR, PH_VERSION_PATCH);
}

const char *ph_status_text(ph_status status)
{
    static const char *const texts[] = {
        [PH_OK] = "ok",
        [PH_BAD_ARGUMENT] = "bad argument",
        [PH_BAD_SHAPE] = "sizes do not fit together",
        [PH_BAD_VALUE] = "an element is not allowed",
        [PH_UNSUPPORTED] = "not supported",
        [PH_OUT_OF_MEMORY] = "out of memory",
        [PH_BAD_FILE] = "malformed file",
        [PH_IO_ERROR] = "input or output failed",
        [PH_BUSY] = "another thread runs a call on this ctx, expected one at a time",
        [PH_DEVICE_ERROR] = "the accelerator reported a fault",
    };
    size_t count = sizeof texts / sizeof texts[0];
    return (size_t)status < count && texts[status] ? texts[status] : "unknown status";
}
