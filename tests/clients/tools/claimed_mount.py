#!/usr/bin/env python3
"""Mounts what calls itself somebody's pool, as any user may; answers no request.

    claimed_mount.py USER-ID SOURCE MOUNTPOINT

Says "mounted", and ends when its input does.
"""

import os
import socket
import subprocess
import sys


def main():
    user, source, mountpoint = sys.argv[1:]
    ours, theirs = socket.socketpair()
    helper = ["fusermount3", "-o", f"fsname={source},subtype=onefold", "--", mountpoint]
    environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
    as_user = {"user": int(user), "group": int(user), "extra_groups": []}
    subprocess.run(helper, env=environment, pass_fds=[theirs.fileno()], check=True, **as_user)
    # While this is open the mount lives.
    _, connection, _, _ = socket.recv_fds(ours, 1, 1)
    print("mounted", flush=True)
    sys.stdin.read()
    for descriptor in connection:
        os.close(descriptor)


main()
