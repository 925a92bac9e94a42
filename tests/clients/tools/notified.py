#!/usr/bin/env python3
"""Waits as a service manager does for a daemon to say something: notified.py SOCKET WORD. Ends with 1 after 20 seconds."""

import os
import socket
import sys

path, word = sys.argv[1:]
if os.path.exists(path):
    os.unlink(path)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
    manager.bind(path)
    manager.settimeout(20)
    try:
        while word not in manager.recv(4096).decode().splitlines():
            pass
    except TimeoutError:
        sys.exit(f"nobody said {word}")
os.unlink(path)
