"""Images whose contents are known, and what is remembered of them over power cuts.

A host's images are written by that host only. What it writes, and what it has synced, is noted in a log that outlives it:
a block must hold what was synced last, or something that was written since.
"""

import json
import os

import kernel
from contents import BLOCK_BYTES, parse, render, unfold

IMAGE_BLOCKS = 1024
IMAGES = 4
# Contents that all images take from.
COMMON_FIRST, COMMON_BLOCKS = 1_000_000, 2000


def name(host, image):
    return f"image{host}-{image}"


class Memory:
    """What a host's images may hold."""

    def __init__(self, path):
        self.path = path
        self.log = None
        # Of each image: for each block what was synced, and what was written since.
        self.synced = {}
        self.written = {}
        try:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    # The last one may have been cut off: what it tells of was not begun.
                    if line.endswith("\n"):
                        self.apply(json.loads(line))
        except FileNotFoundError:
            pass

    def apply(self, line):
        image = line["image"]
        synced = self.synced.setdefault(image, [0] * IMAGE_BLOCKS)
        written = self.written.setdefault(image, {})
        if "at" in line:
            for offset, number in enumerate(unfold(line["runs"])):
                written.setdefault(line["at"] + offset, []).append(number)
        else:
            for block, numbers in written.items():
                synced[block] = numbers[-1]
            written.clear()

    def note(self, line):
        """Returns once the machine that the host runs on has it."""
        if self.log is None:
            self.log = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self.log, (json.dumps(line) + "\n").encode())
        self.apply(line)

    def settle(self, image, found):
        """After a power cut what is there is what counts, from then on."""
        lines, written = [], self.written.get(image, {})
        for block in sorted(written):
            lines.append([block, found[block]])
        for block, number in lines:
            self.note({"image": image, "at": block, "runs": [[number, 1]]})
        self.note({"image": image})

    def wrong(self, image, found):
        """Blocks that hold what they must not: (block, found, allowed)."""
        if len(found) != IMAGE_BLOCKS:
            return [(len(found), "length", [IMAGE_BLOCKS])]
        wrong, written = [], self.written.get(image, {})
        for block, number in enumerate(found):
            if number != self.synced[image][block] and number not in written.get(block, ()):
                wrong.append((block, number, [self.synced[image][block], *written.get(block, ())]))
        return wrong


def read_image(file):
    numbers, at = [], 0
    while data := os.pread(file, 256 * BLOCK_BYTES, at):
        numbers += parse(data)
        at += len(data)
    return numbers


def write_runs(file, block, told):
    data = render(unfold(told))
    if os.pwrite(file, data, block * BLOCK_BYTES) != len(data):
        raise OSError("a short write")


def lock_path(root, file):
    """The file whose lock says that somebody has an image: see docs/decisions/0025-scan-and-watch.md."""
    kind, raw = kernel.handle(file)
    return f"{root}/.onefold/locks/file.{(kind.to_bytes(4, 'little') + raw).hex()}"
