"""Verbs of an archive are killed at any moment. What was acknowledged stays; what was not is there whole, or not at all."""

import hashlib
import json
import shutil
import subprocess
import time
from contextlib import ExitStack

from lib import Failed, call, expect_no_panic, make_guests, run, started

GUESTS = (1, 2, 3)
# Of noise that each source has besides its guest: a capture has something to store.
NOISE_BYTES = 8 << 20
# Verbs that a build may lack.
OPTIONAL = ("gc", "repair")
# Nothing is kept for slow readers, and silent writers are given up.
HASTE = ("--delay", "0s", "--silence", "0s")
READ_BYTES = 1 << 20


class Kills:
    """An archive whose verbs are killed, and what it must hold."""

    def __init__(self, onefold, folder, dice, counts):
        self.onefold, self.folder, self.dice, self.counts = onefold, folder, dice, counts
        self.archive, self.target = folder / "archive", folder / "target.raw"
        self.guests = make_guests(folder / "guests", GUESTS)
        self.seconds = {}
        verbs = call(onefold, "archive", "--help")
        self.verbs = ["capture", "capture", "install", "rm", *(verb for verb in OPTIONAL if f"\n  {verb} " in verbs)]

    def round(self, kills):
        """Begins an archive, kills verbs on it so often, and looks at all that it must hold after each."""
        shutil.rmtree(self.archive, ignore_errors=True)
        call(self.onefold, "archive", "create", "--quiet", self.archive)
        # Digests of the exports, by image and version: those that must be there.
        self.acknowledged, self.next = {}, 0
        self.first_images()
        for _ in range(kills):
            verb = self.dice.choice(self.verbs)
            what = getattr(self, verb)()
            self.expect_whole(what)
        # What killed verbs have left hinders nobody.
        self.acknowledge(self.capture_words(self.source(), "last"), "last")
        self.expect_whole("the last capture")
        if "gc" in self.verbs:
            self.expect_collected()
        self.counts["rounds"] += 1

    def expect_collected(self):
        """Collects what killed verbs have left."""
        call(self.onefold, "archive", "gc", "--quiet", *HASTE, self.archive)
        self.expect_whole("the last collection")
        left = json.loads(call(self.onefold, "archive", "check", "--json", "--quiet", self.archive))["leftovers"]
        if left:
            raise Failed(f"a collection has left {left} packs of no image")

    def first_images(self):
        """Captures two images, and learns how long verbs take."""
        for name in ("first", "second"):
            self.seconds["capture"] = self.acknowledge(self.capture_words(self.source(), name), name)
        self.seconds["install"] = self.seconds["rm"] = self.seconds["capture"]
        for verb in OPTIONAL:
            self.seconds[verb] = self.seconds["capture"]

    # Verbs. Each draws what to do, is killed, and returns what it was.

    def capture(self):
        name = f"image-{self.next}"
        self.next += 1
        words = self.capture_words(self.source(), name)
        is_done, what = self.killed("capture", words)
        if is_done:
            self.acknowledged[f"{name}@1"] = self.exported(f"{name}@1")
        elif f"{name}@1" in self.listed():
            # Its entry was made, and the process killed before it could say so: it is an image as any other.
            self.acknowledged[f"{name}@1"] = self.exported(f"{name}@1")
            self.counts["entries"] += 1
        return what

    def install(self):
        image = self.dice.choice(sorted(self.acknowledged))
        length = self.guests[0].stat().st_size
        noise = self.dice.randbytes(READ_BYTES)
        with open(self.target, "wb") as file:
            for _ in range(0, length, READ_BYTES):
                file.write(noise)
        words = (self.onefold, "image", "install", "--quiet", "--force", self.archive, image, self.target)
        is_done, what = self.killed("install", words)
        with open(self.target, "rb") as file:
            beginning = file.read(READ_BYTES)
        is_untouched, is_blank = beginning == noise, not any(beginning[:4096])
        if is_done or not (is_untouched or is_blank):
            checked = run(("e2fsck", "-fn", self.target))
            if checked.returncode != 0:
                raise Failed(f"{what}: half a disk was left: {checked.stdout}{checked.stderr}")
        call(*words)
        call("e2fsck", "-fn", self.target)
        return what

    def rm(self):
        # Two stay.
        if len(self.acknowledged) <= 2:
            return self.capture()
        image = self.dice.choice(sorted(self.acknowledged))
        is_done, what = self.killed("rm", (self.onefold, "image", "rm", "--quiet", self.archive, image))
        if image not in self.listed():
            del self.acknowledged[image]
        elif is_done:
            raise Failed(f"{what}: {image} was removed, and is listed")
        return what

    def gc(self):
        # With the delays of everyday use, little would come free so soon.
        haste = self.dice.choice([(), HASTE])
        return self.killed("gc", (self.onefold, "archive", "gc", "--quiet", *haste, self.archive))[1]

    def repair(self):
        return self.killed("repair", (self.onefold, "archive", "repair", "--quiet", self.archive))[1]

    # What they share.

    def source(self):
        """Makes a disk: a guest with noise of its own, part of it in blocks that are free again."""
        disk, noise = self.folder / "source.raw", self.folder / "noise"
        shutil.copyfile(self.dice.choice(self.guests), disk)
        noise.write_bytes(self.dice.randbytes(NOISE_BYTES))
        for command in (f"write {noise} own", f"write {noise} gone", "rm gone"):
            call("debugfs", "-w", "-R", command, disk)
        return disk

    def capture_words(self, source, name):
        return (self.onefold, "image", "capture", "--quiet", self.archive, source, name)

    def acknowledge(self, words, name):
        """Captures an image that nobody kills; returns the seconds."""
        began = time.monotonic()
        call(*words)
        seconds = time.monotonic() - began
        self.acknowledged[f"{name}@1"] = self.exported(f"{name}@1")
        return seconds

    def killed(self, verb, words):
        """Kills a command at any moment. Returns whether it had ended well before, and what was done."""
        pause = self.dice.uniform(0, self.seconds[verb] * 1.1)
        what = f"`{verb}` killed after {pause:.3f} s"
        said = self.folder / "said"
        with open(said, "wb") as file, started(words, stdout=file, stderr=file) as process:
            began = time.monotonic()
            try:
                process.wait(pause)
            except subprocess.TimeoutExpired:
                process.kill()
            code = process.wait()
            seconds = time.monotonic() - began
        text = said.read_text(encoding="utf-8", errors="replace")
        expect_no_panic(text, what)
        if code not in (0, -9):
            raise Failed(f"{what}: it ended with {code}: {text}")
        if code == 0:
            # It was faster than it was thought to be.
            self.seconds[verb] = seconds
        self.counts["kills" if code else "ends"] += 1
        return code == 0, what

    def listed(self):
        lines = call(self.onefold, "image", "list", self.archive).splitlines()
        return {line.split()[0] for line in lines if "@" in line}

    def exported(self, image):
        """Returns the digest of an export."""
        with ExitStack() as stack:
            words = (self.onefold, "image", "export", "--quiet", self.archive, image, "-")
            process = stack.enter_context(started(words, stdout=subprocess.PIPE))
            digest = hashlib.sha256()
            while part := process.stdout.read(READ_BYTES):
                digest.update(part)
            if process.wait() != 0:
                raise Failed(f"the export of {image} ended with {process.returncode}")
        return digest.hexdigest()

    def expect_whole(self, what):
        """All that was acknowledged is there and as it was, and nothing else."""
        call(self.onefold, "archive", "check", "--data", "--quiet", self.archive)
        listed = self.listed()
        if listed != set(self.acknowledged):
            raise Failed(f"{what}: {sorted(listed)} are listed, not {sorted(self.acknowledged)}")
        image = self.dice.choice(sorted(self.acknowledged))
        if self.exported(image) != self.acknowledged[image]:
            raise Failed(f"{what}: {image} has changed")
        self.counts["looks"] += 1
