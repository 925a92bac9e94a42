#!/usr/bin/env python3
"""Tries each lock of a state folder as any other process would, and prints the names of those that somebody has.

    locks_held.py FOLDER

Opens the files only to read, and changes nothing: it works on a file system that is frozen. What it gets it gives back.
"""

import errno
import fcntl
import os
import sys


def is_held(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        return True
    finally:
        os.close(descriptor)
    return False


def main(folder):
    for name in sorted(os.listdir(folder)):
        if is_held(os.path.join(folder, name)):
            print(name)


main(*sys.argv[1:])
