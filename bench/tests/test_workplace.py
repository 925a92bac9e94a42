"""The folder of a run."""

import os
import tempfile
import unittest
from pathlib import Path

import paths  # noqa: F401
from lib import workplace


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


if __name__ == "__main__":
    unittest.main()
