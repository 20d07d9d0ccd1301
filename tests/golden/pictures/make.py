"""Writes the pictures of this folder: PNG files of every kind, and what they hold as PPM.

Needs Python alone. Every PNG has a picture of the same name in P6 beside it: RGB of 8
bits, 16 bits by their upper 8, alpha dropped, as Pillow's convert("RGB") gives it.
"""
import pathlib
import random
import struct
import zlib

here = pathlib.Path(__file__).parent


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def paeth(a, b, c):
    return min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]


def filtered(rows, step):
    """Rows with the filters 0 to 4 in turn."""
    out, above = b"", bytes(len(rows[0]))
    for number, row in enumerate(rows):
        kind = number % 5
        out += bytes([kind])
        for i, x in enumerate(row):
            left = row[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            up = above[i]
            out += bytes([(x - [0, left, up, (left + up) // 2, paeth(left, up, corner)][kind]) % 256])
        above = row
    return out


def packed(data, how):
    level, strategy = {"stored": (0, 0), "fixed": (9, zlib.Z_FIXED), "dynamic": (9, 0)}[how]
    z = zlib.compressobj(level, zlib.DEFLATED, 15, 9, strategy)
    return z.compress(data) + z.flush()


def write(name, width, height, depth, kind, how, interlaced=0, cut=40):
    draw = random.Random(name)
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    palette = bytes(draw.randrange(256) for _ in range(3 << depth)) if kind == 3 else b""
    rows, rgb = [], b""
    for y in range(height):
        values = [(x * x // 3 + y * 7 + draw.randrange(3)) % (1 << depth) * (201 if depth == 16 else 1)
                  % (1 << depth) for x in range(width * samples)]
        bits = "".join(format(v, f"0{depth}b") for v in values)
        bits += "0" * (-len(bits) % 8)
        rows.append(bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)))
        for x in range(width):
            p = values[x * samples:(x + 1) * samples]
            if kind == 3:
                rgb += palette[3 * p[0]:3 * p[0] + 3]
                continue
            p = [v >> 8 if depth == 16 else v * 255 // ((1 << depth) - 1) for v in p]
            rgb += bytes(p[:3] if kind in (2, 6) else [p[0]] * 3)
    data = packed(filtered(rows, max(1, samples * depth // 8)), how)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced))
    if palette:
        png += chunk(b"PLTE", palette)
    png += chunk(b"tEXt", b"Comment\0drawn")
    for i in range(0, len(data), cut):
        png += chunk(b"IDAT", data[i:i + cut])
    (here / f"{name}.png").write_bytes(png + chunk(b"IEND", b""))
    if not interlaced:
        (here / f"{name}.ppm").write_bytes(b"P6\n# drawn\n%d %d\n255\n" % (width, height) + rgb)


write("rgb8", 17, 13, 8, 2, "dynamic")
write("rgb16", 9, 7, 16, 2, "fixed")
write("rgba8", 11, 6, 8, 6, "stored")
write("rgba16", 5, 6, 16, 6, "dynamic")
write("grey1", 19, 6, 1, 0, "fixed")
write("grey2", 13, 6, 2, 0, "dynamic")
write("grey4", 7, 6, 4, 0, "stored")
write("grey8", 40, 30, 8, 0, "dynamic", cut=1 << 20)
write("grey16", 6, 6, 16, 0, "dynamic")
write("grey_alpha8", 6, 6, 8, 4, "fixed")
write("palette1", 10, 6, 1, 3, "stored")
write("palette4", 9, 6, 4, 3, "dynamic")
write("palette8", 12, 6, 8, 3, "dynamic")
write("interlaced", 4, 4, 8, 2, "stored", interlaced=1)
