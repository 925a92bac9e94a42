"""The folder of a run."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import paths  # noqa: F401
from lib import system, workplace


class Taken(unittest.TestCase):
    def test_the_folder_inside_is_named_as_in_the_list_of_mounts(self):
        # With `--dir ../target` no mount was ever found in that list, where no name has `..`: each turn mounted over
        # the one before, and the end of the run could not remove its folder.
        with tempfile.TemporaryDirectory() as place:
            os.mkdir(f"{place}/real")
            os.symlink("real", f"{place}/link")
            for name in ("real/../real", "link"):
                with workplace.taken(Path(place) / name, 0) as work:
                    self.assertEqual(work, Path(place).resolve() / "real" / "work")

    @unittest.skipUnless(os.geteuid() == 0, "mounts")
    def test_what_is_mounted_while_the_folder_is_removed_is_unmounted(self):
        # A run was interrupted while its daemon mounted: nothing was mounted at the look, and then the folder could not be
        # removed.
        with tempfile.TemporaryDirectory() as place:
            work = Path(place).resolve() / "work"
            mountpoint = work / "pool.mount"
            mountpoint.mkdir(parents=True)
            looked = []

            def look_before_it_is_mounted(path):
                if not looked:
                    looked.append(path)
                    subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)
                    return False
                return was_mounted(path)

            was_mounted = system.is_mounted
            with mock.patch.object(system, "is_mounted", look_before_it_is_mounted):
                workplace.clear_leftovers(work)
            self.assertFalse(work.exists())


if __name__ == "__main__":
    unittest.main()
