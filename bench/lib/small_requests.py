"""Clients that make one small request after the other; each prints what it did as JSON.

    small_requests.py make FOLDER COUNT       makes so many empty files
    small_requests.py stat FOLDER COUNT       asks for each of them
    small_requests.py unlink FOLDER COUNT     removes them
    small_requests.py create FOLDER SECONDS   makes empty files for some time, soon in the place of those that it made first
    small_requests.py count - SECONDS         needs a processor and nothing else for some time
"""

import json
import os
import sys
import time

# Between two looks at the clock.
STEPS = 1000
# Files that are there at a time: ext4 has a fixed number of inodes.
FILES_MAX = 2000


def timed(work, folder, count):
    """Returns how often `work` is done in a second, once for each file."""
    started = time.perf_counter()
    for number in range(count):
        work(f"{folder}/empty-{number:06}")
    return count / (time.perf_counter() - started)


def make(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def rate(work):
    """Returns the job that does `work` with each of a number of files."""
    return lambda folder, count: {"rate": timed(work, folder, int(count))}


def create(folder, seconds):
    until, made = time.monotonic() + float(seconds), 0
    while time.monotonic() < until:
        path = f"{folder}/made-{made % FILES_MAX:08}"
        if made >= FILES_MAX:
            os.unlink(path)
        make(path)
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
    jobs = {"make": rate(make), "stat": rate(os.stat), "unlink": rate(os.unlink), "create": create, "count": count}
    print(json.dumps(jobs[job](*arguments)))
