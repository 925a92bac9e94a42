#!/usr/bin/env python3
"""Works in a mounted pool for as long as wanted, ends its daemon in every way, and knows at each moment what must be there.

    soak.py --seconds N | --rounds N [--round-seconds S] [--ends LIST] [--workers N] [--pool-mib N] [--full PERCENT]
            [--seed TEXT] [--folder PATH]

Each round mounts the pool (never unmounting what a killed daemon left), lets every worker judge what its folder holds,
lets all of them work, and ends the daemon in one of the ways of LIST:

    umount        workers stop, `onefold pool umount`: all that was done is there
    term          SIGTERM under the workers: all that was done is there
    kill          SIGKILL under the workers: all that was promised is there, in order
    sync-kill     workers stop, `sync`, SIGKILL: all that was done is there
    kill-umount   SIGKILL somewhere in an unmount
    kill-mount    SIGKILL under the workers, then again in one to three mounts, somewhere in recovery

At the end all is compared, counted and deleted, which must leave an empty pool. ONEFOLD names the binary.
Exit codes: 0 all is well, 1 it is not, 2 wrong usage.
"""

import argparse
import collections
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from choice import DIRECTORIES, NAMES_EACH
from contents import BLOCK_UNITS, UNIT_BYTES, distinct_blocks
from pool import END_S, Failed, Pool, until

HERE = os.path.dirname(os.path.abspath(__file__))
ENDS = ["umount", "term", "kill", "sync-kill", "kill-umount", "kill-mount"]
BLOCK_BYTES = BLOCK_UNITS * UNIT_BYTES
# The least that a pool can be opened with. The daemon takes no more in all: code, stacks and requests are part of it.
MEMORY = "64M"
RESIDENT_BYTES_MAX = 64 << 20
APPARENT_PER_POOL = 5
# How a worker may end when its daemon goes away: stopped before, by an error, or at a mapping that nobody fills.
CUT_OFF = (0, 3, -signal.SIGBUS)
CHECK_EVERY = 4


