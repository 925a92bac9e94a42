#!/usr/bin/env python3
"""What users may do: tables of users, permission bits and calls, tried in the directory that is given.

    who_may.py DIRECTORY

What must come out is computed from the rules of POSIX, not written down case by case. Each call is made by a process of
its own, as the user in question. Prints how many were made; ends with 1 where one came out otherwise.
"""

import errno
import itertools
import os
import shutil
import stat
import sys

ROOT, ALICE, BOB = 0, 3001, 3002
NAMES = {ROOT: "root", ALICE: "alice", BOB: "bob"}
# A group that Alice is a member of, beside her own.
TEAM = 3100
GROUPS = {ROOT: [], ALICE: [TEAM], BOB: []}


class Cases:
    def __init__(self):
        self.tried = 0
        self.wrong = []

    def expect(self, claim, wanted, user, call):
        """Calls `call` as `user`; `wanted` is an error's number, or 0."""
        self.tried += 1
        child = os.fork()
        if child == 0:
            os._exit(attempt(user, call))
        found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if found != wanted:
            self.wrong.append(f"{claim} as {NAMES[user]}: {name_of(found)}, not {name_of(wanted)}")

    def equal(self, claim, found, wanted):
        self.tried += 1
        if found != wanted:
            self.wrong.append(f"{claim}: {found}, not {wanted}")


def name_of(number):
    return errno.errorcode.get(number, "success" if number == 0 else str(number))


def attempt(user, call):
    try:
        if user != ROOT:
            os.setgroups(GROUPS[user])
            os.setgid(user)
            os.setuid(user)
        call()
        return 0
    except OSError as error:
        return error.errno


def make(path, kind, owner=ROOT, mode=0o777, group=None):
    """Makes a file, directory, fifo or symbolic link."""
    if kind == "directory":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "symlink":
        os.symlink("nowhere", path)
    else:
        open(path, "w").close()
    os.chown(path, owner, owner if group is None else group, follow_symlinks=False)
    if kind != "symlink":
        os.chmod(path, mode)


def fresh(name):
    """Returns a new directory that everybody may use."""
    shutil.rmtree(name, ignore_errors=True)
    os.mkdir(name)
    os.chmod(name, 0o777)
    return name


def opened(path, flags):
    os.close(os.open(path, flags, 0o666))


def search_permission(cases):
    """Without the right to search a directory nothing below it can be named, by any call."""
    closed = fresh("closed")
    os.mkdir(f"{closed}/directory")
    make(f"{closed}/file", "file")
    make(f"{closed}/link", "symlink")
    outside = fresh("outside")
    make(f"{outside}/file", "file", ALICE)
    file, directory, new = f"{closed}/file", f"{closed}/directory", f"{closed}/new"
    calls = {
        "stat": lambda: os.stat(file),
        "readlink": lambda: os.readlink(f"{closed}/link"),
        "open": lambda: opened(file, os.O_RDONLY),
        "create": lambda: opened(new, os.O_CREAT | os.O_WRONLY),
        "truncate": lambda: os.truncate(file, 0),
        "chmod": lambda: os.chmod(file, 0o600),
        "chown": lambda: os.chown(file, ALICE, ALICE),
        "utime": lambda: os.utime(file),
        "link from": lambda: os.link(file, f"{outside}/linked"),
        "link to": lambda: os.link(f"{outside}/file", new),
        "symlink": lambda: os.symlink("x", new),
        "mkdir": lambda: os.mkdir(new),
        "mkfifo": lambda: os.mkfifo(new),
        "rmdir": lambda: os.rmdir(directory),
        "unlink": lambda: os.unlink(file),
        "rename from": lambda: os.rename(file, f"{outside}/renamed"),
        "rename to": lambda: os.rename(f"{outside}/file", new),
        "listdir": lambda: os.listdir(directory),
        "chdir": lambda: os.chdir(directory),
        "setxattr": lambda: os.setxattr(file, "user.a", b"1"),
        "getxattr": lambda: os.getxattr(file, "user.a"),
        "listxattr": lambda: os.listxattr(file),
    }
    for mode in (0o776, 0o774, 0o770):
        os.chmod(closed, mode)
        for name, call in calls.items():
            cases.expect(f"{name} below a directory of mode {mode:o}", errno.EACCES, BOB, call)


