"""A file system with disks of guests, on a loop device, and the program at work on it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent.parent / "clients" / "tools"
sys.path.insert(0, str(CLIENTS))
# pylint: disable=wrong-import-position
from image_sums import sum_of  # noqa: E402

RUN_S = 300
GUEST_BYTES = 48 << 20
# An entry of a map, as `filefrag` prints it: first and last block on the disk.
ENTRY = re.compile(r" *\d+: *\d+\.\. *\d+: *(\d+)\.\. *(\d+):.*")
# What a user of the tests is that is not root.
USER = 65534


class Failed(Exception):
    """Something did not go as it must."""


@contextmanager
def started(command, **options):
    """Has a program run meanwhile. One that has not ended by then is killed, with all that it has started."""
    words = [str(word) for word in command]
    process = subprocess.Popen(words, start_new_session=True, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            # The group is there as long as nobody has waited for its leader.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()


def run(command, timeout=RUN_S, **options):
    """Runs a program to its end, and returns its exit code and what it printed."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with started(command, **pipes, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"`{' '.join(process.args)}` did not end within {timeout} s") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def call(*command, **options):
    """Runs a tool that must succeed, and returns what it printed."""
    done = run(command, **options)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(done.args)}` ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def ignored(*command):
    """Runs a tool that takes away what may be gone already."""
    subprocess.run([str(word) for word in command], capture_output=True, timeout=RUN_S, check=False)


def make_guests(folder, seeds):
    """Makes disks of guests with the same packages at places of their own, and returns their paths."""
    folder.mkdir()
    made = []
    for seed in seeds:
        tree, image = folder / "tree", folder / f"{seed}.raw"
        shutil.rmtree(tree, ignore_errors=True)
        call(sys.executable, CLIENTS / "make_debian.py", tree, f"guest-{seed}", seed)
        call("truncate", "-s", GUEST_BYTES, image)
        call("mke2fs", "-q", "-F", "-t", "ext4", "-b", 4096, "-d", tree, image)
        made.append(image)
    shutil.rmtree(tree)
    return made


class Host:
    """A file system of a kind, mounted, with a folder for images."""

    def __init__(self, onefold, folder, kind, size_bytes=1 << 30):
        self.onefold, self.kind, self.size_bytes = onefold, kind, size_bytes
        self.file, self.mount = folder / f"{kind}.raw", folder / kind
        self.images, self.volume = self.mount / "images", self.mount / "images" / "common.img"
        self.sums = {}
        self.device, self.closing = None, ExitStack()

    def __enter__(self):
        with ExitStack() as stack:
            stack.callback(self.file.unlink, missing_ok=True)
            with open(self.file, "wb") as file:
                file.truncate(self.size_bytes)
            self.device = call("losetup", "--find", "--show", self.file).strip()
            stack.callback(ignored, "losetup", "--detach", self.device)
            self.mount.mkdir()
            stack.callback(self.mount.rmdir)
            call(f"mkfs.{self.kind}", "-q", self.device)
            call("mount", self.device, self.mount)
            stack.callback(ignored, "umount", "--lazy", self.mount)
            self.closing = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.closing.close()

    def sync(self):
        call("sync", "-f", self.mount)

    def fill(self, made):
        """Has the file system hold copies of guests and nothing else, and notes what they hold."""
        shutil.rmtree(self.images, ignore_errors=True)
        for left in self.mount.glob(".onefold*"):
            shutil.rmtree(left)
        self.images.mkdir()
        for image in made:
            call("cp", "--sparse=always", image, self.images)
        self.remember()

    def remember(self, pattern="*.raw"):
        """Notes what images hold."""
        self.sync()
        self.sums = {path: sum_of(path) for path in sorted(self.images.glob(pattern))}

    def expect_whole(self, when):
        """All images hold what they held."""
        changed = [path.name for path, expected in self.sums.items() if sum_of(path) != expected]
        if changed:
            raise Failed(f"{when}: {', '.join(changed)} changed")

    def words(self, *arguments):
        """The command line of a verb of `share`."""
        return [self.onefold, "share", *map(str, arguments)]

    def share(self, *arguments):
        """Runs a verb of `share` that must succeed, and returns its result."""
        return json.loads(call(*self.words(*arguments), "--json", "--quiet"))

    def expect_sound_volume(self, when):
        """The common volume is as it should be, and no draft of another one is left."""
        drafts = [path.name for path in self.images.glob(".*onefold-*")]
        if drafts:
            raise Failed(f"{when}: {drafts} are left")
        call(*self.words("common", "check", self.volume))
        call("e2fsck", "-fn", self.volume)

    def blocks(self):
        """How many blocks of the disk the images take."""
        self.sync()
        return len(blocks_of(self.images.glob("*.raw")))


def blocks_of(paths):
    """Returns the blocks of the disk that files have data in."""
    taken = set()
    for path in paths:
        for line in call("filefrag", "-v", "-b4096", path).splitlines():
            found = ENTRY.match(line)
            if found and "unwritten" not in line:
                taken.update(range(int(found[1]), int(found[2]) + 1))
    return taken


def panicked(said):
    """Tells whether the program has met a state that it holds for impossible."""
    return "panicked at" in said


def expect_no_panic(said, when):
    if panicked(said):
        raise Failed(f"{when}: {said}")
