"""How captures with different kinds of units are made and shown."""

import json
import stat
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import paths  # noqa: F401
import units
from lib.system import BenchError

MIB = 1 << 20
# Stands for the program: writes its arguments down, and answers as it does.
PROGRAM = """#!/usr/bin/env python3
import json, sys
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[3].endswith("broken"):
    sys.exit(1)
image = {{"name": "a", "data_bytes": 100, "new_bytes": 50, "stored_bytes": 20}}
print(json.dumps({{"images": [image]}} if sys.argv[1] == "image" else {{"stored_bytes": 70}}))
"""


def image(name, data, new, stored):
    return {"name": name, "data_bytes": data * MIB, "new_bytes": new * MIB, "stored_bytes": stored * MIB}


def cells(text, beginning):
    line = next(line for line in text.splitlines() if line.startswith(beginning))
    return [cell.strip() for cell in line.strip("|").split("|")]


class Captures(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = Path(self.folder.name) / "log"
        self.program = Path(self.folder.name) / "onefold"
        self.program.write_text(PROGRAM.format(log=str(self.log)), encoding="utf-8")
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def test_all_images_go_into_one_new_archive_of_the_kind(self):
        place = Path(self.folder.name)
        captured = units.capture(self.program, place, "set", units.KINDS[1], [Path("/a.raw"), Path("/b.raw")])
        self.assertEqual((captured.sum("new_bytes"), captured.total_bytes), (100, 70))
        lines = self.log.read_text(encoding="utf-8").splitlines()
        archive = lines[0].split()[2]
        self.assertEqual(lines, [
            f"archive create {archive} --unit files --unit-size 128K --quiet --json",
            f"image capture {archive} /a.raw --quiet --json",
            f"image capture {archive} /b.raw --quiet --json",
            f"archive stat {archive} --quiet --json",
        ])  # fmt: skip
        self.assertFalse(Path(archive).parent.exists(), "the archive is removed")

    def test_a_capture_that_fails_ends_the_run(self):
        with self.assertRaisesRegex(BenchError, "archive stat"):
            units.run(self.program, "archive", "stat", "broken")


class Groups(unittest.TestCase):
    def groups(self, *names, quick=False, is_built=lambda path: True):
        arguments = SimpleNamespace(sets=list(names), quick=quick)
        with mock.patch.object(Path, "exists", autospec=True, side_effect=is_built):
            return units.groups_of(arguments)

    def test_a_whole_run_has_the_sets_and_pairs_of_the_corpus(self):
        groups = self.groups()
        self.assertEqual(set(groups), {*(f"`{name}`" for name in units.SETS), *units.PAIRS})
        for name, pair in units.PAIRS.items():
            self.assertEqual(tuple(image.stem for image in groups[name]), pair)

    def test_a_set_that_is_not_built_whole_is_left_out(self):
        groups = self.groups(is_built=lambda path: "services-3" not in path.name)
        self.assertNotIn("`fbs`", groups)
        self.assertEqual(set(self.groups(quick=True)), {"`demo`"})
        with self.assertRaisesRegex(BenchError, "make corpus"):
            self.groups("fbs", is_built=lambda path: False)


class Tables(unittest.TestCase):
    FIGURES = {
        "`demo`": {
            units.KINDS[1]: units.Captured([image("one", 600, 500, 200), image("two", 424, 100, 50)], 260 * MIB, 3.0),
            units.KINDS[5]: units.Captured([image("one", 600, 550, 220), image("two", 424, 300, 99)], 330 * MIB, 4.0),
        }
    }

    def test_bytes_add_up_under_their_heads(self):
        text = units.stored(self.FIGURES)
        shown = dict(zip(cells(text, "| images"), cells(text, "| `demo`, 2 images")))
        self.assertEqual(shown["units, each once"], "600.0 MiB")
        self.assertEqual((shown["stored"], shown["archive"]), ("250.0 MiB", "260.0 MiB"))
        self.assertEqual(shown["tables, index and the like"], "10.0 MiB")
        self.assertEqual((shown["of the data"], shown["CPU for each GiB of data"]), ("25.4 %", "3.00 s"))
        self.assertEqual(len({line.count("|") for line in text.splitlines() if line.startswith("|")}), 1)

    def test_the_last_image_stands_beside_those_before_it(self):
        text = units.last_images(self.FIGURES)
        shown = dict(zip(cells(text, "| images"), cells(text, "| `demo`")))
        self.assertEqual((shown["last image"], shown["new units"], shown["of its data"]), ("two", "100.0 MiB", "23.6 %"))

    def test_figures_for_programs_can_be_written(self):
        written = json.loads(json.dumps(units.document(self.FIGURES)))
        self.assertEqual(written["`demo`"][units.KINDS[1].title]["bytes"], 260 * MIB)


if __name__ == "__main__":
    unittest.main()
