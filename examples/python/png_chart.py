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
        body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + body)


def _ticks(low, high):
    """Three to seven round numbers in [low, high]."""
    size = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if (high - low) / (size * factor) <= 6)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


class _Plot:
    """The area inside of the axes."""

    def __init__(self, canvas, xs, low, high):
        self.canvas, self.xs, self.low, self.high = canvas, xs, low, high
        self.columns = range(_LEFT, canvas.width - _RIGHT)

    def column(self, x):
        return _LEFT + len(self.columns) * (x - self.xs[0]) / (self.xs[-1] - self.xs[0])

    def row(self, value):
        return _TOP + (self.canvas.height - _TOP - _BOTTOM) * (self.high - value) / (self.high - self.low)

    def draw_axes(self):
        for tick in _ticks(self.low, self.high):
            for column in self.columns:
                self.canvas.dot(column, self.row(tick), (225, 225, 225))
            self.canvas.text(_LEFT - 8 * len(f"{tick:g}") - 8, self.row(tick) - 5, f"{tick:g}")
        for tick in _ticks(self.xs[0], self.xs[-1]):
            at = self.column(tick) - 4 * len(f"{tick:g}")
            self.canvas.text(at, self.canvas.height - _BOTTOM + 10, f"{tick:g}")

    def at(self, column, values):
        """The row of a curve at a column, between two of its values."""
        after = next(i for i in range(1, len(self.xs)) if self.column(self.xs[i]) >= column)
        left, right = self.column(self.xs[after - 1]), self.column(self.xs[after])
        share = (column - left) / (right - left)
        return self.row(values[after - 1] + share * (values[after] - values[after - 1]))

    def draw_line(self, rows, color):
        highest, lowest, means = [[f(row) for row in rows] for f in (max, min, lambda row: sum(row) / len(row))]
        last = self.row(means[0])
        for column in self.columns:
            for row in range(int(self.at(column, highest)), int(self.at(column, lowest)) + 1):
                self.canvas.dot(column, row, color, opacity=0.15)
            here = self.at(column, means)
            for row in range(int(min(last, here)), int(max(last, here)) + 1):
                self.canvas.dot(column - 1, row - 1, color, size=3)
            last = here


def line_chart(path, title, x_label, xs, lines, width=760, height=460):
    """Draws up to four `lines`, {name: rows}, where a row has the values at one of the increasing `xs`: a line of their
    means on a band from minimum to maximum."""
    for name, rows in lines.items():
        if len(rows) != len(xs):
            raise ValueError(f"line_chart: {name!r} must have one row per x, got {len(rows)} rows and {len(xs)} xs")
    values = [value for rows in lines.values() for row in rows for value in row]
    margin = 0.05 * (max(values) - min(values)) or 1.0
    canvas = _Canvas(width, height)
    plot = _Plot(canvas, xs, min(values), max(values) + margin)
    plot.draw_axes()
    canvas.text(_LEFT, 12, title)
    canvas.text(width - _RIGHT - 8 * len(x_label), height - 22, x_label)
    for at, ((name, rows), color) in enumerate(zip(lines.items(), _COLORS)):
        canvas.text(_LEFT + at * len(plot.columns) // len(lines), 32, "- " + name, color)
        plot.draw_line(rows, color)
    canvas.save(path)
