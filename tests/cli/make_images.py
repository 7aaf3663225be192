"""Images for the tests of the command.

make_images.py images FOLDER COUNT   makes FOLDER with images 00.png, 01.png, ... of their own colours
make_images.py broken FOLDER           one file for each way in which an image is bad
"""
import os, struct, sys, zlib

def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

def png(width, height, colour):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + bytes((colour + 3 * x + 7 * y) % 256 for x in range(3 * width)) for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

def bomb():
    header = struct.pack(">IIBBBBB", 65000, 65000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1 << 20)))

what, folder = sys.argv[1:3]
folder = os.fsencode(folder)
os.makedirs(folder, exist_ok=True)
whole = png(40, 30, 5)
if what == "images":
    colour = zlib.crc32(b"/".join(folder.split(b"/")[-2:])) % 200
    files = {b"%02d.png" % i: png(20 + i, 24, colour + i) for i in range(int(sys.argv[3]))}
else:
    files = {
        b"bomb.png": bomb(),
        b"corrupt.png": whole[:60] + bytes(8) + whole[68:],
        b"empty.jpg": b"",
        b"line\nbreak <b>.jpg": b"<script>alert(1)</script>",
        b"text.jpg": b"no image\n",
        b"truncated.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1",
        b"truncated.png": whole[: len(whole) // 2],
    }
for name, content in files.items():
    with open(os.path.join(folder, name), "wb") as out:
        out.write(content)
