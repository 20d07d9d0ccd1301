/*
 * palette.c - the table of colours; see palette.h.
 */
#include "view/palette.h"

const ph_palette ph_colors = {
    .ramp = {{0xffffff, 0xdbe8f8, 0xa9c8ee, 0x6a9ddd, 0x2f6cbf, 0x174a94, 0x0a2a5e,
              0x04142f},
             {0x161a21, 0x1d3050, 0x25507f, 0x2f75ac, 0x5b9dc4, 0x98c3cf, 0xd3e2c9,
              0xfdf6c4}},
    .diverging = {{0x8a3b00, 0xc9691c, 0xeeb07a, 0xfbe5d2, 0xffffff, 0xd9e8f8, 0x8fb8e6,
                   0x2f6cbf, 0x0d3a7d},
                  {0xffc38a, 0xe08a3c, 0x93561f, 0x43301f, 0x161a21, 0x1b3350, 0x2c6397,
                   0x5b9ddb, 0xb5d8ff}},
    .terminal = {234, 17, 18, 24, 25, 31, 67, 74, 110, 152, 187, 230},
    .roles = {{0x0b63b5, 0x6fb1f5, 75},
              {0xc4520a, 0xff9a57, 209},
              {0x00806a, 0x3fd0b0, 43},
              {0xa8437f, 0xf29ac8, 212},
              {0x8a6500, 0xe5bf45, 179},
              {0x3f8fd6, 0xa9d4ff, 153},
              {0x5b4bb0, 0xb3a7ff, 147},
              {0x5c6470, 0xb9c0cb, 250},
              {0xb3002d, 0xff8a9b, 204},
              {0x2e6b1f, 0x8fd06f, 113},
              {0x7a3e00, 0xd9a066, 173},
              {0x00778f, 0x5fd3e8, 80}}};

const ph_color *ph_role_color(int role)
{
    return &ph_colors.roles[(role - 1) % PH_ROLE_COLORS];
}

int ph_role_bars(int role)
{
    return role > 0 ? (role - 1) / PH_ROLE_COLORS % 4 : 0;
}
