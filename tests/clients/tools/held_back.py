#!/usr/bin/env python3
"""Changes shared mappings that the kernel has not handed over yet.

    held_back.py clone FOLDER MIB ROUNDS     in each round: changes all pages of FOLDER/source.raw, clones it by
                                          `onefold pool clone` and compares the clone
    held_back.py hold FOLDER FILES MIB       changes all pages of files in FOLDER, tells so, and waits for the end of its input
    held_back.py verify FOLDER FILES MIB     ends with 1 unless the files are as `hold` left them
"""

import contextlib
import mmap
import os
import subprocess
import sys

PAGE = 4096


def page_of(seed, number):
    """What a page holds: another content in each round, and in each place."""
    return b"%-32d" % (seed * 1_000_003 + number) * (PAGE // 32)


def change(mapping, seed):
    for number in range(len(mapping) // PAGE):
        mapping[number * PAGE : (number + 1) * PAGE] = page_of(seed, number)


def wrong_pages(path, seed, length):
    with open(path, "rb") as file:
        return sum(file.read(PAGE) != page_of(seed, number) for number in range(length // PAGE))


@contextlib.contextmanager
def mapped(path, length):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, length)
    mapping = mmap.mmap(fd, length)
    yield mapping
    # The mapping itself goes with the process: to take it away would hand it over.
    os.close(fd)


def clone(folder, length, rounds):
    source, target = os.path.join(folder, "source.raw"), os.path.join(folder, "clone.raw")
    lost = 0
    with mapped(source, length) as mapping:
        for seed in range(rounds):
            change(mapping, seed)
            command = [os.environ["ONEFOLD"], "pool", "clone", "--quiet", folder, "source.raw", "clone.raw"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            wrong = wrong_pages(target, seed, length)
            if wrong:
                lost += 1
                print(f"round {seed}: {wrong} of {length // PAGE} pages of the clone are old", flush=True)
            os.unlink(target)
    if lost:
        sys.exit(f"{lost} of {rounds} clones missed changes")


def hold(folder, files, length):
    with contextlib.ExitStack() as stack:
        paths = [os.path.join(folder, f"held-{number}") for number in range(files)]
        for seed, mapping in enumerate([stack.enter_context(mapped(path, length)) for path in paths]):
            change(mapping, seed)
        print("held", flush=True)
        sys.stdin.read()
        os._exit(0)


def verify(folder, files, length):
    wrong = {seed: wrong_pages(os.path.join(folder, f"held-{seed}"), seed, length) for seed in range(files)}
    if any(wrong.values()):
        sys.exit(f"wrong pages by file: {wrong}")


def main():
    verb, folder, first, second = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    match verb:
        case "clone":
            clone(folder, first << 20, second)
        case "hold":
            hold(folder, first, second << 20)
        case "verify":
            verify(folder, first, second << 20)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
