//! What the tests of the command line share: running the program, folders with pools and images.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use onefold_block::random::{Random, SeededRandom};
use serde_json::Value;

/// Ends of the program, as the command reference lists them.
pub(crate) const DONE: i32 = 0;
pub(crate) const FAILED: i32 = 1;
pub(crate) const USAGE: i32 = 2;
pub(crate) const DAMAGE: i32 = 3;
pub(crate) const INTERRUPTED: i32 = 130;

/// What a run of the program said.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn of(output: Output) -> Run {
        Run {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the one JSON document on standard output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn done(self) -> Run {
        assert_eq!(self.code, DONE, "{self:?}");
        self
    }

    /// Asserts the exit code, and that the failure names its cause.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, names: &str) -> Run {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains("error: "), "{self:?}");
        assert!(self.err.contains(names), "{names} is not named: {self:?}");
        self
    }
}

/// Runs `onefold` with the words of `arguments`, and then `paths`.
pub(crate) fn onefold(arguments: &str, paths: &[&Path]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
    command.args(arguments.split_whitespace()).args(paths);
    Run::of(command.output().unwrap())
}

/// Tells whether a program of others is there; tests without it say so.
pub(crate) fn has(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {program} is not installed (Debian: {package})");
    }
    found
}

#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A folder of its own for each test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a pool of 512 MiB.
    pub(crate) fn pool(&self) -> PathBuf {
        let pool = self.path("images.pool");
        onefold("pool create --size 512M", &[&pool]).done();
        pool
    }

    /// Makes a sparse raw image of 8 MiB and a sector whose data begins at `first_mib`: two MiB of content made from
    /// `seed`, twice. Images of one seed hold equal blocks.
    pub(crate) fn image(&self, name: &str, seed: u32, first_mib: u64) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        file.set_len((8 << 20) + 512).unwrap();
        let data: Vec<u8> = (0..1 << 19_u32).flat_map(|number: u32| (number ^ (seed << 24)).to_le_bytes()).collect();
        file.write_all_at(&data, first_mib << 20).unwrap();
        file.write_all_at(&data, (first_mib + 3) << 20).unwrap();
        path
    }

    /// Makes an image of `size_mib` in which no block is like another.
    pub(crate) fn noise(&self, name: &str, size_mib: u64) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        // Of a crate that is optimised, as this one is not: it is gigabytes in all.
        let random = SeededRandom::new(0x2545_f491_4f6c_dd1d);
        let mut piece = vec![0; 1 << 20];
        for mib in 0..size_mib {
            random.fill(&mut piece).unwrap();
            file.write_all_at(&piece, mib << 20).unwrap();
        }
        path
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn equal(one: &Path, two: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(two).unwrap()
}
