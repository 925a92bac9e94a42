//! A pool that a daemon serves without a mount visible here. Its control socket answers requests about the whole pool.

use std::fs;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_disk::Disk;
use onefold_export::control::{ControlClient, ControlError, FailureKind};
use onefold_pool::{FileStat, PoolStat};

use super::mounted::show;
use super::names::PoolPath;
use super::{Draft, PoolEntry, PoolFileKind, PoolProblems, Store};
use crate::failure::{Exit, Failure, Outcome};
use crate::locate;
use crate::progress::Meter;

/// See the module.
pub(super) struct ServedStore {
    /// The pool's file or partition, as a canonical path.
    pool: PathBuf,
}

/// Returns the failure for the refusal of a daemon without a mount. No other function decides this.
pub(crate) fn refused_without_mount(what: &str, pool: &Path, error: &ControlError) -> Failure {
    let pool = pool.shown();
    let failure = Failure::new(format!("cannot {what} the pool `{pool}`")).because(error);
    match error {
        ControlError::NotAMount { .. }
        | ControlError::HandOver(_)
        | ControlError::NotTheDaemon { .. }
        | ControlError::NotOfItsUser { .. } => failure,
        ControlError::Unreachable { .. } | ControlError::Broken(_) => {
            failure.hint("if its daemon has died, the pool recovers when it is used the next time")
        }
        ControlError::Silent { .. } => failure.hint("try again in a moment; a daemon that hangs has to be killed"),
        ControlError::UnknownAnswer => failure.hint("use the same version of Onefold as the daemon"),
        ControlError::Refused { kind, .. } => match kind {
            FailureKind::Busy => failure.hint("end its clients first; all that was written is on disk"),
            // A program that root runs in the process's namespace may be the user's own.
            FailureKind::Held => failure.hint("end the process or the container that has it mounted"),
            FailureKind::NotPermitted => failure.hint("run the command as root, or as the user whose daemon it is"),
            FailureKind::NoSpace => {
                failure.hint("delete files, or enlarge the pool's file or partition and run `onefold pool grow`")
            }
            FailureKind::Damaged => Failure {
                exit: Exit::Damage,
                ..failure.hint("`onefold pool scrub` names the files hit; `onefold pool check` needs its daemon ended")
            },
            FailureKind::TooManyClients => failure.hint("try again in a moment"),
            FailureKind::BadRequest => failure.hint("use the same version of Onefold as the daemon"),
            FailureKind::Failed => failure,
        },
    }
}

impl ServedStore {
    pub(super) fn connect(pool: PathBuf) -> Outcome<ServedStore> {
        let store = ServedStore { pool };
        store.ask("reach", |_| Ok(()))?;
        Ok(store)
    }

    /// Sends a request to the daemon over a new connection.
    fn ask<T>(&self, what: &str, request: impl FnOnce(&mut ControlClient) -> Result<T, ControlError>) -> Outcome<T> {
        let metadata = fs::metadata(&self.pool)
            .map_err(|error| Failure::of_io(format!("cannot look at `{}`", self.pool.shown()), &error))?;
        let answer = match locate::daemon_of(&metadata) {
            Ok(Some(mut client)) => request(&mut client),
            Ok(None) => {
                return Err(Failure::new(format!("cannot {what} the pool `{}`", self.pool.shown()))
                    .because_of("its daemon has just ended")
                    .hint("run the command again"));
            }
            Err(error) => Err(error),
        };
        answer.map_err(|error| refused_without_mount(what, &self.pool, &error))
    }

    /// Returns the failure of a command that needs files of the pool.
    fn without_mount(&self, cannot: String) -> Failure {
        Failure::new(cannot)
            .because_of(
                "a daemon serves the pool, but this user sees no mount of it, and its files are accessible only through \
                 a mount",
            )
            .hint(format!(
                "run the command as the user who mounted the pool; `onefold pool umount {}` ends that daemon",
                self.pool.shown()
            ))
    }
}

impl Store for ServedStore {
    fn is_served(&self) -> bool {
        true
    }

    fn pool(&self) -> &Path {
        &self.pool
    }

    fn path(&self, path: &Path) -> Outcome<PoolPath> {
        PoolPath::new(path)
    }

    fn stat(&mut self) -> Outcome<PoolStat> {
        self.ask("read the numbers of", ControlClient::stat)
    }

    fn file_stat(&mut self, file: &PoolPath, _meter: &Meter) -> Outcome<FileStat> {
        Err(self.without_mount(format!("cannot read the numbers of `{file}`")))
    }

    fn kind(&self, path: &PoolPath) -> Outcome<PoolFileKind> {
        Err(self.without_mount(format!("cannot look at `{path}`")))
    }

    fn list(&self, directory: &PoolPath) -> Outcome<Vec<PoolEntry>> {
        Err(self.without_mount(format!("cannot list `{directory}`")))
    }

    fn open(&self, file: &PoolPath) -> Outcome<Box<dyn Disk + '_>> {
        Err(self.without_mount(format!("cannot open `{file}`")))
    }

    fn copy_mode(&self, file: &PoolPath) -> Outcome<u16> {
        Err(self.without_mount(format!("cannot look at `{file}`")))
    }

    fn draft(&self, beside: &PoolPath, _size_bytes: u64, _mode: u16) -> Outcome<Box<dyn Draft + '_>> {
        Err(self.without_mount(format!("cannot make a file beside `{beside}`")))
    }

    fn hand_over(&self, file: &PoolPath) -> Outcome<()> {
        Err(self.without_mount(format!("cannot clone `{file}`")))
    }

    fn clone_file(&mut self, source: &PoolPath, destination: &PoolPath) -> Outcome<()> {
        Err(self.without_mount(format!("cannot clone `{source}` to `{destination}`")))
    }

    fn grow(&mut self) -> Outcome<u64> {
        self.ask("grow", ControlClient::grow)
    }

    fn trim(&mut self, meter: &Meter) -> Outcome<u64> {
        self.ask("trim", |client| client.trim(&mut show(meter)))
    }

    fn scrub(&mut self, bytes_per_second: Option<u64>, meter: &Meter) -> Outcome<PoolProblems> {
        self.ask("scrub", |client| client.scrub(bytes_per_second, &mut show(meter))).map(PoolProblems::from)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.ask("make durable the changes of", ControlClient::sync)
    }
}
