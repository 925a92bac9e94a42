"""The verdicts of long targets, with a stand-in for cargo that says what tests would."""

import os
import signal
import subprocess
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

TARGET = Path(__file__).resolve().parent / "target.sh"

CARGO = """\
    #!/bin/bash
    [[ $1 != --version ]] || { echo 'cargo 1.999.0'; exit; }
    [[ " $* " != *' --no-run '* ]] || exit 0
    echo "$ONEFOLD_SEED" >>"$SEEDS"
    cut='of recoveries that were cut; recovery took 0.40 ms (median), 31.50 ms (worst)'
    case $CARGO_DOES in
        pass | slow)
            [[ $CARGO_DOES == pass ]] || sleep 1.1
            {
                echo "crash: import, seed $ONEFOLD_SEED: 77 events, 1200 images, 34 of them $cut"
                echo "crash: import, all seeds: 1200 images, 34 of them $cut"
                echo "crash: anything, seed $ONEFOLD_SEED: 9 events, 500 images, 6 of them $cut"
            } >&2 ;;
        fail)
            echo "crash: import, seed $ONEFOLD_SEED: 77 events, 40 images, 2 of them $cut" >&2
            exit 101 ;;
        nothing) echo 'test result: ok. 0 passed' ;;
        hang) sleep 600 ;;
    esac
"""


class Verdict(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        cargo = self.folder / "cargo"
        cargo.write_text(textwrap.dedent(CARGO), encoding="utf-8")
        cargo.chmod(0o755)

    def start(self, does, name="crash", **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("ONEFOLD", "LONG"))}
        path = f"{self.folder}:{os.environ['PATH']}"
        environment.update(PATH=path, CARGO_DOES=does, SEEDS=str(self.folder / "seeds"), **variables)
        return subprocess.Popen(
            [TARGET, name], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def verdict(self, does, **variables):
        process = self.start(does, **variables)
        out, _ = process.communicate()
        return process.returncode, out.splitlines()[-1]

    def seeds(self):
        return (self.folder / "seeds").read_text(encoding="utf-8").split()

    def test_a_target_that_passed_says_what_it_tried(self):
        self.assertEqual(self.verdict("pass", ONEFOLD_SEED="5"),
                         (0, "crash: passed, seed 5, 1,700 images, 40 of them of recoveries that were cut"))

    def test_without_a_seed_it_draws_one_and_says_which(self):
        _, said = self.verdict("pass")
        self.assertIn(f", seed {self.seeds()[0]}, ", said)

    def test_a_failed_target_says_so_and_what_it_tried_before(self):
        self.assertEqual(self.verdict("fail", ONEFOLD_SEED="5"),
                         (101, "crash: failed, seed 5, 40 images, 2 of them of recoveries that were cut"))

    def test_a_target_that_tried_nothing_has_failed(self):
        self.assertEqual(self.verdict("nothing", ONEFOLD_SEED="5"),
                         (1, "crash: failed, seed 5, 0 images, 0 of them of recoveries that were cut"))

    def test_within_a_time_rounds_with_new_seeds_follow_each_other(self):
        code, said = self.verdict("slow", ONEFOLD_SEED="5", LONG_SECONDS="4")
        self.assertEqual(code, 0)
        seeds = self.seeds()
        self.assertGreaterEqual(len(seeds), 2)
        self.assertEqual(seeds, [str(5 + 1000 * round_no) for round_no in range(len(seeds))])
        self.assertIn(f" {1700 * len(seeds):,} images", said)

    def test_an_interrupted_target_has_failed(self):
        process = self.start("hang", ONEFOLD_SEED="5")
        deadline = time.monotonic() + 30
        while not (self.folder / "seeds").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate()
        self.assertEqual((process.returncode, out.splitlines()[-1]),
                         (143, "crash: failed, seed 5, 0 images, 0 of them of recoveries that were cut"))

    def test_a_target_that_is_none_is_wrong_usage(self):
        process = self.start("pass", name="nothing")
        out, _ = process.communicate()
        self.assertEqual(process.returncode, 2)
        self.assertIn("there is no long target `nothing`", out)


if __name__ == "__main__":
    unittest.main()