def write_permission(cases):
    """Without the right to write a directory no name in it comes, goes or changes."""
    closed = fresh("closed")
    make(f"{closed}/file", "file", BOB)
    make(f"{closed}/directory", "directory", BOB)
    outside = fresh("outside")
    make(f"{outside}/file", "file", BOB)
    os.chmod(closed, 0o755)
    calls = {
        "create": lambda: opened(f"{closed}/new", os.O_CREAT | os.O_WRONLY),
        "mkdir": lambda: os.mkdir(f"{closed}/new"),
        "mkfifo": lambda: os.mkfifo(f"{closed}/new"),
        "symlink": lambda: os.symlink("x", f"{closed}/new"),
        "link": lambda: os.link(f"{outside}/file", f"{closed}/new"),
        "unlink": lambda: os.unlink(f"{closed}/file"),
        "rmdir": lambda: os.rmdir(f"{closed}/directory"),
        "rename within": lambda: os.rename(f"{closed}/file", f"{closed}/other"),
        "rename out": lambda: os.rename(f"{closed}/file", f"{outside}/other"),
        "rename in": lambda: os.rename(f"{outside}/file", f"{closed}/other"),
        "nameless file": lambda: opened(closed, os.O_TMPFILE | os.O_WRONLY),
    }
    for name, call in calls.items():
        cases.expect(f"{name} in a directory that is not writable", errno.EACCES, BOB, call)
    cases.expect("stat in it", 0, BOB, lambda: os.stat(f"{closed}/file"))


def permission_bits(cases):
    """The first of owner, group and others that a user belongs to decides alone."""
    place = fresh("bits")
    accesses = [(os.O_RDONLY, 4), (os.O_WRONLY, 2), (os.O_RDWR, 6)]
    owners = [(ALICE, TEAM, ALICE, 6), (BOB, TEAM, ALICE, 3), (ROOT, ROOT, ALICE, 0)]
    for (owner, group, user, shift), bits in itertools.product(owners, range(8)):
        # All others may what this class may not: a wrong class would show.
        mode = 0o777 & ~(7 << shift) | bits << shift
        path = f"{place}/{owner}-{bits}"
        make(path, "file", owner, mode, group)
        for flags, needed in accesses:
            wanted = 0 if bits & needed == needed else errno.EACCES
            cases.expect(f"open {flags} of mode {mode:o}", wanted, user, lambda: opened(path, flags))
            cases.expect(f"open {flags} of mode {mode:o}", 0, ROOT, lambda: opened(path, flags))


def ownership(cases):
    """What only an owner may, whatever the permission bits say."""
    place = fresh("owned")
    path = f"{place}/file"
    past = (10**9, 10**9)
    for owner, user in itertools.product((ALICE, BOB), (ROOT, ALICE, BOB)):
        may = user in (ROOT, owner)
        wanted = 0 if may else errno.EPERM
        make(path, "file", owner, 0o666)
        cases.expect("chmod", wanted, user, lambda: os.chmod(path, 0o666))
        cases.expect("utime to a time", wanted, user, lambda: os.utime(path, past))
        cases.expect("utime to now, writable", 0, user, lambda: os.utime(path))
        cases.expect("chown to nobody else", 0 if may else errno.EPERM, user, lambda: os.chown(path, owner, -1))
        stranger = BOB if owner == ALICE else ALICE
        given = 0 if user == ROOT else errno.EPERM
        cases.expect("chown to another", given, user, lambda: os.chown(path, stranger, -1))
        os.chown(path, owner, owner)
        joined = 0 if user == ROOT or may and TEAM in GROUPS[user] else errno.EPERM
        cases.expect("chgrp to a group", joined, user, lambda: os.chown(path, -1, TEAM))
        os.chmod(path, 0o444)
        denied = 0 if may else errno.EACCES
        cases.expect("utime to now, not writable", denied, user, lambda: os.utime(path))
        unwritable = 0 if user == ROOT else errno.EACCES
        cases.expect("truncate, not writable", unwritable, user, lambda: os.truncate(path, 0))
        cases.expect("a user attribute, not writable", unwritable, user, lambda: os.setxattr(path, "user.a", b"1"))
        trusted = 0 if user == ROOT else errno.EPERM
        cases.expect("a trusted attribute", trusted, user, lambda: os.setxattr(path, "trusted.a", b"1"))
        os.unlink(path)


