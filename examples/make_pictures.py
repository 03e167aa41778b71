"""Makes the two example pictures beside this file: a flat-colour drawing and a photo-like scene."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Array = NDArray[np.float64]
WIDTH, HEIGHT = 240, 160
INK = "#3a2438"


class Canvas:
    """Draws curves in final pixels, on a canvas four times as fine; points read "x,y x,y ..."."""

    def __init__(self, background: str) -> None:
        self.image = Image.new("RGB", (WIDTH * 4, HEIGHT * 4), background)
        self.draw = ImageDraw.Draw(self.image)

    @staticmethod
    def curve(points: str, closed: bool) -> Array:
        """A Catmull-Rom curve through the points; a point written twice makes a corner."""
        p = np.array([pair.split(",") for pair in points.split()], dtype=np.float64) * 4
        p = np.vstack([p[-1:], p, p[:2]]) if closed else np.vstack([p[:1], p, p[-1:]])
        t = np.linspace(0, 1, 40)[:, None]
        a, b, c, d = p[:-3, None], p[1:-2, None], p[2:-1, None], p[3:, None]
        bend = (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3
        return np.asarray((2 * b + (c - a) * t + bend) / 2).reshape(-1, 2)

    def stroke(self, points: str, width: float, ink: str = INK, taper: bool = True) -> None:
        self._trace(self.curve(points, closed=False), width, ink, taper)

    def shape(self, points: str, fill: str, width: float = 1.3, ink: str = INK) -> None:
        path = self.curve(points, closed=True)
        self.draw.polygon([(x, y) for x, y in path], fill=fill)
        self._trace(path, width, ink, taper=False)

    def oval(self, x: float, y: float, rx: float, ry: float, fill: str) -> None:
        self.draw.ellipse(((x - rx) * 4, (y - ry) * 4, (x + rx) * 4, (y + ry) * 4), fill=fill)

    def _trace(self, path: Array, width: float, ink: str, taper: bool) -> None:
        if width:
            for (x, y), t in zip(path, np.linspace(0, 1, len(path)), strict=True):
                r = width * 2 * (np.sin(np.pi * t) ** 0.7 * 0.8 + 0.2 if taper else 1)
                self.draw.ellipse((x - r, y - r, x + r, y + r), fill=ink)


def drawn() -> Image.Image:
    """A girl and a cat by a signpost."""
    c = Canvas("#a9dcf2")
    c.oval(207, 26, 15, 15, "#fff3b8")
    for x, y in ((150, 34), (18, 46)):
        for dx, dy, r in ((0, 0, 9), (12, -5, 11), (25, -1, 9), (35, 3, 6), (-9, 4, 5)):
            c.oval(x + dx, y + dy, r, r * 0.8, "#ffffff")
    c.shape("-9,118 30,104 70,112 130,104 190,92 250,108 250,180 -9,180", "#8ccf86", 1)
    c.shape("-9,140 60,132 150,130 250,126 250,180 -9,180", "#5fb06c", 1)
    for x in (8, 22, 35, 150, 163, 222, 233):
        c.stroke(f"{x - 3},152 {x - 2},146 {x - 4},142", 0.8, "#2f7448")
        c.stroke(f"{x},152 {x + 1},145 {x + 4},140", 0.8, "#2f7448")
    # The signpost, with marks that look like writing.
    c.shape("187,90 187,90 193,90 193,90 193,150 193,150 187,150 187,150", "#a8744f")
    c.shape("158,60 158,60 224,56 224,56 225,92 225,92 159,95 159,95", "#f2ddb0", 1.6)
    marks = "164,67 172,66|168,64 167,77|164,73 173,72|177,66 185,65|181,65 178,76|181,69 186,76|"
    marks += "190,65 190,75|190,65 197,65 197,75|190,70 197,70|190,75 197,75|201,66 209,65|"
    marks += "205,63 205,76|201,75 205,69 209,75|213,64 219,63 214,74|214,68 220,73"
    for mark in marks.split("|"):
        c.stroke(mark, 1, taper=False)
    for i in range(17):
        c.stroke(f"{165 + i * 3.2},{83 - i * 0.18} {166.6 + i * 3.2},{83 - i % 3}", 0.5)
    c.stroke("165,89 218,86", 0.6, "#c0504d", taper=False)
    # Behind the face: long hair, neck, sailor collar.
    c.shape(
        "92,14 124,24 138,58 137,100 146,140 140,170 44,170 38,140 47,100 46,58 60,24", "#c9587a"
    )
    c.shape("82,112 82,128 70,138 92,154 114,138 102,128 102,112", "#f5c9ae", 1)
    c.shape("40,172 48,150 72,135 72,135 92,156 92,156 112,135 112,135 136,150 144,172", "#fdfcff")
    c.shape("52,166 58,146 74,133 74,133 92,154 92,154 90,166 90,166 74,154", "#39508f", 1.2)
    c.shape("132,166 126,146 110,133 110,133 92,154 92,154 94,166 94,166 110,154", "#39508f", 1.2)
    c.stroke("59,158 64,147 74,139 90,158", 0.6, "#ffffff", taper=False)
    c.stroke("125,158 120,147 110,139 94,158", 0.6, "#ffffff", taper=False)
    # The face.
    c.shape("92,40 118,54 126,80 122,100 108,117 92,125 76,117 62,100 58,80 66,54", "#fde3cd")
    c.shape("62,76 66,60 92,50 118,60 122,76 92,68", "#f0c0a8", 0)
    for side, x in ((-1, 76), (1, 108)):
        c.oval(x + side * 5, 105, 6.5, 3.2, "#f9b9ad")
        for dx in (-3, 0, 3):
            c.stroke(f"{x + side * 5 + dx - 1},107 {x + side * 5 + dx + 1},103", 0.5, "#e07f7f")
        c.shape(f"{x - 8},90 {x},83 {x + 8},90 {x + 6},99 {x},102 {x - 6},99", "#ffffff", 0)
        c.oval(x, 92, 6, 9, "#2b3f86")
        c.oval(x, 94.5, 5, 6.5, "#4c86d6")
        c.oval(x, 98, 3.6, 3, "#8fd3f4")
        c.oval(x, 92, 2.4, 4, "#1b2050")
        c.oval(x - 2.4, 87.5, 2.2, 2.6, "#ffffff")
        c.oval(x + 2.6, 96.5, 1.1, 1.3, "#ffffff")
        lash = (-9, 92), (-7, 86), (0, 82.5), (7, 85), (10, 90), (12, 90)
        c.stroke(" ".join(f"{x + side * dx},{y}" for dx, y in lash), 2.2)
        c.stroke(f"{x - 4},101.5 {x},102.5 {x + 4},101.5", 0.7)
        c.stroke(f"{x - 7},80 {x},77.5 {x + 7},80", 0.6, "#a86a60")
        c.stroke(f"{x - 8},73 {x},{70 - side} {x + 8},73", 1.2, "#7a2f4c")
    c.stroke("92,103 90.5,106 92,106.5", 0.7, "#a86a60")
    c.shape("86,111 86,111 92,112 98,111 98,111 92,118", "#d8606a", 0.8)
    # The fringe, its highlight, strands and side locks.
    fringe = "92,12 122,22 136,54 132,92 126,112 126,112 124,84 117,64 117,64 113,84 113,84 105,60 "
    fringe += "105,60 97,82 97,82 92,60 92,60 82,84 82,84 79,60 79,60 68,80 68,80 67,64 60,84 "
    c.shape(fringe + "58,112 58,112 52,92 48,54 62,22", "#e8789a")
    gleam = "58,46 76,34 92,31 110,34 127,46 120,43 116,48 110,40 104,44 98,37 90,43 84,38 76,45 "
    c.shape(gleam + "72,41 66,48", "#fbb9cb", 0)
    for line in (
        "92,14 84,34 83,62",
        "93,14 101,36 104,58",
        "90,14 70,30 66,60",
        "94,14 116,32 118,62",
    ):
        c.stroke(line, 0.7, "#8c2f55")
    for line in ("56,60 53,80 56,104", "129,60 132,80 128,104", "46,112 43,136 50,164"):
        c.stroke(line, 0.7, "#8c2f55")
    for line in ("138,112 141,136 134,164", "132,118 135,140 130,150", "52,118 49,140 56,150"):
        c.stroke(line, 0.6, "#8c2f55")
    c.stroke("92,13 98,5 106,6", 1.1)
    c.shape("120,26 134,12 142,18 138,32", "#ffd34d", 1.2)
    c.shape("118,28 106,18 102,28 108,38", "#ffd34d", 1.2)
    c.oval(119, 27, 4.2, 4.2, INK)
    c.oval(119, 27, 2.9, 2.9, "#f7a823")
    # The cat.
    c.stroke("216,146 230,142 232,128 226,122", 5.6, INK)
    c.stroke("216,146 230,142 232,128 226,122", 3.6, "#f6efe6")
    c.shape("194,120 210,120 220,138 218,152 186,152 184,138", "#f6efe6")
    c.stroke("199,151 200,142", 0.8)
    c.stroke("206,151 205,142", 0.8)
    c.shape(
        "186,112 184,95 184,95 194,102 210,102 220,95 220,95 218,112 214,123 202,127 190,123",
        "#f6efe6",
    )
    c.shape("187,106 186,99 186,99 193,104 192,108", "#f0a860", 0)
    c.shape("217,106 218,99 218,99 210,104 212,112", "#f0a860", 0)
    for x in (195, 209):
        c.oval(x, 113, 2.2, 3, INK)
        c.oval(x - 0.6, 112, 0.8, 0.9, "#ffffff")
    c.stroke("197,118 199,121 202,118 205,121 207,118", 0.8, taper=False)
    for y in (116, 119):
        c.stroke(f"190,{y} 180,{y * 2 - 118}", 0.5)
        c.stroke(f"214,{y} 224,{y * 2 - 118}", 0.5)
    return c.image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    here = Path(__file__).parent
    drawn().save(here / "drawn.png", optimize=True)
