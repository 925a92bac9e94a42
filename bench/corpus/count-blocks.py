#!/usr/bin/env python3
"""Counts the blocks of raw disk images, to hold a pool's figures against.

    count-blocks.py [--json] [--block-bytes N] IMAGE...

For each image and for all together: blocks in all, zero blocks, and distinct
blocks, which are the different contents among the blocks that are not zero. What
a perfect deduplicating store must keep is the distinct blocks of all of them.

This counter is naive on purpose and shares nothing with Onefold: it reads every
block, and its memory grows with the number of contents. In `new`, an image is
credited only with the contents that no image before it had, so that the column
adds up to the total of distinct blocks.
"""

import argparse
import errno
import hashlib
import json
import os
import sys

READ_BYTES = 4 << 20


def data_ranges(fd, length):
    """Yields the half-open ranges of a file that are not holes."""
    offset = 0
    while offset < length:
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # Nothing but a hole until the end.
                return
            raise
        offset = min(os.lseek(fd, start, os.SEEK_HOLE), length)
        yield start, offset


def read_exactly(fd, offset, count):
    """Returns `count` bytes at `offset`, padded with zeros behind the end of file."""
    parts = []
    while count > 0:
        part = os.pread(fd, count, offset)
        if not part:
            parts.append(bytes(count))
            break
        parts.append(part)
        offset += len(part)
        count -= len(part)
    return b"".join(parts)


def digests(path, block_bytes):
    """Yields the digest of each block of a file, in order, that is not all zero."""
    zero = bytes(block_bytes)
    fd = os.open(path, os.O_RDONLY)
    try:
        length = os.fstat(fd).st_size
        done = 0
        for start, end in data_ranges(fd, length):
            # Whole blocks, each once, even where holes are finer than blocks.
            offset = max(start // block_bytes * block_bytes, done)
            end = -(-end // block_bytes) * block_bytes
            while offset < end:
                data = read_exactly(fd, offset, min(READ_BYTES, end - offset))
                for at in range(0, len(data), block_bytes):
                    block = data[at : at + block_bytes]
                    if block != zero:
                        yield hashlib.blake2b(block, digest_size=16).digest()
                offset += len(data)
            done = max(done, end)
    finally:
        os.close(fd)


def count(paths, block_bytes):
    """Returns one dictionary per image and the one for all of them."""
    images = []
    everything = set()
    for path in paths:
        nonzero = 0
        contents = set()
        for digest in digests(path, block_bytes):
            nonzero += 1
            contents.add(digest)
        blocks = -(-os.path.getsize(path) // block_bytes)
        images.append(
            {
                "image": os.path.basename(path),
                "blocks": blocks,
                "zero": blocks - nonzero,
                "distinct": len(contents),
                "new": len(contents - everything),
            }
        )
        everything |= contents
    total = {
        "image": "total",
        "blocks": sum(image["blocks"] for image in images),
        "zero": sum(image["zero"] for image in images),
        "distinct": len(everything),
        "new": len(everything),
    }
    return images, total


def print_table(images, total, block_bytes):
    width = max(len(row["image"]) for row in images + [total])
    columns = ("blocks", "zero", "distinct", "new")
    print(" " * width, *(f"{column:>10}" for column in columns))
    for row in images + [total]:
        print(f"{row['image']:<{width}}", *(f"{row[column]:>10}" for column in columns))
    print(f"{total['distinct'] * block_bytes} bytes are distinct")


def main():
    parser = argparse.ArgumentParser(description="count zero and distinct blocks of raw images")
    parser.add_argument("image", nargs="+")
    parser.add_argument("--block-bytes", type=int, default=4096, metavar="N")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.block_bytes <= 0 or READ_BYTES % options.block_bytes:
        parser.error(f"a block must be a divisor of {READ_BYTES} bytes")
    try:
        images, total = count(options.image, options.block_bytes)
    except OSError as error:
        sys.exit(f"error: cannot count {error.filename}\n  cause: {error.strerror}")
    if options.json:
        result = {"block_bytes": options.block_bytes, "images": images, "total": total}
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        print_table(images, total, options.block_bytes)


if __name__ == "__main__":
    main()
