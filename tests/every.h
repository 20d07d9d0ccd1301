/*
 * every.h - how much of a sweep is tried: all of it, or every third size and round where
 * a sanitizer makes the plain loops that others are compared with slower by a factor of
 * ten. Three divides no vector's length, so every remainder is still met.
 */
#ifndef EVERY_H
#define EVERY_H

#include "sanitized.h"

enum { EVERY = SANITIZED ? 3 : 1 };

#endif
