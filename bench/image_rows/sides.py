"""Sides of the table of archives: programs that store disk images and return them, each with its own settings.

A side stores images one after the other in one folder, and returns any of them. Everything that it does for an image
is one shell command, which is timed as a whole. Where a program does not flush what it wrote, the command does so.
"""

import os
import shlex
import shutil

from guest_rows.programs import timed
from lib import system
from lib.rows.beside import ONEFOLD

# Flushes the file system of a folder: for programs that leave their files to the page cache.
FLUSH = "sync -f {folder}"
# Of the repositories that have one; the same for all, as secrecy is not what is compared.
PASSWORD = "bench"


class Side:
    """A program with settings."""

    # What the table calls it.
    name = ""
    # What `--help` and the document say of it: the settings.
    settings = ""
    # Programs without which it is left out.
    needed = ()
    # Whether it stores equal parts of several images once.
    deduplicates = True
    # Whether a run that measures defaults only has it. One that is much slower than all others is left out there.
    is_default = True
    # Whether quick runs have it.
    in_quick = True
    # What it sets in the environment, as words of the shell; {folder} is its own folder.
    environment = ""

    def __init__(self, programs):
        self.programs = programs

    def is_there(self):
        return all(map(shutil.which, self.needed))

    # Scripts. {folder}, {image}, {name} and {target} are replaced by quoted words.

    create_script = "true"
    store_script = ""
    # Makes the file {target}, or a file in the folder {target} where `restores_to_folder` says so.
    restore_script = ""
    restores_to_folder = False

    def create(self, folder):
        """Makes an empty store in a folder."""
        (folder / "store").mkdir(parents=True)
        self._run(self.create_script, folder)

    def store(self, folder, image, name):
        """Stores an image under a name; returns what that took."""
        return self._run(self.store_script, folder, image=image, name=name)

    def restore(self, folder, image, name, target):
        """Writes a stored image to a new file; returns what that took. `image` is where it was stored from."""
        return self._run(self.restore_script, folder, image=image, name=name, target=target)

    def restored_file(self, image, target):
        """Returns the file that `restore` has made."""
        return target

    def stored_bytes(self, folder):
        """Returns the bytes of all files of the store, and the bytes that they take on the disk."""
        paths = [path for path in (folder / "store").rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in paths), system.stored_bytes(*paths)

    def _run(self, script, folder, **words):
        quoted = {key: shlex.quote(os.fspath(word)) for key, word in {"folder": folder, **words}.items()}
        text = f"{self.environment} {script}".format(onefold=shlex.quote(str(self.programs.onefold)), **quoted)
        return timed("bash", "-o", "pipefail", "-ec", text)


class Onefold(Side):
    """An archive with its defaults."""

    name = ONEFOLD
    settings = "defaults: units along files, zstd level 3"
    create_script = "{onefold} archive create --quiet {folder}/store"
    store_script = "{onefold} image capture --quiet {folder}/store {image} {name}"
    restore_script = "{onefold} image install --quiet {folder}/store {name} {target}"

    @staticmethod
    def archive(folder):
        """Returns the archive of a folder."""
        return folder / "store"


def sides(programs, settings, is_wanted=lambda side: True):
    """Returns Onefold and those peers that are installed and belong to a run with these settings."""
    from .dedup import DEDUPLICATING
    from .plain import PLAIN

    known = [kind(programs) for kind in (*DEDUPLICATING, *PLAIN)]
    every = not settings.defaults_only
    is_quick = settings.mode == "quick"
    chosen = [side for side in known if (side.is_default or every) and (side.in_quick or not is_quick)]
    peers = [side for side in chosen if side.is_there() and is_wanted(side)]
    return [Onefold(programs), *peers]
