"""Real disks go into an archive and come back over noise: sound, with the same files, and able to boot."""

import json
import shutil

from lib import HERE, Failed, call, run
from volumes import compare, look

BOOT = HERE.parents[1] / "scripts" / "boot-image.sh"
BOOT_S = 900
NOISE_BYTES = 16 << 20
# Images whose names begin so boot where their first sector has a boot loader. Newer kernels end early in an emulation.
BOOTS = "debian-12"
FREE = ("leave", "zero", "discard")


class Disks:
    """Images that all go into one archive."""

    def __init__(self, onefold, folder, dice, counts):
        self.onefold, self.folder, self.dice, self.counts = onefold, folder, dice, counts
        self.archive, self.target = folder / "archive", folder / "target.raw"
        call(onefold, "archive", "create", "--quiet", self.archive)

    def trip(self, image, boots):
        """Captures an image, installs it over noise, and compares all file systems and files; boots it where wanted."""
        name = image.stem
        before = look(self.onefold, image, self.folder)
        said = call(self.onefold, "image", "capture", "--json", "--quiet", self.archive, image, name, timeout=900)
        captured = json.loads(said)["images"][0]
        expect_sums(captured, image.stat().st_size)
        self.fill_with_noise(captured["size_bytes"])
        # Most often free blocks keep the noise: anything that a guest reads of them shows.
        free = self.dice.choice(["leave", "leave", *FREE])
        words = ("image", "install", "--quiet", "--force", "--verify", "--free", free)
        call(self.onefold, *words, self.archive, name, self.target, timeout=900)
        systems, files = compare(f"{name} with --free {free}", before, look(self.onefold, self.target, self.folder))
        self.counts["images"] += 1
        self.counts["file systems"] += systems
        self.counts["files"] += files
        if boots:
            self.boot()
        self.target.unlink()

    def boot(self):
        """Boots the installed disk. An emulated kernel that a busy machine starves panics: it has a second try."""
        command = (BOOT, "--snapshot", "--timeout", BOOT_S, self.target)
        if run(command, timeout=BOOT_S + 120).returncode != 0:
            self.counts["second tries"] += 1
            call(*command, timeout=BOOT_S + 120)
        self.counts["boots"] += 1

    def fill_with_noise(self, length):
        """Makes the target a file of noise; no part of it is a hole."""
        with open(self.target, "wb") as file:
            for start in range(0, length, NOISE_BYTES):
                file.write(self.dice.randbytes(min(NOISE_BYTES, length - start)))

    def finish(self):
        """Checks all data of the archive, and removes it."""
        call(self.onefold, "archive", "check", "--data", "--quiet", self.archive, timeout=900)
        shutil.rmtree(self.archive)


def expect_sums(captured, length):
    """Each byte of the disk counts once."""
    parts = [captured[f"{part}_bytes"] for part in ("free", "zero", "data")]
    if captured["size_bytes"] != length or sum(parts) != length:
        raise Failed(f"{captured['image']}: {parts} bytes do not add up to {length}")


def can_boot(image):
    """Tells whether an installed image is expected to boot here."""
    with open(image, "rb") as file:
        sector = file.read(512)
    return image.stem.startswith(BOOTS) and sector[510:] == b"\x55\xaa" and any(sector[:440])
