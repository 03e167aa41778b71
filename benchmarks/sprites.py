"""Scenes of the CC0 sprites by Kenney that the package arcade comes with."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]

CAST = "animated_characters"
SKY = (168, 214, 240)
SCENES: dict[str, tuple[tuple[int, int, int], Sequence[str]]] = {
    "adventurers": (
        (168, 214, 240),
        (
            f"{CAST}/female_adventurer/femaleAdventurer_idle",
            f"{CAST}/robot/robot_idle",
            "tiles/boxCrate",
            "tiles/grassLeft",
            "tiles/grassMid",
            "tiles/grassRight",
            "items/flagGreen1",
            "enemies/bee",
            "tiles/cactus",
        ),
    ),
    "cards": (
        (38, 96, 62),
        (
            "cards/cardSpadesQ",
            "cards/cardHeartsK",
            "cards/cardBack_blue2",
            "cards/cardClubs7",
            "cards/cardDiamondsA",
            "cards/cardBack_red4",
            "cards/cardHearts9",
            "cards/cardSpadesJ",
            "cards/cardClubsK",
        ),
    ),
    "space": (
        (18, 20, 44),
        (
            "space_shooter/playerShip1_blue",
            "space_shooter/meteorGrey_big1",
            "space_shooter/playerShip2_orange",
            "space_shooter/meteorGrey_big3",
            "space_shooter/playerShip1_green",
            "tiles/planetMid",
            "space_shooter/playerShip3_orange",
            "space_shooter/meteorGrey_big4",
            "tiles/planetLeft",
        ),
    ),
    "aliens": (
        (250, 226, 190),
        (
            "alien/alienBlue_front",
            "enemies/fishPink",
            "enemies/slimeBlock",
            "tiles/sandLeft",
            "tiles/sandMid",
            "tiles/sandRight",
            "items/gemBlue",
            "items/coinGold",
            "tiles/mushroomRed",
        ),
    ),
    "people": (
        (200, 208, 232),
        (
            f"{CAST}/female_person/femalePerson_jump",
            f"{CAST}/male_adventurer/maleAdventurer_walk1",
            f"{CAST}/zombie/zombie_walk0",
            "tiles/brickBrown",
            "tiles/dirtCliff_left",
            "tiles/snow",
            "tiles/signRight",
            "items/gemRed",
            "items/star",
        ),
    ),
    "tanks": (
        (131, 168, 84),
        (
            "topdown_tanks/tankBody_huge_outline",
            "topdown_tanks/tileGrass_roadCrossing",
            "topdown_tanks/tank_red",
            "topdown_tanks/tileGrass_roadCornerLL",
            "topdown_tanks/tankBody_bigRed",
            "topdown_tanks/tileGrass_roadEast",
            "topdown_tanks/tank_sand",
            "topdown_tanks/tileGrass_transitionE",
            "topdown_tanks/tankBody_blue",
        ),
    ),
    "hand": (
        (90, 24, 28),
        (
            "cards/cardJoker",
            "cards/cardDiamondsQ",
            "cards/cardBack_green3",
            "cards/cardSpades10",
            "cards/cardHeartsJ",
            "cards/cardClubsQ",
            "cards/cardDiamonds8",
            "cards/cardBack_blue5",
            "cards/cardHeartsA",
        ),
    ),
    "pond": (
        (120, 196, 214),
        (
            "enemies/frog",
            "enemies/ladybug",
            "enemies/fishGreen",
            "tiles/waterTop_high",
            "tiles/lavaTop_high",
            "tiles/stoneMid",
            "items/keyYellow",
            "tiles/bush",
            "enemies/mouse",
        ),
    ),
    "walkers": (
        (236, 236, 240),
        (
            f"{CAST}/male_person/malePerson_walk3",
            "enemies/wormPink",
            f"{CAST}/female_person/femalePerson_walk2",
            "tiles/doorClosed_mid",
            "tiles/lockRed",
            "tiles/torch1",
            "tiles/plantPurple",
            "tiles/switchGreen",
            "items/coinSilver",
        ),
    ),
    "harbour": (
        (214, 232, 226),
        (
            "enemies/slimePurple",
            "enemies/wormGreen",
            "alien/alienBlue_climb1",
            "tiles/bridgeA",
            "tiles/bomb",
            "tiles/boxCrate_double",
            "items/flagRed1",
            "items/coinBronze",
            "tiles/plantPurple",
        ),
    ),
    "convoy": (
        (196, 176, 128),
        (
            "topdown_tanks/tileSand_roadCrossing",
            "topdown_tanks/tank_dark",
            "topdown_tanks/treeGreen_large",
            "topdown_tanks/tank_green",
            "topdown_tanks/tileSand_roadCornerLL",
            "topdown_tanks/tankBody_darkLarge_outline",
            "topdown_tanks/treeBrown_large",
            "topdown_tanks/tracksLarge",
            "topdown_tanks/tileSand_roadEast",
        ),
    ),
    "meadow": (
        SKY,
        (
            f"{CAST}/female_adventurer/femaleAdventurer_idle",
            f"{CAST}/male_person/malePerson_walk3",
            f"{CAST}/robot/robot_idle",
            f"{CAST}/zombie/zombie_walk0",
            "enemies/bee",
            "items/flagGreen1",
            "tiles/grassLeft",
            "tiles/grassMid",
            "tiles/grassRight",
            "tiles/boxCrate",
            "tiles/bush",
            "tiles/cactus",
        ),
    ),
    "street": (
        SKY,
        (
            f"{CAST}/female_person/femalePerson_jump",
            f"{CAST}/male_adventurer/maleAdventurer_walk1",
            "alien/alienBlue_front",
            "enemies/frog",
            "enemies/ladybug",
            "items/keyYellow",
            "tiles/brickBrown",
            "tiles/dirtCliff_left",
            "tiles/snow",
            "tiles/signRight",
            "items/gemRed",
            "items/star",
        ),
    ),
}
"""The colour behind the sprites of each scene, and their files."""


def scene(name: str, columns: int, step: int, *, stand: bool = False) -> Pixels:
    """Sprites row by row, each amid a cell of `step` pixels, or standing on its lower edge.

    They are as they are, without a resize that would make them smooth: what is beyond is cut off.
    """
    sky, names = SCENES[name]
    drawn = Image.new("RGB", (columns * step, -(-len(names) // columns) * step), sky)
    for index, each in enumerate(names):
        image = sprite(each)
        x, y = index % columns * step, index // columns * step
        down = step - image.height
        drawn.paste(
            image, (x + (step - image.width) // 2, y + (down if stand else down // 2)), image
        )
    return np.asarray(drawn)


def sprite(name: str) -> Image.Image:
    """A sprite by its file, as RGBA."""
    path = package("arcade") / "resources" / "assets" / "images" / f"{name}.png"
    return Image.open(path).convert("RGBA")


def package(name: str) -> Path:
    """A package's folder, without running it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        # arcade's own requirements exclude the Pillow that this project needs; only its pictures
        # are read.
        wanted = "--no-deps arcade==3.3.3" if name == "arcade" else '-e ".[bench]"'
        raise SystemExit(f"{name} is missing: pip install {wanted}")
    return Path(spec.submodule_search_locations[0])
