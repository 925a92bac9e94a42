#!/usr/bin/env python3
"""Shares files of guests under everything that may happen to it, for as long as wanted.

    trial.py --seconds N | --rounds N [--parts LIST] [--busy-seconds S] [--boot IMAGE] [--seed N] [--first-round N]
        [--folder PATH]

With --boot, a copy of a Debian image updates itself in QEMU first, beside passes. Each round has a new file system, XFS
or Btrfs, and does all parts of LIST there:

    cuts    verbs that write are killed, meet failing calls (strace injects them), and run out of room
    others  two hosts and two users share at once
    busy    guests run dpkg and fio beside passes; copies of their images stand in for power cuts
    pool    `pool dedup --files` is killed

Afterwards each image has to hold what it held, and a whole run has to come to the result of one that nobody cut. What a
part of a round draws depends on the seed, the number of the round and the part only: --first-round repeats one. Needs
root. ONEFOLD names the binary. Exit codes: 0 all is well, 1 it is not, 2 wrong usage.
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

from booted import booted
from busy import VERSIONS, Busy, make_packages
from cuts import VERBS, Cuts
from host import Failed, Host, make_guests
from others import two_hosts, two_users
from pools import Pools

PARTS = ["cuts", "others", "busy", "pool"]
CUTS_EACH_ROUND = 12
# Room for two copies of an image of 2 GiB, and for what is copied once it is written to.
BOOT_HOST_BYTES = 6 << 30


class Trial:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.number = options.first_round
        self.part = None
        self.counts = collections.Counter()
        self.made = make_guests(folder / "made", [1, 2, 3])
        self.archives = make_packages(folder / "packages", random.Random(f"{options.seed}/packages"))
        self.pools = None
        if "pool" in options.parts:
            self.pools = Pools(options.onefold, self.made, self.counts, folder)

    def dice(self, *parts):
        """Returns what a part of this round draws from, whatever the others draw."""
        return random.Random("/".join(map(str, (self.options.seed, self.number, *parts))))

    def round(self):
        kind = ["xfs", "btrfs"][self.number % 2]
        with Host(self.options.onefold, self.folder, kind) as host:
            for self.part in self.options.parts:
                getattr(self, self.part)(host)
        self.counts["rounds"] += 1
        self.number += 1

    def where(self):
        """Returns which part of which round is on."""
        return f"round {self.number}, {self.part}" if self.part else "before the first round"

    def boot(self):
        with Host(self.options.onefold, self.folder, "xfs", BOOT_HOST_BYTES) as host:
            booted(host, self.options.boot, self.archives, VERSIONS, self.counts, self.folder)

    def cuts(self, host):
        dice = self.dice("cuts")
        cuts = Cuts(host, self.made, dice, self.counts, self.folder)
        ways = [cuts.kill, cuts.kill_at_call, cuts.fault, cuts.full]
        for at in range(CUTS_EACH_ROUND):
            cuts.round(dice.choice(VERBS), ways[at % len(ways)])

    def others(self, host):
        two_hosts(host, self.made, self.dice("hosts"), self.counts, self.folder)
        two_users(host, self.made, self.dice("users"), self.counts)

    def busy(self, host):
        busy = Busy(host, self.made, self.archives, self.dice, self.counts, self.folder)
        busy.round(self.options.busy_seconds)

    def pool(self, _):
        self.pools.round(self.dice("pool"))

    def line(self):
        names = ["rounds", "kills", "faults", "full", "whole runs", "passes of two hosts", "blocks left to --full"]
        names += ["passes of two users", "passes beside guests", "operations of dpkg", "power cuts", "promises"]
        names += ["packaged files", "boots"]
        return ", ".join(f"{self.counts[name]} {name}" for name in names)

    def run(self):
        began = time.monotonic()
        if self.options.boot:
            self.boot()
        while True:
            self.round()
            took = time.monotonic() - began
            print(f"{self.line()}; {took:.0f} s", flush=True)
            if self.counts["rounds"] >= self.options.rounds or took >= self.options.seconds:
                return


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no round begins after so many")
    parser.add_argument("--rounds", type=int, default=sys.maxsize)
    parser.add_argument("--parts", default=",".join(PARTS), type=lambda text: text.split(","))
    parser.add_argument("--busy-seconds", type=int, default=20, help="how long guests work in each round")
    parser.add_argument("--boot", type=Path, metavar="IMAGE", help="a Debian image that boots")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--first-round", type=int, default=0, metavar="N", help="the number of the first round")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where file systems are made; on a disk")
    parser.add_argument("--onefold", default=os.environ.get("ONEFOLD"), help="the binary ($ONEFOLD)")
    options = parser.parse_args(words)
    if not options.onefold or (options.seconds == float("inf") and options.rounds == sys.maxsize):
        parser.error("a binary, and seconds or rounds, are needed")
    if set(options.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    return options


def main():
    options = parse(sys.argv[1:])
    # All that is mounted goes, however the trial is ended.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="guest-files.", dir=options.folder))
    # Users reach the images.
    folder.chmod(0o755)
    trial = None
    try:
        print(f"seed {options.seed}", flush=True)
        trial = Trial(options, folder)
        trial.run()
        return 0
    except Failed as failure:
        print(f"failed: {trial.where() if trial else 'nothing tried yet'}: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
