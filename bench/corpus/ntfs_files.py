"""Fills a mounted NTFS: ntfs_files.py FILES ROOT SEED

Copies most of the regular files below FILES to ROOT in an order of the seed's own, then removes and changes some, as
years of use do. Of a hundred files, ninety are taken whatever the seed is.
"""

import hashlib
import os
import random
import shutil
import sys
from pathlib import Path

# Of a thousand files: taken by all seeds, removed again, changed later.
COMMON, REMOVED, CHANGED = 900, 40, 20
# What Windows does not have in names.
NAMES = str.maketrans({letter: "_" for letter in '<>:"|?*\\'})


def main(files, root, seed):
    dice = random.Random(f"ntfs/{seed}")
    taken = [path for path in regular_files(files) if is_taken(path.relative_to(files), seed)]
    dice.shuffle(taken)
    there = []
    for path in taken:
        target = root / str(path.relative_to(files)).translate(NAMES)
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        os.utime(target, (path.stat().st_atime, path.stat().st_mtime))
        there.append(target)
        # Space that comes free is taken by what comes later.
        if dice.randrange(1000) < REMOVED:
            there.pop(dice.randrange(len(there))).unlink()
    for target in dice.sample(there, len(there) * CHANGED // 1000):
        with target.open("r+b") as file:
            file.seek(dice.randrange(max(1, target.stat().st_size)))
            file.write(dice.randbytes(dice.randint(1, 10_000)))


def regular_files(folder):
    found = []
    for parent, _, names in sorted(os.walk(folder)):
        paths = (Path(parent) / name for name in sorted(names))
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
    return found


def is_taken(path, seed):
    """Tells whether a file is on this seed's disk: nine of ten are on all, each other one on every second."""
    digest = hashlib.sha256(str(path).encode()).digest()
    if int.from_bytes(digest[:4], "big") % 1000 < COMMON:
        return True
    return hashlib.sha256(digest + seed.encode()).digest()[0] % 2 == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
