"""Makes the two example pictures beside this file: a flat-colour drawing and a photo-like scene."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Array = NDArray[np.float64]
WIDTH, HEIGHT, INK = 240, 160, "#3a2438"

# A girl and a cat by a signpost, from back to front, as "kind colour line-width path|path ...;":
# a path is the points "x,y" of a curve (a point written twice is a corner) or an oval "x,y,rx,ry".
DRAWING = """
oval #fff3b8 1 207,26,15,15; oval #ffffff 1
150,34,9,7|18,46,9,7|162,29,11,9|30,41,11,9|175,33,9,7|43,45,9,7|185,37,6,5|53,49,6,5|141,38,5,4|9,50,5,4;
fill #8ccf86 1 -9,118 30,104 70,112 130,104 190,92 250,108 250,180 -9,180; fill #5fb06c 1 -9,140
60,132 150,130 250,126 250,180 -9,180; hair #2f7448 .8 5,154 4,143|8,154 9,147 12,141|19,154
18,143|22,154 23,147 26,141|152,154 151,143|156,154 157,147 160,141; fill #a8744f 1.3 173,88 173,88
179,88 179,88 179,148 179,148 173,148 173,148; fill #f2ddb0 1.6 154,52 154,52 222,48 222,48 223,86
223,86 155,89 155,89; line #3a2438 1 160,60 168,59|164,57 163,71|160,66 169,65|173,59 181,58|177,58
174,70|177,62 182,70|186,58 186,69|186,58 193,58 193,58 193,69|186,63 193,63|186,69 193,69|197,60
205,59|201,56 201,70|197,69 201,62 205,69|209,57 216,56 210,68|210,61 216,67; line #3a2438 .5 161,76
163,74 165,76 167,74 171,76|176,76 178,73 180,76 185,74|190,74 193,76 195,73 197,76|202,75 205,73
207,75 209,73 213,75; line #c0504d .6 161,83 214,80; fill #c9587a 1.3 92,14 124,24 138,58 137,100
146,140 140,180 44,180 38,140 47,100 46,58 60,24; fill #f5c9ae 1 82,112 82,128 70,138 92,158 114,138
102,128 102,112; fill #ffffff 1.3 40,180 48,150 72,135 72,135 92,156 92,156 112,135 112,135 136,150
144,180; fill #39508f 1.3 50,170 58,146 73,133 73,133 92,155 92,155 88,180 88,180|134,170 126,146
111,133 111,133 92,155 92,155 96,180 96,180; line #ffffff .7 58,162 63,147 73,138 88,156|126,162
121,147 111,138 96,156; hair #8c2f55 .6 46,116 43,136 50,164|138,112 141,136 134,164|132,118 135,140
130,150; fill #fde3cd 1.3 92,40 118,54 126,80 122,100 108,117 92,125 76,117 62,100 58,80 66,54; fill
#f0c0a8 0 62,76 66,60 92,50 118,60 122,76 92,68; oval #f9b9ad 1 71,105,6.5,3.2|113,105,6.5,3.2; hair
#e07f7f .6 67,107 69,103|70,107 72,103|73,107 75,103|109,107 111,103|112,107 114,103|115,107
117,103; fill #ffffff 0 68,90 76,83 84,90 82,99 76,102 70,99|100,90 108,83 116,90 114,99 108,102
102,99; oval #2b3f86 1 76,92,6,9|108,92,6,9; oval #4c86d6 1 76,94.5,5,6.5|108,94.5,5,6.5; oval
#8fd3f4 1 76,98,3.6,3|108,98,3.6,3; oval #1b2050 1 76,92,2.4,4|108,92,2.4,4; oval #ffffff 1
73.6,87.5,2.2,2.6|105.6,87.5,2.2,2.6; hair #3a2438 2.2 85,92 83,86 76,82.5 69,85 66,90 64,90|99,92
101,86 108,82.5 115,85 118,90 120,90; hair #3a2438 .7 72,101.5 76,102.5 80,101.5|104,101.5 108,102.5
112,101.5; hair #a86a60 .7 69,80 76,77.5 83,80|101,80 108,77.5 115,80|92,103 90.5,106 92,106.5; fill
#d8606a .8 86,111 86,111 92,112 98,111 98,111 92,118; fill #e8789a 1.3 92,12 122,22 136,54 132,92
126,112 126,112 124,84 117,64 117,64 113,84 113,84 105,60 105,60 97,82 97,82 92,60 92,60 82,84 82,84
79,60 79,60 68,80 68,80 67,64 60,84 58,112 58,112 52,92 48,54 62,22; fill #fbb9cb 0 58,46 76,34
92,31 110,34 127,46 127,46 120,43 116,48 116,48 110,40 104,44 104,44 98,37 90,43 90,43 84,38 76,45
76,45 72,41 66,48 66,48; hair #8c2f55 .8 92,14 84,34 83,62|93,14 101,36 104,58|90,14 70,30
66,60|94,14 116,32 118,62|56,60 53,80 56,104|129,60 132,80 128,104; hair #3a2438 1.3 92,13 98,5
106,6; fill #ffd34d 1.3 120,26 134,12 142,18 138,32|118,28 106,18 102,28 108,38; oval #3a2438 1
119,27,4.2,4.2; oval #f7a823 1 119,27,2.9,2.9; line #3a2438 5 214,149 228,146 232,134 226,126; line
#f6efe6 2.6 214,149 228,146 232,134 226,126; fill #f6efe6 1.3 193,126 211,126 219,140 219,153
219,153 185,153 185,153 185,140|182,117 183,109 183,94 183,94 194,103 210,103 221,94 221,94 221,109
222,117 214,128 202,130 190,128; fill #f0a860 0 185,107 185,98 185,98 192,104 192,104|219,107 219,98
219,98 212,104 212,104; oval #3a2438 1 194,115,2.2,3|210,115,2.2,3; oval #ffffff 1
193.4,114,.8,.9|209.4,114,.8,.9; line #3a2438 .7 197,120 199,123 202,120 205,123 207,120; hair
#3a2438 .8 198,153 199,144|206,153 205,144; hair #3a2438 .6 188,119 178,117|188,122 178,123|216,119
226,117|216,122 226,123;
"""


def drawn() -> Image.Image:
    """The drawing, on a canvas four times as fine and then reduced."""
    image = Image.new("RGB", (WIDTH * 4, HEIGHT * 4), "#a9dcf2")
    draw, t = ImageDraw.Draw(image), np.linspace(0, 1, 100)[:, None]
    for command in DRAWING.split(";")[:-1]:
        kind, colour, width, paths = command.split(maxsplit=3)
        for path in paths.split("|"):
            p = np.array([point.split(",") for point in path.split()], dtype=np.float64) * 4
            at, radius = p[:, :2], p[:, 2:]
            if kind != "oval":  # A Catmull-Rom curve; a hair is thin at both ends.
                p = np.vstack([p[-1:], p, p[:2]] if kind == "fill" else [p[:1], p, p[-1:]])
                a, b, c, d = p[:-3, None], p[1:-2, None], p[2:-1, None], p[3:, None]
                bend = (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3
                at = (b + ((c - a) * t + bend) / 2)[(b != c).any(axis=(1, 2))].reshape(-1, 2)
                swell = 0.2 + 0.8 * np.sin(np.linspace(0, np.pi, len(at))[:, None]) ** 0.7
                radius = float(width) * 2 * (swell if kind == "hair" else np.ones_like(swell))
            if kind == "fill":
                draw.polygon([(x, y) for x, y in at], fill=colour)
            for x1, y1, x2, y2 in np.hstack([at - radius, at + radius]) if width != "0" else ():
                draw.ellipse((x1, y1, x2, y2), fill=INK if kind == "fill" else colour)
    return image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def fractal(x: Array, y: Array, octaves: int, ridged: bool = False) -> Array:
    """Fractal value noise between 0 and 1."""
    lattice, total = np.random.default_rng(7).random((256, 256)), np.zeros(np.shape(x + y))
    for octave in range(octaves):
        i, j = np.floor(x).astype(int), np.floor(y).astype(int)
        u, v = (t * t * (3 - 2 * t) for t in (x - i, y - j))
        a, b, c, d = (lattice[p & 255, q & 255] for p in (i, i + 1) for q in (j, j + 1))
        noise = (a + (b - a) * v) * (1 - u) + (c + (d - c) * v) * u
        total += (1 - np.abs(2 * noise - 1) if ridged else noise) / 2**octave
        x, y = 1.6 * x + 1.2 * y + 17.3, 1.6 * y - 1.2 * x + 5.1
    return total / (2 - 2.0 ** (1 - octaves))


def ground(x: Array, z: Array) -> Array:
    """Height above the lake: mountains far away, wooded hills before them, a near shore."""
    hills = fractal(x / 6 + 40, z / 6, 7) * 3.5 * np.clip((z - 24) / 10, 0, 1) - 0.6
    peaks = (fractal(x / 26, z / 26, 6, ridged=True) - 0.42) * 40 * np.clip((z - 30) / 50, 0, 1)
    shore = np.clip((6.5 - z - 1.1 * x) / 4, 0, 1) * (0.6 + fractal(x * 2.5, z * 2.5, 7) * 0.5)
    return np.asarray(hills + peaks + shore)


def photo() -> Image.Image:
    """A lake under mountains, painted slice by slice from far to near at twice the size."""
    focal, horizon, bank, eye = 456, 150, 170, 1.3
    rows, columns = np.mgrid[: HEIGHT * 2, : WIDTH * 2]
    u, up = columns[:1] / focal - 0.53, (horizon - rows) / focal
    # The sky, its clouds on a plane.
    reach, fade = 1 / (np.maximum(up, 0) + 0.12), np.exp(-6 * np.maximum(up, 0))[..., None]
    cloud = fractal(u * reach * 0.9 + 3, reach * 1.5, 7)[..., None]
    picture = fade * [0.95, 0.87, 0.78] + (1 - fade) * [0.14, 0.34, 0.68]
    cover = np.clip((cloud - 0.5) * 5, 0, 0.9) * (1 - fade**2)
    picture += cover * ([1.25, 1.2, 1.15] - np.clip((cloud - 0.6) * 2, 0, 0.4) - picture)
    # The ground, lit and shadowed, in haze.
    z, sun = np.geomspace(2.2, 110, 800)[:, None], (-0.76, 0.52, -0.38)
    x, e, h = z * u, z * 0.002, ground(z * u, z)
    normal = np.stack([h - ground(x + e, z), e + 0 * h, h - ground(x, z + e)])
    normal /= np.sqrt((normal**2).sum(0))
    light, flat = np.clip(np.tensordot(sun, normal, 1), 0, 1), normal[1]
    for s in np.geomspace(0.15, 12, 9):
        rise = (ground(x + sun[0] * s, z + sun[2] * s) - h) / s - sun[1]
        light *= 1 - np.clip(rise / 0.15, 0, 1)
    grain, patch = 0.5 + fractal(x * 6, z * 6, 6)[..., None], fractal(x, z, 5) - 0.5
    wood = np.clip((flat + patch - 0.5) * 6 - np.maximum(h - 5, 0), 0, 1)[..., None]
    snow = np.clip(np.minimum((h - 8 + 4 * patch) * 0.8, (flat - 0.4) * 5), 0, 1)[..., None]
    colour = [0.42, 0.37, 0.33] + wood * [-0.29, -0.20, -0.27]
    colour = grain * (colour + snow * ([0.76, 0.78, 0.80] - colour))
    colour *= light[..., None] * [2.1, 1.8, 1.45] + [0.22, 0.29, 0.4]
    colour += (1 - np.exp(-z / 130))[..., None] * ([0.80, 0.83, 0.88] - colour)
    for k in range(len(z) - 1, -1, -1):
        if z[k] > 10 >= z[k - 1]:  # The lake, a rippled mirror of all beyond it.
            below = np.maximum(rows - horizon, 1)
            wave = fractal(u * eye * focal / below * 3, eye * focal / below * 7, 5) - 0.5
            source = 2 * bank - rows + wave * np.clip(below / 2, 0, 50)
            clear = 0.85 * np.exp(-below / 160)[..., None]
            lake = picture[np.clip(source, 0, bank - 1).astype(int), columns] * clear
            picture[bank:] = (lake + (1 - clear) * [0.04, 0.11, 0.13])[bank:]
        hit = (up <= (h[k] - eye) / z[k]) & (h[k] > 0)
        picture[hit] = np.broadcast_to(colour[k], picture.shape)[hit]
    # The camera: film curve, near blur, sensor noise.
    image = Image.fromarray((255 - 255 * np.exp(-1.8 * picture)).astype(np.uint8))
    near = Image.fromarray(np.clip((rows - 270) * 5, 0, 255).astype(np.uint8))
    image.paste(image.filter(ImageFilter.GaussianBlur(2)), mask=near)
    noisy = np.random.default_rng(11).normal(np.asarray(image.reduce(2)), 2.2)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


if __name__ == "__main__":
    drawn().save(Path(__file__).with_name("drawn.png"), optimize=True)
    photo().save(Path(__file__).with_name("photo.jpg"), quality=75)
