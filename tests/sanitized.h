/*
 * sanitized.h - which sanitizer this build has. Instrumented programs are 5 to 20 times
 * slower and hold memory of their own.
 */
#ifndef SANITIZED_H
#define SANITIZED_H

#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define SANITIZED_THREADS 1
#else
#define SANITIZED_THREADS 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || SANITIZED_THREADS
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#endif
