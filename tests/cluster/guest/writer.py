"""A host's images at work: opened, compared, written, synced, closed, one after another until it is told to stop.

    writer.py ROOT HOST SEED make            makes the images
    writer.py ROOT HOST SEED judge [SETTLE]  compares all of them, where nothing is open; afterwards what is there counts
    writer.py ROOT HOST SEED work [locks]    works; with the locks that keep other hosts' passes away, or without

ROOT is where the shared disk is mounted. /host/hold keeps it from opening any image, /host/stop ends it. Prints counts as
JSON. Exit codes: 0 all is well, 1 a block is wrong.
"""

import collections
import errno
import fcntl
import json
import os
import random
import sys
import time

import kernel
from contents import BLOCK_BYTES
from images import COMMON_BLOCKS, COMMON_FIRST, IMAGE_BLOCKS, IMAGES, Memory, lock_path, name, read_image, write_runs


class Writer:
    def __init__(self, root, host, seed):
        self.root, self.host = root, host
        self.folder = f"{root}/images"
        self.memory = Memory(f"/host/memory{host}")
        self.dice = random.Random(f"{seed}/{host}/{len(self.memory.synced)}/{time.time_ns()}")
        self.counts = collections.Counter()
        # No content comes twice by chance: the host and the time are in its number.
        self.fresh = (host << 56) | (time.time_ns() >> 10 << 8) & (1 << 56) - 1

    def path(self, image):
        return f"{self.folder}/{name(self.host, image)}"

    def some_runs(self, blocks):
        """Common contents, own ones and zeros."""
        runs = []
        while blocks:
            count, kind = self.dice.randint(1, blocks), self.dice.random()
            if kind < 0.6:
                count = min(count, COMMON_BLOCKS)
                runs.append([COMMON_FIRST + self.dice.randint(0, COMMON_BLOCKS - count), count])
            elif kind < 0.92:
                runs.append([self.fresh, count])
                self.fresh += count
            else:
                count = min(count, 16)
                runs.append([0, count])
            blocks -= count
        return runs

    def make(self):
        os.makedirs(self.folder, exist_ok=True)
        for image in range(IMAGES):
            file = os.open(self.path(image), os.O_RDWR | os.O_CREAT, 0o600)
            at = 0
            while at < IMAGE_BLOCKS:
                count = min(256, IMAGE_BLOCKS - at)
                runs = self.some_runs(count)
                self.memory.note({"image": image, "at": at, "runs": runs})
                write_runs(file, at, runs)
                at += count
            os.fsync(file)
            self.memory.note({"image": image})
            os.close(file)

    def compare(self, image, file):
        found = read_image(file)
        self.counts["compared"] += len(found)
        wrong = self.memory.wrong(image, found)
        for block, number, allowed in wrong[:5]:
            print(f"WRONG {name(self.host, image)} block {block}: {number}, not one of {allowed}", flush=True)
        self.counts["wrong"] += len(wrong)
        self.counts["zeros"] += sum(number == 0 for _, number, _ in wrong)
        return found

    def judge(self, settles):
        for image in sorted(self.memory.synced):
            file = os.open(self.path(image), os.O_RDONLY)
            found = self.compare(image, file)
            if settles:
                self.memory.settle(image, found)
            os.close(file)

    def work(self, locks):
        while not os.path.exists("/host/stop"):
            image = self.dice.randrange(IMAGES)
            if locks:
                self.with_lock(image)
            elif not os.path.exists("/host/hold"):
                self.use(image)
            time.sleep(self.dice.uniform(0, 1.5))

    def with_lock(self, image):
        # The lock is on another file: to know its name the image need not be open for longer than a moment, and by path only.
        path = os.open(self.path(image), os.O_PATH)
        lock = os.open(lock_path(self.root, path), os.O_RDWR | os.O_CREAT, 0o600)
        os.close(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            self.counts["others had it"] += 1
            os.close(lock)
            return
        # A host that died may have had it: nothing is opened until its holes are filled.
        if not os.path.exists("/host/hold"):
            self.use(image)
        os.close(lock)

    def use(self, image):
        started = time.monotonic()
        file = os.open(self.path(image), os.O_RDWR)
        waited = time.monotonic() - started
        self.counts["opened"] += 1
        self.counts["waited for a lease"] += waited > 0.5
        self.counts["longest wait ms"] = max(self.counts["longest wait ms"], int(waited * 1000))
        self.compare(image, file)
        for _ in range(self.dice.randint(1, 12)):
            blocks = self.dice.choice([1, 1, 1, 2, 8, 64])
            at = self.dice.randrange(IMAGE_BLOCKS - blocks)
            if self.dice.random() < 0.1:
                self.memory.note({"image": image, "at": at, "runs": [[0, blocks]]})
                kernel.punch(file, at * BLOCK_BYTES, blocks * BLOCK_BYTES)
            else:
                runs = self.some_runs(blocks)
                self.memory.note({"image": image, "at": at, "runs": runs})
                write_runs(file, at, runs)
            self.counts["writes"] += 1
            if self.dice.random() < 0.3:
                self.sync(image, file)
        self.sync(image, file)
        self.compare(image, file)
        os.close(file)

    def sync(self, image, file):
        os.fsync(file)
        self.memory.note({"image": image})
        self.counts["synced"] += 1


def main():
    root, host, seed, what, *rest = sys.argv[1:]
    writer = Writer(root, int(host), seed)
    if what == "make":
        writer.make()
    elif what == "judge":
        writer.judge(bool(rest))
    else:
        writer.work(rest == ["locks"])
    print(json.dumps(writer.counts), flush=True)
    return 1 if writer.counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
