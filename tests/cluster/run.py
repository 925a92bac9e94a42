#!/usr/bin/env python3
"""Real hosts with one OCFS2: facts, and Onefold on all of them while they lose power. To be started by run.sh.

Exit codes: 0 all is well, 1 it is not, 2 wrong usage.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time

from cluster import SHARED, Cluster, Failed, Refused
from engine import Engine
from facts import FACTS, Trial


def say(text):
    print(text, flush=True)


def arguments():
    parser = argparse.ArgumentParser(prog="run.sh", description="What a cluster file system does, and Onefold on it.")
    parser.add_argument("what", nargs="?", default="all", choices=["facts", "engine", "all", "hold", "list"])
    parser.add_argument("--folder", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--sockets", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", type=int, default=3, choices=[2, 3, 4])
    parser.add_argument("--only", default="", help="names of facts, with commas")
    parser.add_argument("--seed", default=None)
    parser.add_argument("--durability-rounds", type=int, default=2)
    parser.add_argument("--danger-kills", type=int, default=20)
    parser.add_argument("--danger-seconds", type=int, default=1200)
    parser.add_argument("--danger-blocks", type=int, default=16, help="blocks of a call")
    parser.add_argument("--rounds", type=int, default=10, help="power cuts beside passes")
    parser.add_argument("--holes", type=int, default=3, help="deaths whose holes are made by hand; of hosts that had declared something")
    parser.add_argument("--engine-seconds", type=int, default=2400)
    return parser.parse_args()


def try_facts(cluster, names):
    """Tries facts one after another. Returns how many held, and how many there were."""
    held = tried = 0
    for name, claim, function in FACTS:
        if names and name not in names:
            continue
        tried += 1
        started = time.monotonic()
        trial = None
        try:
            trial = Trial(cluster, name)
            seen, holds = function(trial)
            word = "as said" if holds else "OTHERWISE"
        except Refused as refused:
            seen, holds, word = f"a call was refused that should not be: {refused}", False, "OTHERWISE"
        except Failed as failed:
            seen, holds, word = str(failed), False, "FAILED"
        held += holds
        say(f"{word:9} {name} ({time.monotonic() - started:.0f} s): {claim}\n          seen: {seen}")
        if trial is not None:
            trial.end()
        for host in cluster.hosts.values():
            if not host.is_running():
                say(f"          {host} is down, and is started again")
                host.forget()
                host.restart()
    return held, tried


def main():
    options = arguments()
    if options.what == "list":
        for name, claim, _ in FACTS:
            say(f"{name:24} {claim}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = os.path.join(options.folder, "run")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    seed = options.seed = options.seed or str(time.time_ns())
    cluster = Cluster(folder, os.path.join(options.folder, "system"), options.sockets)
    cluster.options, cluster.dice = options, random.Random(seed)
    started = time.monotonic()
    is_well = True
    try:
        cluster.prepare()
        cluster.up(options.hosts)
        with open(os.path.join(cluster.image, "version"), encoding="utf-8") as version:
            kernel = version.read().strip()
        boots = ", ".join(f"{host.boot_s:.0f} s" for host in cluster.hosts.values())
        say(f"{options.hosts} hosts are up (kernel {kernel}, boots took {boots}), with OCFS2 on {SHARED}; seed {seed}")
        if options.what == "hold":
            say(f"to look around: ssh -S {cluster.sockets}/host1 host1; ends by SIGTERM")
            signal.pause()
        if options.what in ("facts", "all"):
            held, tried = try_facts(cluster, [name for name in options.only.split(",") if name])
            say(f"facts: {held} of {tried} are as said")
            is_well = held == tried
        if options.what in ("engine", "all"):
            is_well = Engine(cluster, say).run() is not False and is_well
    except (Failed, Refused) as failed:
        say(f"failed: {failed}")
        is_well = False
    finally:
        cluster.down()
        say(f"took {time.monotonic() - started:.0f} s; logs are in {folder}")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
