/*
 * byte_alphabet.h - the characters that byte-level vocabularies write bytes with:
 * printable ones of Latin-1 stand for themselves, the 68 others are U+0100 and so on.
 */
#ifndef PH_TEXT_BYTE_ALPHABET_H
#define PH_TEXT_BYTE_ALPHABET_H

#include <stddef.h>
#include <stdint.h>

/* The character of a byte, and the byte of a character, or -1. */
uint32_t ph_byte_alphabet_char(unsigned char byte);
int ph_byte_alphabet_byte(uint32_t point);

/* Writes bytes in the alphabet; returns the length, at most twice the count. */
size_t ph_byte_alphabet_write(const char *bytes, size_t count, char *out);

/* Reads a text of the alphabet into bytes; -1 if one character is not of it. */
int ph_byte_alphabet_read(const char *text, size_t length, char *out, size_t *count);

#endif
