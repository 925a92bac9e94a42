#!/usr/bin/env python3
"""One worker: judges what its folder holds after a restart, then does random operations in it until it is stopped.

    worker.py FOLDER MEMORY --seed TEXT --number N --round N --units-max N --free-min SHARE [--whole] [--only-judge]

MEMORY, beside the pool, holds the expectations over restarts: `tree` has the content that was judged last, `log` each
operation since, before it is begun and after it is done. Says `ready` once the judgement is done. SIGTERM stops it.
Prints its counts as JSON at the end. Exit codes: 0 stopped, 1 the folder is wrong, 3 an operation failed as it does when
the daemon goes away.
"""

import argparse
import collections
import errno
import json
import os
import pickle
import random
import signal
import sys

from choice import Choice
from contents import Torn
from expectations import PROMISING, Wrong, apply, difference, judge
from folder import Folder

EXIT_WRONG = 1
EXIT_CUT_OFF = 3
LOOK_AT_SPACE_EVERY = 16
READ_BACK_EVERY = 5
# What must work on a full pool.
NEEDS_NO_SPACE = {"unlink", "fsync"}


class Memory:
    """What a worker remembers over restarts, on the host's file system."""

    def __init__(self, path):
        self.tree_path = os.path.join(path, "tree")
        self.log_path = os.path.join(path, "log")
        os.makedirs(path, exist_ok=True)
        self.log = None

    def load(self):
        """The tree judged last, the operations since, and how many of them are promised."""
        try:
            with open(self.tree_path, "rb") as file:
                tree = pickle.load(file)
        except FileNotFoundError:
            tree = {}
        log, promised = [], 0
        try:
            with open(self.log_path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
        except FileNotFoundError:
            lines = []
        for line in lines:
            if "do" in line:
                log.append((line, None))
            elif line["result"] == "refused":
                log.pop()
            else:
                log[-1] = (log[-1][0], line["result"])
                if log[-1][0]["do"] in PROMISING:
                    promised = len(log)
        is_last_done = not lines or "do" not in lines[-1]
        return tree, log, promised, len(log) - (not is_last_done)

    def begin(self, tree):
        """Forgets what came before: this is what the folder holds."""
        with open(self.tree_path + ".new", "wb") as file:
            pickle.dump(tree, file)
        # A worker is never killed, so these two need not happen as one.
        self.log = open(self.log_path, "w", encoding="utf-8")
        os.rename(self.tree_path + ".new", self.tree_path)

    def note(self, line):
        self.log.write(json.dumps(line) + "\n")
        self.log.flush()


class Worker:
    def __init__(self, options):
        self.options = options
        self.folder = Folder(options.folder)
        self.memory = Memory(options.memory)
        self.counts = collections.Counter()
        self.stopped = False
        self.tree = None

    def judge(self):
        tree, log, promised, done = self.memory.load()
        if self.options.whole:
            promised = done
        found = self.folder.tree()
        shown = judge(tree, log, promised, found)
        self.counts.update(promised=promised, kept=shown, lost=len(log) - shown)
        self.counts["compared_units"] += sum(map(len, found.values()))
        self.memory.begin(found)
        self.tree = found

    def is_growing(self):
        space = os.statvfs(self.options.folder)
        return space.f_bavail > self.options.free_min * space.f_blocks

    def run(self):
        dice = random.Random(f"{self.options.seed}/{self.options.round}/{self.options.number}")
        # No content comes twice by chance: worker and round are in its number.
        fresh = (self.options.number + 1) << 44 | self.options.round << 24
        choice = Choice(dice, self.tree, self.options.units_max, fresh)
        is_growing = True
        while not self.stopped:
            self.counts["operations"] += 1
            if self.counts["operations"] % LOOK_AT_SPACE_EVERY == 1:
                is_growing = self.is_growing()
            self.step(choice.next(is_growing and dice.random() < 0.97))
            if self.counts["operations"] % READ_BACK_EVERY == 0 and self.tree:
                self.read_back(dice)

    def step(self, operation):
        self.memory.note(operation)
        try:
            done = self.folder.do(operation)
            if done is not None:
                # Of a write that came back short because the daemon went away, nobody knows: this fails then.
                os.statvfs(self.options.folder)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self.refused(operation)
            return
        self.memory.note({"result": done})
        apply(self.tree, operation, done)

    def refused(self, operation):
        """There was no room: nothing has changed, but for a mapping, of which nobody knows."""
        self.counts["refused"] += 1
        kind = operation["do"]
        if kind in NEEDS_NO_SPACE:
            raise Wrong(f"a full pool refused: {operation}")
        if kind != "map":
            self.memory.note({"result": "refused"})
            return
        self.memory.note({"result": None})
        self.step({"do": "unlink", "path": operation["path"]})

    def read_back(self, dice):
        path = dice.choice(sorted(self.tree))
        at = dice.randrange(len(self.tree[path]) + 1)
        found = self.folder.read(path, at, 256)
        expected = self.tree[path][at : at + 256]
        if len(found) < len(expected):
            # A read, too, comes back short where the daemon goes away in the middle of it: this fails then.
            os.statvfs(self.options.folder)
        if found != expected:
            raise Wrong(f"read back from {at}: {difference({path: expected}, {path: found})}")
        self.counts["compared_units"] += len(found)

    def stop(self, *_):
        self.stopped = True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("memory")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--units-max", type=int, required=True)
    parser.add_argument("--free-min", type=float, required=True)
    parser.add_argument("--whole", action="store_true", help="all that was done is promised")
    parser.add_argument("--only-judge", action="store_true")
    worker = Worker(parser.parse_args())
    signal.signal(signal.SIGTERM, worker.stop)
    status = 0
    try:
        worker.judge()
        print("ready", flush=True)
        if not worker.options.only_judge:
            worker.run()
    except (Wrong, Torn) as wrong:
        print(f"worker {worker.options.number}, round {worker.options.round}: {wrong}", file=sys.stderr)
        status = EXIT_WRONG
    except OSError as error:
        print(f"worker {worker.options.number}: {error}", file=sys.stderr)
        status = EXIT_CUT_OFF
    print(json.dumps(worker.counts), flush=True)
    # Not by way of `exit`: nothing that is left open shall fail on the way.
    os._exit(status)


if __name__ == "__main__":
    main()