class Soak:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.pool = Pool(options.onefold, folder, MEMORY)
        self.dice = random.Random(options.seed)
        self.round = 0
        # Whether all that was done in the round before is promised.
        self.is_whole = True
        self.workers = []
        self.counts = collections.Counter()
        self.ends = collections.Counter()

    def root(self, number):
        return os.path.join(self.pool.mountpoint, f"w{number}")

    def prepare(self):
        self.pool.create(self.options.pool_mib)
        self.pool.mount()
        for number in range(self.options.workers):
            for directory in range(DIRECTORIES):
                os.makedirs(os.path.join(self.root(number), f"d{directory}"))
        self.pool.unmount()

    # Workers.

    def start_workers(self, *flags):
        # All files together seem to hold several times what the pool can: it fills before they end.
        share = APPARENT_PER_POOL * self.options.pool_mib * (1 << 20) // UNIT_BYTES // self.options.workers
        flags = [*flags, "--whole"] if self.is_whole else flags
        for number in range(self.options.workers):
            command = [sys.executable, os.path.join(HERE, "worker.py"), self.root(number)]
            command += [os.path.join(self.folder, f"memory-{number}"), "--seed", self.options.seed]
            command += ["--number", str(number), "--round", str(self.round), "--units-max", str(share // (DIRECTORIES * NAMES_EACH))]
            command += ["--free-min", str(1 - self.options.full / 100), *flags]
            self.workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for worker in self.workers:
            if worker.stdout.readline() != "ready\n":
                raise Failed(f"a worker ended with {worker.wait(END_S)} before it worked")

    def collect_workers(self, *codes):
        """Waits for all workers, which must end in one of these ways."""
        for worker in self.workers:
            try:
                worker.wait(END_S)
            except subprocess.TimeoutExpired as hung:
                raise Failed(f"worker {worker.pid} hangs") from hung
            if worker.returncode not in codes:
                raise Failed(f"a worker ended with {worker.returncode}")
            # Two short lines at most: the pipe holds them until somebody reads. One that was cut off says nothing.
            self.counts.update(json.loads(worker.stdout.read() or "{}"))
        self.workers = []

    def stop_workers(self):
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        self.collect_workers(0)

    # Ends of a round.

    def end(self, way):
        if way in ("umount", "sync-kill", "kill-umount"):
            self.stop_workers()
        self.is_whole = way in ("umount", "term", "sync-kill")
        if way == "umount":
            self.pool.unmount()
        elif way == "term":
            self.pool.terminate()
            self.collect_workers(*CUT_OFF)
        elif way == "sync-kill":
            self.pool.sync()
            self.pool.kill()
        elif way == "kill-umount":
            unmounting = self.pool.begin_unmount()
            time.sleep(self.dice.random() * 0.1)
            self.pool.kill()
            unmounting.wait(END_S)
        else:
            self.pool.kill()
            self.collect_workers(*CUT_OFF)
        if way == "kill-mount":
            self.kill_mounts()

    def kill_mounts(self):
        for _ in range(self.dice.randint(1, 3)):
            self.pool.start()
            # Sometimes before the recovery, sometimes after it.
            time.sleep(self.dice.random() * 0.15)
            self.pool.kill()
            self.counts["killed in a mount"] += 1

    def check_memory(self):
        if self.pool.resident_peak_bytes > RESIDENT_BYTES_MAX:
            raise Failed(f"{self.pool.resident_peak_bytes} bytes resident, {RESIDENT_BYTES_MAX} allowed")

    def check_sums(self, stat):
        apparent = ["zero_bytes", "unique_bytes", "shared_bytes", "saved_by_blocks_bytes", "saved_by_clones_bytes"]
        device = ["metadata_fixed_bytes", "metadata_dynamic_bytes", "unique_bytes", "shared_bytes", "freeing_bytes"]
        for whole, parts in [("apparent_bytes", apparent), ("device_bytes", [*device, "free_bytes"])]:
            if stat[whole] != sum(stat[part] for part in parts):
                raise Failed(f"{whole} is not the sum of {parts}: {stat}")

    def work(self):
        way = self.dice.choice(self.options.ends)
        self.pool.mount()
        if self.pool.mounts() != 1:
            raise Failed(f"{self.pool.mounts()} mounts, one of them is served")
        self.start_workers()
        time.sleep(self.options.round_seconds * self.dice.uniform(0.3, 1.7))
        stat = self.pool.stat()
        self.check_sums(stat)
        self.counts["fullest"] = max(self.counts["fullest"], 100 - 100 * stat["free_bytes"] // stat["device_bytes"])
        self.end(way)
        self.ends[way] += 1
        if self.round % CHECK_EVERY == 0:
            self.check_device("--data") if way != "kill-mount" else self.check_device()
        self.check_memory()

    def check_device(self, *flags):
        """`check` of a pool whose daemon is gone; it never writes, so nothing is recovered by it."""
        if self.pool.mounts():
            # `check` wants to know that nobody serves it.
            subprocess.run(["umount", "-i", "-l", self.pool.mountpoint], check=True)
        self.pool.check(*flags)
        self.counts["checks"] += 1

    # The end.

    def finish(self):
        """Every byte, every count, and then nothing."""
        self.pool.mount()
        self.start_workers("--only-judge")
        self.collect_workers(0)
        self.pool.sync()
        self.compare_counts()
        self.pool.unmount()
        self.pool.check("--data")
        self.pool.mount()
        for number in range(self.options.workers):
            shutil.rmtree(self.root(number))
        if not until(END_S, self.is_empty):
            raise Failed(f"an empty pool is not empty: {self.pool.stat()}")
        self.pool.unmount()
        self.pool.check("--data")

    def expected_files(self):
        for number in range(self.options.workers):
            with open(os.path.join(self.folder, f"memory-{number}", "tree"), "rb") as file:
                yield from pickle.load(file).values()

    def compare_counts(self):
        files = list(self.expected_files())
        if not until(END_S, lambda: self.pool.stat()["reclaim_pending"] == 0):
            raise Failed("deleted files are not reclaimed")
        stat = self.pool.stat()
        self.check_sums(stat)
        directories = 1 + self.options.workers * (1 + DIRECTORIES)
        expected = {
            "inode_count": len(files) + directories,
            "apparent_bytes": sum(-(-len(file) // BLOCK_UNITS) for file in files) * BLOCK_BYTES,
        }
        found = {name: stat[name] for name in expected}
        if found != expected:
            raise Failed(f"the pool counts {found}, there are {expected}")
        distinct, stored = distinct_blocks(files) * BLOCK_BYTES, stat["unique_bytes"] + stat["shared_bytes"]
        if stored < distinct:
            raise Failed(f"{distinct} bytes are distinct, only {stored} are stored")
        self.counts["distinct_mib"], self.counts["stored_mib"] = distinct >> 20, stored >> 20

    def is_empty(self):
        stat = self.pool.stat()
        self.check_sums(stat)
        gone = ["unique_bytes", "shared_bytes", "reserved_bytes", "freeing_bytes", "reclaim_pending", "apparent_bytes"]
        return stat["inode_count"] == 1 and not any(stat[name] for name in gone)

    def run(self):
        self.prepare()
        end = time.monotonic() + self.options.seconds if self.options.seconds else None
        told = time.monotonic()
        while (time.monotonic() < end) if end else (self.round < self.options.rounds):
            self.round += 1
            self.work()
            if time.monotonic() - told > self.options.tell_every:
                told = time.monotonic()
                print(self.summary(), flush=True)
        self.finish()

    def summary(self):
        counts = self.counts
        ends = ", ".join(f"{count} {way}" for way, count in sorted(self.ends.items()))
        return (
            f"note: {self.round} rounds ({ends}), {counts['killed in a mount']} kills in a mount; "
            f"{counts['operations']} operations, {counts['refused']} refused for space, {counts['promised']} promised "
            f"and found, {counts['lost']} not promised and lost; {counts['compared_units'] * UNIT_BYTES >> 20} MiB compared; "
            f"{counts['checks']} checks; fullest {counts['fullest']} %; "
            f"at most {self.pool.resident_peak_bytes >> 20} MiB resident"
        )

    def clean_up(self):
        for worker in self.workers:
            worker.kill()
        self.pool.clean_up()
        for worker in self.workers:
            worker.wait()


def parse():
    parser = argparse.ArgumentParser(description="work in a pool, end its daemon in every way, and compare")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--seconds", type=float, help="begin no further round after so long")
    length.add_argument("--rounds", type=int)
    parser.add_argument("--round-seconds", type=float, default=20, help="how long a round works, about")
    parser.add_argument("--ends", type=lambda text: text.split(","), default=ENDS)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--pool-mib", type=int, default=1024)
    parser.add_argument("--full", type=float, default=95, help="percent of the pool that are to be in use")
    parser.add_argument("--seed", default=None)
    parser.add_argument("--folder", default=None, help="where the pool is made; a new folder there")
    parser.add_argument("--tell-every", type=float, default=60, help="seconds between two lines of progress")
    options = parser.parse_args()
    if not set(options.ends) <= set(ENDS):
        parser.error(f"the ends are {', '.join(ENDS)}")
    options.onefold = os.environ.get("ONEFOLD") or parser.error("ONEFOLD names the binary")
    options.seed = options.seed or str(random.SystemRandom().randrange(10**6))
    return options


def main():
    options = parse()
    # As the kernel tells it: mounts are looked for by their paths.
    folder = os.path.realpath(tempfile.mkdtemp(prefix="onefold-soak.", dir=options.folder))
    soak = Soak(options, folder)
    # As Ctrl-C: everything is cleared away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        soak.run()
    except Failed as failed:
        print(soak.summary())
        print(soak.pool.said()[-4000:])
        kept = os.path.join(os.path.dirname(folder), "kept-" + os.path.basename(folder))
        print(f"kept: {kept}")
        soak.clean_up()
        os.rename(folder, kept)
        sys.exit(f"seed {options.seed}, round {soak.round}: {failed}")
    finally:
        soak.clean_up()
        shutil.rmtree(folder, ignore_errors=True)
    print(soak.summary())
    print(f"note: seed {options.seed}: {soak.counts['distinct_mib']} MiB distinct at the end, {soak.counts['stored_mib']} stored")


if __name__ == "__main__":
    main()
