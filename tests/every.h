/*
 * every.h - how much of a sweep is tried: all of it, or every third size and round where
 * a sanitizer makes the plain loops that others are compared with slower by a factor of
 * ten. Three divides no vector's length, so every remainder is still met.
 */
#ifndef EVERY_H
#define EVERY_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED
enum { EVERY = 3 };
#else
enum { EVERY = 1 };
#endif

#endif
