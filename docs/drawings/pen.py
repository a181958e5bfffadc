"""A pen for the book's drawings: SVG of 480 units' width, in light and dark, legible at 350 px."""

from html import escape

WIDTH = 480
SIZES = {"": 14, "b": 14, "m": 13}
# Mean width of a character, in em, in the widest of the fonts (DejaVu Sans).
ADVANCE = {"": 0.58, "b": 0.65, "m": 0.58}

STYLE = """
svg{--ink:#1c222b;--soft:#566070;--ground:#fff;--card:#f1f4f8;--edge:#b9c1cc;
--blue:#1f5fbf;--orange:#b85400;--green:#1b7a48;--red:#b3261e}
@media(prefers-color-scheme:dark){svg{--ink:#e6e9ee;--soft:#a3adba;--ground:#161b22;--card:#232b35;
--edge:#4d5866;--blue:#7fb2ff;--orange:#ffa657;--green:#66d19a;--red:#ff8a80}}
text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink)}
.b{font-weight:600}.m{font-size:13px;fill:var(--soft)}
.on{fill:var(--ground);font-weight:600}
.box{fill:var(--card);stroke:var(--edge)}.line{stroke:var(--ink);stroke-width:1.5;fill:none}
.thin{stroke:var(--edge);fill:none}.dash{stroke-dasharray:5 4}
"""


class Drawing:
    def __init__(self, title, height):
        self.title, self.height, self.parts, self.texts = title, height, [], []

    def put(self, part):
        self.parts.append(part)

    def text(self, x, y, words, style="", anchor="start", colour=None, on=False):
        """A line of text; an error if it leaves the drawing or lies on another."""
        width = len(words) * SIZES[style] * ADVANCE[style]
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        place = (left, y - SIZES[style] * 0.75, left + width, y + SIZES[style] * 0.2)
        assert left >= 0 and place[2] <= WIDTH, f"{self.title}: `{words}` leaves the drawing"
        assert 0 < place[1] and place[3] < self.height, f"{self.title}: `{words}` is too low or high"
        for other, words2 in self.texts:
            apart = place[2] <= other[0] or other[2] <= place[0] or place[3] <= other[1] or other[3] <= place[1]
            assert apart, f"{self.title}: `{words}` lies on `{words2}`"
        self.texts.append((place, words))
        fill = f' style="fill:var(--{colour})"' if colour else ""
        named = " ".join(filter(None, [style, "on" if on else ""]))
        of = f' class="{named}"' if named else ""
        put = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.put(f'<text x="{x:g}" y="{y:g}"{put}{of}{fill}>{escape(words)}</text>')

    def box(self, x, y, w, h, *words, colour=None, style="b", dash=False):
        """A box with centred lines of text, the first in `style`; an error if one is too wide."""
        edge = f' style="stroke:var(--{colour});stroke-width:2"' if colour else ""
        self.put(f'<rect class="box{" dash" if dash else ""}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6"{edge}/>')
        words = [line for line in words if line]
        for at, line in enumerate(words):
            of = style if at == 0 else "m"
            assert len(line) * SIZES[of] * ADVANCE[of] <= w - 4, f"{self.title}: `{line}` leaves its box"
            self.text(x + w / 2, y + h / 2 + 5 + (at - (len(words) - 1) / 2) * 17, line, of, "middle")

    def arrow(self, *points, colour="ink", dash=False, both=False):
        """A line through points with a head at its end, or at both."""
        way = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        style = f' style="stroke:var(--{colour})"' if colour != "ink" else ""
        self.put(f'<path class="line{" dash" if dash else ""}" d="{way}"{style}/>')
        for (x, y), (from_x, from_y) in [(points[-1], points[-2])] + ([(points[0], points[1])] if both else []):
            length = ((x - from_x) ** 2 + (y - from_y) ** 2) ** 0.5
            dx, dy = (x - from_x) / length, (y - from_y) / length
            back = (x - 8 * dx, y - 8 * dy)
            self.put(f'<path d="M{x:g} {y:g} L{back[0] - 4 * dy:.1f} {back[1] + 4 * dx:.1f} '
                     f'L{back[0] + 4 * dy:.1f} {back[1] - 4 * dx:.1f} z" style="fill:var(--{colour})"/>')

    def line(self, *points, colour=None, dash=False, thin=False):
        way = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        style = f' style="stroke:var(--{colour})"' if colour else ""
        self.put(f'<path class="{"thin" if thin else "line"}{" dash" if dash else ""}" d="{way}"{style}/>')

    def bar(self, x, y, w, h, colour, words=None):
        """A filled bar with a word on it."""
        self.put(f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="3" style="fill:var(--{colour})"/>')
        if words:
            self.text(x + w / 2, y + h / 2 + 5, words, "b", "middle", on=True)

    def packet(self, x, y, toll, colour="orange"):
        """A packet with its toll."""
        self.put(f'<rect class="box" x="{x:g}" y="{y:g}" width="46" height="22" rx="3"/>')
        self.bar(x, y, 30, 22, colour, toll)

    def queue(self, x, y, packets, of, colour="orange"):
        """A queue with room for `of` packets, filled from the right."""
        self.put(f'<rect class="box" x="{x:g}" y="{y:g}" width="{of * 13 + 5:g}" height="26" rx="3"/>')
        for at in range(of - packets, of):
            self.bar(x + 4 + at * 13, y + 4, 10, 18, colour)

    def dot(self, x, y, colour="red", r=5):
        self.put(f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" style="fill:var(--{colour})"/>')

    def svg(self):
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="600" '
            f'height="{self.height * 1.25:g}" role="img">\n<title>{escape(self.title)}</title>\n'
            f"<style>{STYLE}</style>\n"
            f'<rect width="{WIDTH}" height="{self.height}" rx="8" style="fill:var(--ground)"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )
