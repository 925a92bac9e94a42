"""A whole run of the paper's experiments at the tiniest size, as root where there is a program to measure."""

import unittest

import whole


@whole.needs_root_and_onefold
class WholeRun(whole.WholeRunCase):
    program = "paper.py"

    def test_every_experiment_can_be_repeated_with_every_variant(self):
        self.run_to_its_end("--charts", self.folder / "charts")
        document = self.document("paper.json")
        self.assertTrue(document["complete"])
        everybody = {"J", "S", "SJ", "all", "defaults", "ext4"}
        for series in ("write", "read", "duplicate", "insert", "insert-2", "fetch-1", "fetch-2"):
            self.assertEqual(set(document["values"][series]), everybody, series)
        self.assertEqual(set(document["values"]["recovery"]), everybody - {"S"})
        self.assertEqual(len(list((self.folder / "charts").glob("*.svg"))), 6)
        self.assert_nothing_is_left()

    def test_a_side_that_fails_is_named_and_the_others_are_measured(self):
        # A filter that no pool can have: only the paper's variants are given one.
        words = ("--only", "streams", "--variant", "SJ", "--variant", "ext4", "--filter-index-bits", "99")
        out, _ = self.run_to_its_end(*words, code=1)
        self.assertIn("- failed: streams, LiveDFS-SJ, round 1", out)
        self.assertEqual(set(self.document("paper.json")["values"]["write"]), {"ext4"})
        self.assert_nothing_is_left()


if __name__ == "__main__":
    unittest.main()
