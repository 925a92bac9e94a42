#!/usr/bin/env python3
"""Makes an image as a pool meets them: unique, repeated and zero runs of blocks.

    make_image.py FILE MIB SEED

The same seed makes the same image, and images of different seeds have their
repeated blocks in common.
"""

import random
import sys

RUN_BYTES = 64 << 10
SHARED_RUNS = [random.Random(f"shared {number}").randbytes(RUN_BYTES) for number in range(64)]


def main():
    path, mib, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    chance = random.Random(f"image {seed}")
    with open(path, "wb") as image:
        for offset in range(0, mib << 20, RUN_BYTES):
            kind = chance.random()
            if kind < 0.3:
                continue
            image.seek(offset)
            image.write(chance.choice(SHARED_RUNS) if kind < 0.6 else chance.randbytes(RUN_BYTES))
        image.truncate(mib << 20)


if __name__ == "__main__":
    main()