def sticky_directories(cases):
    """In a sticky directory a name goes only by its file's owner, the directory's owner, or root."""
    outside = fresh("outside")
    owners = (ROOT, ALICE, BOB)
    for of_directory, of_file, user in itertools.product(owners, (ALICE, BOB), owners):
        may = user in (ROOT, of_file, of_directory)
        wanted = 0 if may else errno.EPERM

        def place():
            folder = fresh("sticky")
            os.chown(folder, of_directory, of_directory)
            os.chmod(folder, 0o1777)
            make(f"{folder}/file", "file", of_file)
            make(f"{folder}/directory", "directory", of_file)
            make(f"{folder}/mine", "file", user)
            return folder

        calls = {
            "unlink": lambda at: os.unlink(f"{at}/file"),
            "rmdir": lambda at: os.rmdir(f"{at}/directory"),
            "rename": lambda at: os.rename(f"{at}/file", f"{at}/renamed"),
            "rename out": lambda at: os.rename(f"{at}/file", f"{outside}/{user}"),
            "rename over": lambda at: os.rename(f"{at}/mine", f"{at}/file"),
        }
        for name, call in calls.items():
            claim = f"{name} of {NAMES[of_file]}'s in {NAMES[of_directory]}'s sticky directory"
            folder = place()
            cases.expect(claim, wanted, user, lambda: call(folder))


def creation(cases):
    """What umask, set-group-id directories and default ACLs make of the mode that was asked for."""
    place = fresh("made")
    makers = {
        "file": lambda path: opened(path, os.O_CREAT | os.O_WRONLY),
        "directory": lambda path: os.mkdir(path, 0o777),
        "fifo": lambda path: os.mkfifo(path, 0o666),
    }
    asked = {"file": 0o666, "directory": 0o777, "fifo": 0o666}
    for inherits, umask, kind in itertools.product((False, True), (0, 0o022, 0o027, 0o077, 0o777), makers):
        folder = f"{place}/{inherits}-{umask:o}-{kind}"
        make(folder, "directory", ALICE, 0o2777 if inherits else 0o777, TEAM)

        def call():
            os.umask(umask)
            makers[kind](f"{folder}/new")

        cases.expect(f"making a {kind}", 0, BOB, call)
        found = os.lstat(f"{folder}/new")
        mode = asked[kind] & ~umask | (0o2000 if inherits and kind == "directory" else 0)
        claim = f"a {kind} made with umask {umask:o}, set-group-id {inherits}"
        cases.equal(claim, oct(stat.S_IMODE(found.st_mode)), oct(mode))
        cases.equal(claim, (found.st_uid, found.st_gid), (BOB, TEAM if inherits else BOB))


def set_group_id(cases):
    """Chmod keeps the set-group-id bit only for members of the group."""
    place = fresh("set-group-id")
    for user, group in itertools.product((ALICE, BOB), (TEAM, ALICE, BOB)):
        path = f"{place}/{user}-{group}"
        make(path, "file", user, 0o755, group)
        cases.expect("chmod 2755", 0, user, lambda: os.chmod(path, 0o2755))
        keeps = group == user or group in GROUPS[user]
        wanted = 0o2755 if keeps else 0o755
        cases.equal(f"set-group-id {group} of {NAMES[user]}", oct(stat.S_IMODE(os.stat(path).st_mode)), oct(wanted))


def main():
    os.umask(0)
    # The files are named from here: Python may check nothing on the way.
    os.chdir(sys.argv[1])
    os.chmod(".", 0o755)
    os.mkdir("who-may")
    os.chdir("who-may")
    cases = Cases()
    tables = [
        search_permission,
        write_permission,
        permission_bits,
        ownership,
        sticky_directories,
        creation,
        set_group_id,
    ]
    for table in tables:
        before = cases.tried
        table(cases)
        print(f"{table.__name__}: {cases.tried - before}")
    for wrong in cases.wrong:
        print(f"wrong: {wrong}")
    print(f"note: {cases.tried} calls by three users, {len(cases.wrong)} wrong")
    sys.exit(1 if cases.wrong else 0)


if __name__ == "__main__":
    main()
