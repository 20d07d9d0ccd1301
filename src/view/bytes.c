/*
 * bytes.c - growing byte strings, base64, SHA-256; see bytes.h.
 */
#include "view/bytes.h"

#include <string.h>

#include "base/size.h"
#include "io/io.h"

/* ---- runs ---- */

/* Grows by count bytes and returns them, or NULL. */
static unsigned char *extend(ph_bytes *bytes, size_t count)
{
    size_t need;
    void *data = bytes->data;
    if (bytes->status) return NULL;
    if (ph_size_add(bytes->count, count, &need) ||
        ph_io_grow(bytes->io, &data, &bytes->capacity, need, 1)) {
        bytes->status = ph_io_no_memory(bytes->io, count, "a page");
        return NULL;
    }
    bytes->data = data;
    unsigned char *at = bytes->data + bytes->count;
    bytes->count = need;
    return at;
}

void ph_bytes_add(ph_bytes *bytes, const void *data, size_t count)
{
    unsigned char *to = count ? extend(bytes, count) : NULL;
    if (to) memcpy(to, data, count);
}

void ph_bytes_write(void *bytes, const char *data, size_t count)
{
    ph_bytes_add(bytes, data, count);
}

void ph_bytes_text(ph_bytes *bytes, const char *text)
{
    ph_bytes_add(bytes, text, strlen(text));
}

void ph_bytes_zeros(ph_bytes *bytes, size_t count)
{
    unsigned char *to = count ? extend(bytes, count) : NULL;
    if (to) memset(to, 0, count);
}

void ph_bytes_free(ph_bytes *bytes)
{
    ph_io_release(bytes->io, bytes->data);
    *bytes = (ph_bytes){.io = bytes->io};
}

void ph_bytes_u16(ph_bytes *bytes, uint32_t value)
{
    unsigned char two[] = {value & 255, value >> 8 & 255};
    ph_bytes_add(bytes, two, sizeof two);
}

void ph_bytes_u32(ph_bytes *bytes, uint32_t value)
{
    ph_bytes_u16(bytes, value & 0xffff);
    ph_bytes_u16(bytes, value >> 16);
}

void ph_bytes_float(ph_bytes *bytes, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ph_bytes_u32(bytes, bits);
}

/* ---- base64 ---- */

void ph_bytes_base64(ph_bytes *bytes, const void *data, size_t count)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = data;
    size_t length;
    if (ph_size_mul(count / 3 + (count % 3 != 0), 4, &length)) length = SIZE_MAX;
    unsigned char *to = length ? extend(bytes, length) : NULL;
    if (!to) return;
    for (size_t i = 0; i < count; i += 3, to += 4) {
        uint32_t second = i + 1 < count ? from[i + 1] : 0;
        uint32_t third = i + 2 < count ? from[i + 2] : 0;
        uint32_t all = (uint32_t)from[i] << 16 | second << 8 | third;
        to[0] = (unsigned char)digits[all >> 18];
        to[1] = (unsigned char)digits[all >> 12 & 63];
        to[2] = (unsigned char)(i + 1 < count ? digits[all >> 6 & 63] : '=');
        to[3] = (unsigned char)(i + 2 < count ? digits[all & 63] : '=');
    }
}

/* ---- SHA-256 ---- */

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void sha256_block(uint32_t state[8], const unsigned char *p)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
        0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
        0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
        0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
        0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
        0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
        0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
        0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t one = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                       ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
        uint32_t two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                       ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void ph_sha256(const void *data, size_t count, unsigned char digest[32])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const unsigned char *p = data;
    unsigned char last[128] = {0};
    size_t whole = count / 64 * 64, rest = count - whole, end = rest < 56 ? 64 : 128;
    for (size_t i = 0; i < whole; i += 64) sha256_block(state, p + i);
    if (rest) memcpy(last, p + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[end - 1 - (size_t)i] = (unsigned char)((uint64_t)count * 8 >> 8 * i);
    for (size_t i = 0; i < end; i += 64) sha256_block(state, last + i);
    for (int i = 0; i < 32; i++)
        digest[i] = (unsigned char)(state[i / 4] >> (24 - i % 4 * 8));
}
