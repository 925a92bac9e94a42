"""Reads whole files, all at the same time, as a compute node fetches images; prints seconds and bytes as JSON.

The clock runs from before the first is opened until the last has been read.
"""

import json
import sys
import threading
import time

CHUNK_BYTES = 1 << 20


def read_whole(path, lengths):
    buffer = bytearray(CHUNK_BYTES)
    length = 0
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            length += got
    lengths[path] = length


def fetch(paths):
    """Returns seconds and bytes. A file that cannot be read is missing from the bytes."""
    lengths = {}
    threads = [threading.Thread(target=read_whole, args=(path, lengths)) for path in paths]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": time.perf_counter() - started, "bytes": sum(lengths.values())}


if __name__ == "__main__":
    print(json.dumps(fetch(sys.argv[1:])))
