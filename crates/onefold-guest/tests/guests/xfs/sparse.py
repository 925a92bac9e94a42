"""Fills a folder until there is no room for whole chunks of inodes, then makes files: sparse.py FOLDER."""
import os
import sys


def many(path, length):
    """Makes files until there is no room; returns how many."""
    count = 0
    try:
        while True:
            with open(f"{path}-{count:05}", "wb") as file:
                file.write(bytes(length))
                if length and count % 20 == 0:
                    os.fsync(file.fileno())
            count += 1
    except OSError:
        return count


def main():
    folder = sys.argv[1]
    count = many(f"{folder}/fill", 24576)
    os.sync()
    for index in range(0, count, 2):
        os.unlink(f"{folder}/fill-{index:05}")
    os.sync()
    many(f"{folder}/empty", 0)


main()
