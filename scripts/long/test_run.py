"""The driver of the long targets, with stand-ins for them."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

import run

# Does what the variable with the target's name says; without one it passes.
STAND_IN = """\
    #!/bin/bash
    action=${1//-/_}
    # Before the call is noted: a test interrupts it from then on.
    [[ ${!action-pass} != hang ]] || trap 'echo "$1: failed, seed 1, 3 things"; exit 143' TERM
    echo "$1 $LONG_SECONDS $ONEFOLD_SEED" >>"$CALLS"
    case ${!action-pass} in
        pass) echo "$1: passed, seed $ONEFOLD_SEED, 1,234 things" ;;
        fail) echo "the cause"; echo "$1: failed, seed 77, 12 things"; exit 1 ;;
        silent) echo "it ends without a verdict" ;;
        lie) echo "$1: passed, seed 1, 5 things"; exit 3 ;;
        early) echo "$1: passed, seed 1, 5 things"; echo "$1: failed, seed 1, 6 things"; exit 1 ;;
        other) echo "other: passed, seed 1, 5 things" ;;
        hang) sleep 600 & wait ;;
    esac
"""


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "target"
        self.program.write_text(textwrap.dedent(STAND_IN), encoding="utf-8")
        self.program.chmod(0o755)
        self.document = self.folder / "document.md"
        self.document.write_text(f"before\n\n{run.BEGIN}\n{run.END}\n\nafter\n", encoding="utf-8")
        self.calls = self.folder / "calls"

    def words(self, *words):
        places = {"--program": self.program, "--document": self.document, "--logs": self.folder / "logs"}
        return [*(str(word) for place in places.items() for word in place), "--seed", "42", *words]

    def start(self, *words, **actions):
        environment = {**os.environ, "CALLS": str(self.calls), **actions}
        command = [sys.executable, run.HERE / "run.py", *self.words(*words)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def drive(self, *words, **actions):
        """Returns the exit code and the lines that the driver wrote."""
        process = self.start(*words, **actions)
        out, err = process.communicate()
        self.assertNotIn("Traceback", err)
        return process.returncode, out.splitlines()

    def called(self):
        lines = self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []
        return [line.split() for line in lines]

    def rows(self):
        text = self.document.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("before\n\n") and text.endswith("\n\nafter\n"), text)
        rows = [line for line in text.splitlines() if line.startswith("| `")]
        return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]

    def test_all_targets_run_with_the_seed_and_their_verdicts_are_written_into_the_table(self):
        code, said = self.drive("--record")
        self.assertEqual(code, 0)
        self.assertEqual([name for name, _, seed in self.called() if seed == "42"], list(run.SHARES))
        self.assertEqual(said[-1], f"long: {len(run.SHARES)} of {len(run.SHARES)} targets passed")
        wanted = [[f"`{name}`", "passed", "1,234 things", "42"] for name in run.SHARES]
        self.assertEqual([row[:4] for row in self.rows()], wanted)

    def test_targets_after_a_failed_one_run_and_the_exit_code_and_the_table_tell_of_it(self):
        code, said = self.drive("--record", "crash", "damage", "races", crash="fail")
        self.assertEqual(code, 1)
        self.assertEqual([call[0] for call in self.called()], ["crash", "damage", "races"])
        self.assertIn("the cause", said)
        passed = [f"{name}: passed, seed 42, 1,234 things" for name in ("damage", "races")]
        self.assertEqual(said[-4:-1], ["crash: failed, seed 77, 12 things", *passed])
        self.assertTrue(said[-1].startswith("long: 2 of 3 targets passed, failed: crash; see "), said[-1])
        self.assertEqual([row[1] for row in self.rows()], ["**failed**", "passed", "passed"])

    def test_a_target_passes_only_by_its_own_last_verdict_and_exit_code(self):
        without = "no verdict, exit code 0"
        told = {"silent": without, "other": without, "lie": "5 things, exit code 3", "early": "6 things"}
        for action, tells in told.items():
            code, said = self.drive("sim", sim=action)
            self.assertEqual((code, said[-2].split(", ", 2)[2]), (1, tells), action)
            self.assertTrue(said[-2].startswith("sim: failed, "), said[-2])

    def test_a_target_that_takes_much_longer_is_ended_and_those_after_it_run(self):
        with contextlib.redirect_stdout(io.StringIO()):
            os.environ.update(CALLS=str(self.calls), sim="hang")
            self.addCleanup(lambda: [os.environ.pop(name) for name in ("CALLS", "sim")])
            runner = run.Runner(self.program, self.folder / "logs", 42, grace_s=-59)
            results = run.run_all(runner, ["sim", "fuzz"], 2)
        self.assertEqual([(result.name, result.passed) for result in results], [("sim", False), ("fuzz", True)])
        self.assertEqual(results[0].counts, "3 things; ended after 1 s, it had 60 s")
        self.assertLess(results[0].seconds, 30)

    def test_shares_fill_the_time_and_what_one_leaves_over_goes_to_the_others(self):
        names, left = list(run.SHARES), 4 * 3600
        spent = [sum(run.SHARES[before] * 60 for before in names[:index]) for index in range(len(names))]
        given = [run.seconds_for(name, names[index:], left - spent[index]) for index, name in enumerate(names)]
        self.assertEqual(given, [minutes * 60 for minutes in run.SHARES.values()])
        self.assertEqual(run.seconds_for(names[-1], names[-1:], left), left)
        self.assertEqual(run.seconds_for(names[-1], names[-1:], -5), run.SECONDS_MIN)
        self.drive("--hours", "1", "crash", "damage")
        crash_s, damage_s = (int(call[1]) for call in self.called())
        crash, damage = run.SHARES["crash"], run.SHARES["damage"]
        self.assertAlmostEqual(crash_s, 3600 * crash / (crash + damage), delta=5)
        self.assertGreater(damage_s, 3590)

    def test_targets_that_were_not_run_keep_their_rows(self):
        self.drive("--record", "crash", "sim", sim="fail")
        self.drive("--record", "fuzz", "sim")
        wanted = [[f"`{name}`", "passed"] for name in ("crash", "sim", "fuzz")]
        self.assertEqual([row[:2] for row in self.rows()], wanted)

    def test_the_document_is_left_alone_unless_it_is_to_be_written(self):
        before = self.document.read_text(encoding="utf-8")
        self.assertEqual(self.drive("crash")[0], 0)
        self.assertEqual(self.document.read_text(encoding="utf-8"), before)

    def test_wrong_usage_is_told_before_anything_runs(self):
        for words in (["nothing"], ["--hours", "0"]):
            self.assertEqual(self.drive(*words)[0], 2, words)
        self.document.write_text("no place\n", encoding="utf-8")
        self.assertEqual(self.drive("--record", "crash")[0], 2)
        self.assertEqual(self.called(), [])

    def test_an_interrupted_run_ends_its_target_and_writes_nothing(self):
        before = self.document.read_text(encoding="utf-8")
        process = self.start("--record", "crash", "sim", crash="hang")
        deadline = time.monotonic() + 30
        while not self.called():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.assertEqual(process.returncode, 143)
        self.assertEqual([call[0] for call in self.called()], ["crash"])
        self.assertIn("crash: failed, seed 1, 3 things", run.read(self.folder / "logs" / "crash.log"))
        self.assertEqual(self.document.read_text(encoding="utf-8"), before)

    def test_the_table_has_a_place_in_the_project_and_every_target_is_one_of_make(self):
        text = run.read(run.DOCUMENT)
        self.assertEqual((text.count(run.BEGIN + "\n"), text.count(run.END)), (1, 1))
        makefile = run.read(run.REPOSITORY / "Makefile")
        for name in run.SHARES:
            self.assertRegex(makefile, rf"(?m)^{name}: .*\n\t@scripts/long/target\.sh {name}\b")
        functions = re.findall(r"^run_([a-z-]+)\(\)", run.read(run.HERE / "target.sh"), re.MULTILINE)
        self.assertEqual(sorted(functions), sorted(run.SHARES))


if __name__ == "__main__":
    unittest.main()
