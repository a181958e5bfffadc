"""Draws the book's pictures: python3 docs/drawings [--check], into docs/src/img, or compares."""

import sys
from pathlib import Path

import ideas
import parts
import products
import study

IMAGES = Path(__file__).resolve().parent.parent / "src/img"

stale = []
for module in (ideas, products, study, parts):
    for name, draw in module.DRAWINGS.items():
        path, svg = IMAGES / f"{name}.svg", draw().svg()
        if "--check" not in sys.argv:
            path.write_text(svg)
        elif not path.exists() or path.read_text() != svg:
            stale.append(f"{path}:1: not what docs/drawings draws: `make drawings`")
sys.exit("\n".join(stale) or 0)
