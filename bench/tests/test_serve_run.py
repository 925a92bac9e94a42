"""A whole run of the rows about served images at the tiniest size, as root where there are programs to measure with."""

import unittest
from pathlib import Path

import whole

# One of each kind: a server alone, a machine that installs from it, and one stream to several machines.
ROWS = ("chunks", "last-chunk", "memory")
# Of a machine that makes no bridges.
MAY_LACK = {"growth"}
EXAMPLE = whole.ONEFOLD and Path(whole.ONEFOLD).parent / "examples" / "chunk_speed"


@whole.needs_root_and_onefold
@whole.needs_programs("mke2fs")
@unittest.skipUnless(EXAMPLE and EXAMPLE.exists(), "needs the example chunk_speed beside it")
class WholeRun(whole.WholeRunCase):
    program = "serve.py"

    def test_a_row_of_each_kind_can_be_measured(self):
        self.run_to_its_end(*(word for row in {*ROWS, *MAY_LACK} for word in ("--only", row)))
        self.assertEqual(self.assert_measured("serve.json") - MAY_LACK, set())
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        self.interrupt_once(self.has_archive, "--only", "memory", "--rounds", "100")

    def has_archive(self):
        return (self.folder / "work" / "archive").exists()


if __name__ == "__main__":
    unittest.main()
