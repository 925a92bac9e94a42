#!/usr/bin/env python3
"""Lists a directory while it changes, and goes on from remembered places.

    listing.py DIRECTORY SEED

Entries that are there from beginning to end must be listed exactly once, those that come and go at most once at a time.
A place remembered from a listing leads to what followed it there.
"""

import ctypes
import os
import random
import struct
import sys

SYS_GETDENTS64 = 217
STABLE = 400
ROUNDS = 40

libc = ctypes.CDLL(None, use_errno=True)


def entries(fd, room=600):
    """One call's worth of (name, cookie after it)."""
    buffer = ctypes.create_string_buffer(room)
    length = libc.syscall(SYS_GETDENTS64, fd, buffer, room)
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    found, place = [], 0
    while place < length:
        cookie, size = struct.unpack_from("<qH", buffer.raw, place + 8)
        name = buffer.raw[place + 19 : place + size].split(b"\0", 1)[0].decode()
        found.append((name, cookie))
        place += size
    return found


def main():
    os.chdir(sys.argv[1])
    dice = random.Random(int(sys.argv[2]))
    os.mkdir("listed")
    stable = [f"stable-{number}" for number in range(STABLE)]
    passing = set()
    for name in stable:
        open(f"listed/{name}", "w").close()
    order, cookie_before = None, {}
    for _ in range(ROUNDS):
        fd = os.open("listed", os.O_RDONLY)
        seen, cookie = [], 0
        while True:
            batch = entries(fd, dice.choice([100, 300, 600, 4000]))
            if not batch:
                break
            for name, after in batch:
                seen.append(name)
                cookie_before[name] = cookie
                assert after > 0, f"cookie {after}"
                cookie = after
            for _ in range(dice.randrange(20)):
                if passing and dice.random() < 0.5:
                    name = passing.pop()
                    os.unlink(f"listed/{name}")
                else:
                    name = f"passing-{dice.randrange(10**9)}"
                    open(f"listed/{name}", "w").close()
                    passing.add(name)
        found = [name for name in seen if name.startswith("stable")]
        assert sorted(found) == sorted(stable), "an entry is missing or doubled"
        assert len(set(seen)) == len(seen), "an entry came twice"
        assert order is None or found == order, "the order of what stayed has changed"
        order = found
        # From the place before a stable entry all that stayed after it follows, even where the entry before is gone.
        name = dice.choice(stable)
        os.lseek(fd, cookie_before[name], os.SEEK_SET)
        rest = []
        while batch := entries(fd, 4000):
            rest += [name for name, _ in batch if name.startswith("stable")]
        assert rest == order[order.index(name) :], f"from the cookie before {name}"
        os.close(fd)
    print(f"note: {ROUNDS} listings of {STABLE} entries among {len(passing)} that came and went")


if __name__ == "__main__":
    main()
