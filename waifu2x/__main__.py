"""`python -m waifu2x`."""

from waifu2x.cli import main

main()
