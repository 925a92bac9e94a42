#!/usr/bin/env python3
"""Puts real disks through an archive, and kills the verbs of one.

    trial.py [--parts LIST] [--images FILE...] [--seconds N | --kills N] [--no-boot] [--seed N] [--folder PATH]

    disks   each image is captured and installed over noise; its file systems are checked, and all files compared.
            Those of Debian 12 with a boot loader boot in QEMU
    kills   captures, removals, installations, and collections and repairs where the program has them, are killed

Parts of LIST are separated by commas. What is drawn depends on the seed, the part and the number of the round. Needs
root and loop devices. ONEFOLD names the binary. Exit codes: 0 all is well, 1 it is not, 2 wrong usage.
"""

import argparse
import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from disks import Disks, can_boot
from kills import Kills
from lib import Failed

PARTS = ("disks", "kills")
KILLS_EACH_ROUND = 25


class Trial:
    """The parts that were asked for."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.counts = collections.Counter()
        self.where = "before the first part"
        self.began = time.monotonic()

    def dice(self, *parts):
        """Returns what a part draws from, whatever the others draw."""
        return random.Random("/".join(map(str, (self.options.seed, *parts))))

    def run(self):
        for part in self.options.parts:
            folder = self.folder / part
            folder.mkdir()
            getattr(self, part)(folder)
            shutil.rmtree(folder)

    def disks(self, folder):
        disks = Disks(self.options.onefold, folder, self.dice("disks"), self.counts)
        for image in self.options.images:
            self.where = f"disks, {image.name}"
            disks.trip(image, not self.options.no_boot and can_boot(image))
            self.say()
        self.where = "disks, the whole archive"
        disks.finish()

    def kills(self, folder):
        number = 0
        kills = Kills(self.options.onefold, folder, self.dice("kills", "sources"), self.counts)
        while self.counts["kills"] < self.options.kills and not self.is_over():
            self.where = f"kills, round {number}"
            kills.dice = self.dice("kills", number)
            kills.round(KILLS_EACH_ROUND)
            number += 1
            self.say()

    def is_over(self):
        return time.monotonic() - self.began >= self.options.seconds

    def say(self):
        names = ["images", "file systems", "files", "boots", "second tries", "kills", "ends", "entries", "looks"]
        counted = ", ".join(f"{self.counts[name]} {name}" for name in names)
        print(f"images: {counted}; {time.monotonic() - self.began:.0f} s", flush=True)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), type=lambda text: text.split(","))
    parser.add_argument("--images", type=Path, nargs="+", default=[], metavar="FILE", help="raw images, for `disks`")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no round of kills begins after so many")
    parser.add_argument("--kills", type=int, default=300, help="no round of kills begins after so many kills")
    parser.add_argument("--no-boot", action="store_true", help="boot nothing")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on a disk with 6 GiB")
    parser.add_argument("--onefold", default=os.environ.get("ONEFOLD"), help="the binary ($ONEFOLD)")
    options = parser.parse_args(words)
    if not options.onefold:
        parser.error("a binary is needed")
    if set(options.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    absent = [str(image) for image in options.images if not image.is_file()]
    if absent or ("disks" in options.parts and not options.images):
        parser.error(f"there is no image {', '.join(absent)}" if absent else "`disks` needs --images")
    return options


def main():
    options = parse(sys.argv[1:])
    # All that is mounted goes, however the trial is ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="images.", dir=options.folder))
    trial = Trial(options, folder)
    try:
        trial.run()
    except Failed as failed:
        print(f"seed {options.seed}, {trial.where}: {failed}\n{folder} is kept", file=sys.stderr)
        return 1
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
