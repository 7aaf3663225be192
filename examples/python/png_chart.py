"""A line chart with a band around each line, as a PNG file. Needs no package."""
import math
import struct
import zlib

# 5 rows of 3 pixels per character, one octal digit per row.
_GLYPHS = dict(zip("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.,-()/:", (
    "75557 26227 71747 71717 55711 74717 74757 71222 75757 75717 25755 65656 34443 65556 74647 74644 34553 55755 72227 "
    "11152 55655 44447 57755 65555 25552 65644 25563 65655 34216 72222 55557 55552 55775 55255 55222 71247 00002 00024 "
    "00700 12221 42224 11244 02020").split()))
_COLORS = [(90, 90, 90), (214, 96, 16), (22, 104, 190), (34, 139, 70)]
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 50, 60


class _Canvas:
    def __init__(self, width, height):
        self.width, self.height, self.pixels = width, height, bytearray(b"\xff" * (width * height * 3))

    def dot(self, x, y, color, opacity=1.0, size=1):
        for row in range(max(int(y), 0), min(int(y) + size, self.height)):
            for column in range(max(int(x), 0), min(int(x) + size, self.width)):
                at = 3 * (row * self.width + column)
                old = self.pixels[at:at + 3]
                self.pixels[at:at + 3] = bytes(round(a + (b - a) * opacity) for a, b in zip(old, color))

    def text(self, x, y, text, color=(0, 0, 0), scale=2):
        for letter in text.upper():
            for row, bits in enumerate(_GLYPHS.get(letter, "00000")):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        self.dot(x + column * scale, y + row * scale, color, size=scale)
            x += 4 * scale

    def save(self, path):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        stride = 3 * self.width
        rows = b"".join(b"\0" + self.pixels[at:at + stride] for at in range(0, len(self.pixels), stride))
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)  # 8 bits, RGB
        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def _ticks(low, high):
    """Three to seven round numbers in [low, high]."""
    size = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if (high - low) / (size * factor) <= 6)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def line_chart(path, title, x_label, xs, lines, width=760, height=460):
    """Draws `lines`, {name: rows}, where a row has the values at one of the increasing `xs`: a line of their means on a
    band from minimum to maximum."""
    for name, rows in lines.items():
        if len(rows) != len(xs):
            raise ValueError(f"line_chart: {name!r} must have one row per x, got {len(rows)} rows and {len(xs)} xs")
    canvas, values = _Canvas(width, height), [value for rows in lines.values() for row in rows for value in row]
    low, high = min(values), max(values)
    high += 0.05 * (high - low) or 1.0
    inner_width, inner_height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def across(x):
        return _LEFT + inner_width * (x - xs[0]) / (xs[-1] - xs[0])

    def down(value):
        return _TOP + inner_height * (high - value) / (high - low)

    for tick in _ticks(low, high):
        for x in range(_LEFT, width - _RIGHT):
            canvas.dot(x, down(tick), (225, 225, 225))
        canvas.text(_LEFT - 8 * len(f"{tick:g}") - 8, down(tick) - 5, f"{tick:g}")
    for tick in _ticks(xs[0], xs[-1]):
        canvas.text(across(tick) - 4 * len(f"{tick:g}"), height - _BOTTOM + 10, f"{tick:g}")
    canvas.text(_LEFT, 12, title)
    canvas.text(width - _RIGHT - 8 * len(x_label), height - 22, x_label)
    for at, ((name, rows), color) in enumerate(zip(lines.items(), _COLORS)):
        canvas.text(_LEFT + at * inner_width // len(lines), 32, "- " + name, color)
        for x in range(_LEFT, width - _RIGHT):
            place = (x - _LEFT) / inner_width * (xs[-1] - xs[0]) + xs[0]
            after = next(i for i in range(1, len(xs)) if xs[i] >= place or i == len(xs) - 1)
            share = (place - xs[after - 1]) / (xs[after] - xs[after - 1])

            def between(function):
                first, second = down(function(rows[after - 1])), down(function(rows[after]))
                return first + share * (second - first)

            for y in range(int(between(max)), int(between(min)) + 1):
                canvas.dot(x, y, color, opacity=0.15)
            middle = between(lambda row: sum(row) / len(row))
            last = middle if x == _LEFT else last
            for y in range(int(min(last, middle)), int(max(last, middle)) + 1):
                canvas.dot(x - 1, y - 1, color, size=3)
            last = middle
    canvas.save(path)
