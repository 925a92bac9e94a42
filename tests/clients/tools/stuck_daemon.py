#!/usr/bin/env python3
"""Stands for a daemon of a user that was killed and cannot end: a thread of it waits for its own file system.

    stuck_daemon.py USER-ID POOL MOUNTPOINT

Locks the pool's file, mounts at the mount point what calls itself that pool, and says "stuck" when its first thread is
about to end. The process is a zombie from then on that keeps its lock, until the other thread's wait is ended.
"""

import ctypes
import fcntl
import os
import socket
import subprocess
import sys
import threading


def wait_for_own_file_system(mountpoint):
    try:
        os.stat(os.path.join(mountpoint, "name"))
    except OSError:
        # All of the process: the kernel lets go of the lock.
        os._exit(0)
    os._exit(1)


def main():
    user, pool, mountpoint = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    locked = os.open(pool, os.O_RDWR)
    fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ours, theirs = socket.socketpair()
    helper = ["fusermount3", "-o", f"fsname={pool},subtype=onefold", "--", mountpoint]
    environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
    subprocess.run(helper, env=environment, pass_fds=[theirs.fileno()], check=True)
    # As long as the process has this open, nobody's wait ends.
    socket.recv_fds(ours, 1, 1)
    threading.Thread(target=wait_for_own_file_system, args=[mountpoint]).start()
    print("stuck", flush=True)
    ctypes.CDLL(None).pthread_exit(None)


main()
