"""Waits until somebody on this host has a write lease, which is while Onefold shares into an image, and then a moment more.

    aim.py FILE SECONDS   makes the file then; the moment is at most so long
"""

import random
import sys
import time


def main():
    path, longest = sys.argv[1], float(sys.argv[2])
    while True:
        with open("/proc/locks", encoding="utf-8") as locks:
            if "LEASE" in locks.read():
                break
        time.sleep(0.002)
    time.sleep(random.uniform(0, longest))
    with open(path, "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    main()
