"""Writes the JPEG files of this folder, and what Pillow (libjpeg-turbo) makes of each as PPM.

    python3 tests/golden/pictures/jpeg.py

Needs Pillow; the tests do not. Sizes end within blocks and within units of four blocks.
"""
import math
import pathlib
import random
import struct

from PIL import Image, ImageOps

here = pathlib.Path(__file__).parent


def picture(width, height):
    image, rng = Image.new("RGB", (width, height)), random.Random(3)
    for y in range(height):
        for x in range(width):
            wave = int(127 + 120 * math.sin(x / 5) * math.cos(y / 7))
            flat = (x // 9 + y // 9) % 3
            image.putpixel((x, y), (wave, 255 * x // width, 255 * y // height) if flat
                           else (rng.randrange(256), 40, 200))
    return image


KINDS = {"jpeg444": dict(subsampling=0), "jpeg422": dict(subsampling=1), "jpeg420": dict(subsampling=2),
         "jpeg_progressive": dict(subsampling=2, progressive=True),
         "jpeg_progressive444": dict(subsampling=0, progressive=True, quality=95),
         "jpeg_restart": dict(subsampling=2, restart_marker_blocks=2), "jpeg_low": dict(subsampling=2, quality=5),
         "jpeg_rgb": dict(keep_rgb=True, subsampling=0), "jpeg_optimised": dict(optimize=True, quality=100, subsampling=0)}

for name, options in KINDS.items():
    picture(35, 27).save(here / f"{name}.jpg", **options)
picture(35, 27).convert("L").save(here / "jpeg_grey.jpg")
picture(35, 27).convert("L").save(here / "jpeg_grey_progressive.jpg", progressive=True)
picture(1, 1).save(here / "jpeg_pixel.jpg")
picture(35, 27).convert("CMYK").save(here / "cmyk.jpg")
for turn in range(1, 9):  # in both orders of bytes
    exif = Image.Exif()
    exif[0x0112] = turn
    big = b"Exif\0\0MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, turn, 0, 0)
    picture(13, 9).save(here / f"jpeg_turned{turn}.jpg", subsampling=0, quality=90, exif=big if turn % 2 else exif)
for path in here.glob("jpeg_*.jpg"), here.glob("jpeg4*.jpg"):
    for one in path:
        ImageOps.exif_transpose(Image.open(one)).convert("RGB").save(one.with_suffix(".ppm"))
