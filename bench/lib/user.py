"""The user of the benchmarks' clients: an ordinary one, as libvirt's QEMU is.

The kernel tells a FUSE daemon of every write by a process that may not keep set-user-id bits, and root's it does not:
a door may be many times slower for users than for root.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from . import system

SYSTEM_PYTHON = "/usr/bin/python3"
# Accelerates QEMU, for those in its group.
KVM = Path("/dev/kvm")


@dataclass(frozen=True)
class User:
    """The user that a program runs as."""

    uid: int
    gid: int
    groups: tuple = ()

    def become(self):
        """Turns the calling process into this user's: to be called in a child before it becomes another program."""
        os.setgroups(self.groups)
        os.setgid(self.gid)
        os.setuid(self.uid)

    def own(self, path):
        """Gives a file or folder to the user, where somebody else has it."""
        status = os.stat(path)
        if (status.st_uid, status.st_gid) != (self.uid, self.gid):
            os.chown(path, self.uid, self.gid)

    def ensure_reaches(self, *paths):
        """Raises BenchError where the user may not read one of some files or folders."""
        for path in paths:
            try:
                system.run("test", "-r", path, user=self)
            except system.BenchError:
                hint = "name another user with --user, or another folder with --dir"
                raise system.BenchError(f"the clients' user, {self.uid}, may not read {path}: {hint}") from None


    def find_python(self):
        """Returns an interpreter that the user may run: ours, or the system's where ours lies in a folder of root's.

        Raises BenchError where there is none.
        """
        for python in (sys.executable, SYSTEM_PYTHON):
            try:
                system.run(python, "-c", "", user=self)
                return python
            except system.BenchError as error:
                reason = error
        raise reason


ROOT = User(0, 0)
NOBODY = 65534


def numbered(uid):
    """Returns an ordinary user that QEMU could run as."""
    return User(uid, uid, (KVM.stat().st_gid,) if KVM.exists() else ())


def owner_of(folder):
    """Returns the number of the user whose folder it is, or that of nobody where it is root's."""
    return os.stat(folder).st_uid or NOBODY
