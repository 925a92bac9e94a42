#!/usr/bin/env python3
"""Makes, reads or deletes a directory of many entries, and tells how long it took.

    many_entries.py make|read|delete DIRECTORY COUNT
"""

import os
import random
import sys
import time


def timed(what, work):
    started = time.monotonic()
    work()
    print(f"note: {what}: {time.monotonic() - started:.1f} s")


def make(names):
    for name in names:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def read(names):
    def listed():
        found = os.listdir(".")
        assert sorted(found) == names, f"{len(found)} names listed, {len(set(found))} different ones"

    timed("list", listed)
    order = random.Random(1).sample(names, len(names) // 5)
    timed(f"look up {len(order)} by name", lambda: [os.stat(name) for name in order])
    for name in order[:100]:
        assert not os.path.exists(name + "-not-there")


def delete(names):
    order = random.Random(2).sample(names, len(names))
    for name in order:
        os.unlink(name)
    assert not os.listdir(".")


def main():
    what, directory, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.chdir(directory)
    names = [f"entry-{number:06}" for number in range(count)]
    if what == "read":
        read(names)
    else:
        timed(f"{what} {count}", lambda: {"make": make, "delete": delete}[what](names))


if __name__ == "__main__":
    main()
