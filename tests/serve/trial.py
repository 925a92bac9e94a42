#!/usr/bin/env python3
"""Has a server send images to up to sixteen machines, over networks that fail in every way.

    trial.py [--cases LIST] [--seconds N] [--kills N] [--boot IMAGE] [--seed N] [--folder PATH]

Server and machines are processes in network namespaces of their own, with a bridge or a switch in one more. After each
case every disk is the image, byte by byte. All cases run once, and again with other draws as long as N seconds have
not passed; or until N processes were killed, if that is given. What is drawn depends on the seed, the case and the
number of the round. Needs root. ONEFOLD names the binary. Exit codes: 0 all is well, 1 it is not, 2 wrong usage.
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

from cases import CASES
from lab import Lab
from programs import Failed


class Trial:
    """The cases that were asked for."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.counts = collections.Counter()
        self.lab = Lab(options.onefold, folder, options.seed, self.counts, options.boot)
        self.began = time.monotonic()
        self.failed = []

    def run(self):
        """Runs all cases, and again as long as there is time. A failure ends its round only."""
        self.lab.prepare()
        number = 0
        while number == 0 or not (self.failed or self.is_over()):
            kills = self.counts["kills"]
            for name in self.options.cases:
                if number == 0 or (name != "boot" and not self.is_over()):
                    self.case(name, number)
            number += 1
            if self.options.kills is not None and self.counts["kills"] == kills and not self.failed:
                raise Failed("these cases kill nothing")
            if self.options.cases == ["boot"]:
                break
        print(f"serve: {self.counts['cases']} cases, {self.counts['disks']} disks, {self.counts['kills']} kills, "
              f"{self.counts['boots']} boots; {time.monotonic() - self.began:.0f} s", flush=True)

    def case(self, name, number):
        """Runs one case, and says how it went."""
        folder = self.folder / f"{name}-{number}"
        folder.mkdir()
        dice = random.Random(f"{self.options.seed}/{name}/{number}")
        self.lab.notes.clear()
        began = time.monotonic()
        claim = CASES[name].__doc__.splitlines()[0]
        try:
            CASES[name](self.lab, folder, dice)
        except Failed as failed:
            self.failed.append(name)
            print(f"FAIL  {name:15} {time.monotonic() - began:6.1f} s  {claim}\n      seed {self.options.seed}, round "
                  f"{number}: {failed}\n      {folder} is kept", flush=True)
        else:
            self.counts["cases"] += 1
            shutil.rmtree(folder)
            print(f"ok    {name:15} {time.monotonic() - began:6.1f} s  {claim}", flush=True)
        for note in self.lab.notes:
            print(f"      {note}", flush=True)

    def is_over(self):
        seconds = time.monotonic() - self.began
        if self.options.kills is not None:
            return self.counts["kills"] >= self.options.kills or seconds >= (self.options.seconds or float("inf"))
        return seconds >= self.options.seconds


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES), type=lambda text: text.split(","), metavar="LIST",
                        help=f"of {', '.join(CASES)}; all unless given")
    parser.add_argument("--seconds", type=float, default=0, help="no further round begins after so many")
    parser.add_argument("--kills", type=int, help="no further round begins after so many kills, or after --seconds")
    parser.add_argument("--boot", type=Path, metavar="IMAGE", help="a raw image of Debian 12, for `boot`")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on a disk with 6 GiB")
    parser.add_argument("--onefold", default=os.environ.get("ONEFOLD"), help="the binary ($ONEFOLD)")
    options = parser.parse_args(words)
    if not options.onefold:
        parser.error("a binary is needed")
    if set(options.cases) - set(CASES):
        parser.error(f"cases are {', '.join(CASES)}")
    if options.boot and not options.boot.is_file():
        parser.error(f"there is no image {options.boot}")
    if not options.boot:
        options.cases = [name for name in options.cases if name != "boot"]
    return options


def main():
    options = parse(sys.argv[1:])
    # All processes are ended, however the trial is.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # No key of this machine counts.
    os.environ["ONEFOLD_TRUSTED_KEYS"] = os.devnull
    folder = Path(tempfile.mkdtemp(prefix="serve.", dir=options.folder))
    trial = Trial(options, folder)
    try:
        trial.run()
    except Failed as failed:
        print(f"seed {options.seed}: {failed}\n{folder} is kept", file=sys.stderr)
        return 1
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not trial.failed:
        shutil.rmtree(folder)
    return 1 if trial.failed else 0


if __name__ == "__main__":
    sys.exit(main())
