"""Clients that make one small request after the other; each prints what it did as JSON.

    small_requests.py names FOLDER COUNT      makes, asks for and removes so many empty files
    small_requests.py create FOLDER SECONDS   makes empty files for some time
    small_requests.py count - SECONDS         needs a processor and nothing else for some time
"""

import json
import os
import sys
import time

# Between two looks at the clock.
STEPS = 1000


def timed(work, folder, count):
    """Returns how often `work` is done in a second, once for each file."""
    started = time.perf_counter()
    for number in range(count):
        work(f"{folder}/empty-{number:06}")
    return count / (time.perf_counter() - started)


def make(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def names(folder, count):
    rates = {"create": timed(make, folder, int(count))}
    # The kernel is to ask, not to remember.
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as caches:
        caches.write("2")
    return rates | {"stat": timed(os.stat, folder, int(count)), "unlink": timed(os.unlink, folder, int(count))}


def create(folder, seconds):
    until, made = time.monotonic() + float(seconds), 0
    while time.monotonic() < until:
        make(f"{folder}/made-{made:08}")
        made += 1
    return {"made": made}


def count(_, seconds):
    until, steps = time.monotonic() + float(seconds), 0
    while time.monotonic() < until:
        for _ in range(STEPS):
            steps += 1
    return {"steps": steps}


if __name__ == "__main__":
    _, job, *arguments = sys.argv
    print(json.dumps({"names": names, "create": create, "count": count}[job](*arguments)))
