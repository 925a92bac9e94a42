"""The runner of the Rust tests, with stand-ins for programs."""

import io
import os
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path

import rust_tests


def artifact(kind, name, executable, is_test=True):
    return {
        "reason": "compiler-artifact", "manifest_path": "/w/crates/onefold-pool/Cargo.toml", "executable": executable,
        "profile": {"test": is_test}, "target": {"kind": [kind], "name": name},
    }  # fmt: skip


class Programs(unittest.TestCase):
    def test_only_what_is_run_as_a_test_is_one(self):
        messages = [
            artifact("lib", "onefold_pool", "/t/a"),
            artifact("test", "crash", "/t/b"),
            artifact("bin", "onefold", "/t/c"),
            artifact("bin", "onefold", "/t/d", is_test=False),
            artifact("lib", "onefold_pool", None),
            {"reason": "build-finished", "success": True},
        ]
        programs = list(rust_tests.programs_of(messages))
        wanted = [("onefold-pool", "/t/a"), ("onefold-pool/crash", "/t/b"), ("onefold-pool/bin-onefold", "/t/c")]
        self.assertEqual([(program["name"], program["path"]) for program in programs], wanted)
        self.assertEqual(programs[0]["folder"], "/w/crates/onefold-pool")

    def test_those_that_take_long_come_first(self):
        names = ["onefold-pool/names", rust_tests.LONG[1], "onefold-sort", rust_tests.LONG[0]]
        ordered = [program["name"] for program in rust_tests.in_order([{"name": name} for name in names])]
        self.assertEqual(ordered, [rust_tests.LONG[0], rust_tests.LONG[1], "onefold-pool/names", "onefold-sort"])

    def test_each_long_program_is_one_of_the_project(self):
        for name in rust_tests.LONG:
            package, _, target = name.partition("/")
            folder = rust_tests.REPOSITORY / "crates" / package
            found = folder / "tests" / f"{target}.rs" if target else folder / "src" / "lib.rs"
            self.assertTrue(found.exists() or (folder / "tests" / target / "main.rs").exists(), name)


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(setattr, rust_tests, "FOLDER", rust_tests.FOLDER)
        rust_tests.FOLDER = self.folder

    def program(self, name, script):
        path = self.folder / f"{name}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return {"name": name, "path": str(path), "folder": os.fspath(self.folder)}

    def run_one(self, program):
        with redirect_stdout(io.StringIO()) as out:
            passed = rust_tests.Runner().run(program)
        return passed, out.getvalue()

    def test_a_program_runs_in_the_folder_of_its_package_and_what_passed_is_not_shown(self):
        script = 'echo "running 2 tests"; echo "test a ... ok"; echo "in $PWD"; echo 9 images >&2'
        passed, said = self.run_one(self.program("good", script))
        self.assertTrue(passed)
        self.assertTrue(said.startswith("ok    good, "), said)
        self.assertIn(f"in {os.path.realpath(self.folder)}", said)
        self.assertIn("9 images", said)
        self.assertNotIn("test a", said)
        self.assertIn("test a ... ok", (self.folder / "good.log").read_text(encoding="utf-8"))

    def test_a_failed_program_is_told_with_what_it_said(self):
        passed, said = self.run_one(self.program("bad", 'echo "test b ... FAILED"; exit 101'))
        self.assertFalse(passed)
        self.assertTrue(said.startswith("FAIL  bad, "), said)
        self.assertIn("exit code 101", said)
        self.assertIn("test b ... FAILED", said)

    def test_a_program_that_a_signal_ends_has_failed(self):
        self.assertFalse(self.run_one(self.program("gone", "kill -SEGV $$"))[0])


if __name__ == "__main__":
    unittest.main()
