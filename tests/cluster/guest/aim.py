"""Waits until Onefold on this host declares what it is about to share, and then a moment more.

    aim.py ROOT FILE SECONDS   makes the file then; the moment is at most so long

Other hosts declare in the same folder: what counts is a change there while somebody on this host has a write lease.
"""

import os
import random
import sys
import time


def is_leased():
    with open("/proc/locks", encoding="utf-8") as locks:
        return "LEASE" in locks.read()


def declared(folder):
    """When each file of the folder that holds something was written."""
    try:
        stats = {entry.name: entry.stat() for entry in os.scandir(folder)}
    except FileNotFoundError:
        return {}
    return {name: stat.st_mtime_ns for name, stat in stats.items() if stat.st_size > 0}


def main():
    root, path, longest = sys.argv[1], sys.argv[2], float(sys.argv[3])
    folder = f"{root}/.onefold/intents"
    before = None
    while True:
        if not is_leased():
            before = None
            time.sleep(0.002)
            continue
        now = declared(folder)
        if before is not None and now != before:
            break
        before = now
        time.sleep(0.01)
    time.sleep(random.uniform(0, longest))
    with open(path, "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    main()
