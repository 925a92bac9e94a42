"""A whole run of the FBS paper's experiments at the tiniest size, as root where there is a program to measure."""

import unittest

import whole


@whole.needs_root_and_onefold
@whole.needs_synthetic
@whole.needs_programs("mke2fs", "debugfs", "mkfs.xfs", "ssh-keygen")
class WholeRun(whole.WholeRunCase):
    program = "fbs.py"

    def test_every_experiment_can_be_repeated(self):
        self.run_to_its_end("--charts", self.folder / "charts")
        document = self.document("fbs.json")
        self.assertEqual(document["failures"], [])
        done = set(document["experiments"])
        left_out = {line.split(":")[0] for line in document["left_out"]}
        self.assertEqual(done | left_out, whole_names())
        self.assertLessEqual({"list-1", "table-3", "table-4", "calls"}, done)
        self.assertTrue((self.folder / "charts" / "fbs-figure-6.svg").is_file())
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing(self):
        self.interrupt_once(lambda: list(self.folder.glob("work/*.device")), "--only", "calls")


def whole_names():
    """Returns the names of all experiments."""
    from fbs_rows import EXPERIMENTS

    return {experiment.name for experiment in EXPERIMENTS}


if __name__ == "__main__":
    unittest.main()
