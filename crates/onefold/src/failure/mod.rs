//! The message of a command that failed, and its exit code.

mod disk;
mod guest;
mod image;
mod mount;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use onefold_block::shown::ShownText;
use onefold_pool::PoolError;
use serde::{Deserialize, Serialize};

pub(crate) use image::TargetRemains;

/// Exit codes; documented in the command reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Exit {
    /// The command has succeeded.
    Done,
    /// The command has failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The command has succeeded and found damage.
    Damage,
    /// The user has interrupted the command.
    Interrupted,
}

/// The hint if something is longer than a file of a pool can be.
const TOO_LARGE: &str = "a file in a pool has at most 16 TiB";

/// Exit code after Ctrl-C or SIGTERM: the one that shells give to a program that SIGINT has ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Exit code of a panic: always a bug in Onefold, never the user's fault.
pub(crate) const EXIT_BUG: i32 = 255;

impl Exit {
    /// Returns the exit code of the process.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Damage => 3,
            Exit::Interrupted => EXIT_INTERRUPTED,
        }
    }

    /// Returns how a command ends of whose parts two have ended so: damage outweighs other failures, and an interrupt
    /// outweighs all.
    pub(crate) fn worse(self, other: Exit) -> Exit {
        std::cmp::max_by_key(self, other, |exit| exit.code())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// A failed command: the failed action, its causes, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The failed action, as in "cannot mount `images.pool`".
    pub(crate) error: String,
    /// The causes, from the nearest one to the root.
    pub(crate) causes: Vec<String>,
    /// The next step, if there is one.
    pub(crate) hint: Option<String>,
    /// How the command ends.
    pub(crate) exit: Exit,
}

/// Result of a command.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// Returns a failure without a cause.
    pub(crate) fn new(error: impl Into<String>) -> Failure {
        Failure { error: error.into(), causes: Vec::new(), hint: None, exit: Exit::Failed }
    }

    /// Returns a failure for an invalid command line.
    pub(crate) fn usage(error: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, ..Failure::new(error) }
    }

    /// Returns a failure for work that the user interrupted.
    pub(crate) fn interrupted(doing: &str) -> Failure {
        Failure { exit: Exit::Interrupted, ..Failure::new(format!("interrupted while {doing}")) }
    }

    /// Adds a cause, and all its own sources.
    pub(crate) fn because(mut self, cause: &dyn Error) -> Failure {
        let mut next = Some(cause);
        while let Some(cause) = next {
            let text = cause.to_string();
            // Skips sources that the message already contains, and empty messages of programs.
            if !text.is_empty() && !self.causes.last().is_some_and(|last| last.contains(&text)) {
                self.causes.push(text);
            }
            next = cause.source();
        }
        self
    }

    /// Adds a cause that is only a text.
    pub(crate) fn because_of(mut self, cause: impl Into<String>) -> Failure {
        self.causes.push(cause.into());
        self
    }

    /// Makes this failure the cause of a wider one. Hint and exit code stay.
    pub(crate) fn wrap(mut self, error: impl Into<String>) -> Failure {
        let narrower = std::mem::replace(&mut self.error, error.into());
        self.causes.insert(0, narrower);
        self
    }

    /// Returns the whole failure on one line, for a log.
    pub(crate) fn line(&self) -> String {
        self.to_string().split('\n').map(str::trim).collect::<Vec<_>>().join("; ")
    }

    /// Sets the next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the failure for an error of a pool.
    pub(crate) fn of_pool(error: impl Into<String>, cause: &PoolError) -> Failure {
        let (exit, hint) = explain(cause);
        Failure { exit, hint: hint.map(str::to_owned), ..Failure::new(error) }.because(cause)
    }

    /// Returns the failure for an error of a system call.
    pub(crate) fn of_io(error: impl Into<String>, cause: &std::io::Error) -> Failure {
        let failure = Failure::new(error).because(cause);
        match cause.kind() {
            std::io::ErrorKind::PermissionDenied => failure.hint("run the command as a user who may use the file"),
            std::io::ErrorKind::NotConnected => {
                failure.hint("the pool's daemon has died: `onefold pool umount` the mount point, then mount it again")
            }
            std::io::ErrorKind::ReadOnlyFilesystem => failure.hint("mount it for writing first: `mount -o remount,rw`"),
            _ => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", ShownText::line(&self.error))?;
        for cause in &self.causes {
            write!(f, "\n  cause: {}", ShownText::line(cause))?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {}", ShownText::line(hint)),
            None => Ok(()),
        }
    }
}

/// Returns how a command ends after a pool's error, and the user's next step. No other function decides this.
fn explain(error: &PoolError) -> (Exit, Option<&'static str>) {
    match error {
        PoolError::NotFound => (Exit::Failed, Some("`onefold pool ls` lists the files of a pool")),
        PoolError::Exists => (Exit::Failed, Some("choose another name, or remove the file first")),
        PoolError::NoSpace => {
            (Exit::Failed, Some("delete files, or enlarge the pool's file or partition and run `onefold pool grow`"))
        }
        PoolError::NameTooLong => (Exit::Failed, Some("a name has at most 255 bytes")),
        PoolError::FileTooLarge => (Exit::Failed, Some(TOO_LARGE)),
        PoolError::CrossDomain => (Exit::Failed, Some("copy the data instead, for example with `cp --reflink=never`")),
        PoolError::ReadOnly => (Exit::Failed, Some("mount the pool without --read-only")),
        PoolError::WritesLost { .. } => {
            (Exit::Failed, Some("make room for the pool, and write the files again that were being written"))
        }
        PoolError::Stopped { .. } => (
            Exit::Failed,
            Some("look at the disk, then unmount the pool, run `onefold pool check`, and mount it again"),
        ),
        PoolError::Damaged { .. } => {
            (Exit::Damage, Some("`onefold pool check` lists all damage; `check --repair` repairs what can be repaired"))
        }
        PoolError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            (Exit::Failed, Some("the file system that holds the pool's file is full: make room there"))
        }
        PoolError::Io { .. } => (Exit::Failed, Some("the kernel's log (`dmesg`) may tell more about the disk")),
        PoolError::NotAPool(_) => (Exit::Failed, Some("check the path; `onefold pool create` makes a new pool")),
        PoolError::NewerFormat(_) => {
            (Exit::Failed, Some("use the version of Onefold that wrote the pool, or a newer one"))
        }
        PoolError::InUse(_) => {
            (Exit::Failed, Some("use the mount point of the pool's daemon, or unmount it with `onefold pool umount`"))
        }
        PoolError::DeviceTooSmall { .. } => (
            Exit::Failed,
            Some(
                "was the file or partition truncated? Bring it back to its size (`truncate -s`, no data needed past the end)",
            ),
        ),
        PoolError::UnprovenNames { .. } => (
            Exit::Failed,
            Some(
                "copy the pool's file; then `--unproven-names take` brings their files back, `--unproven-names leave` \
                 drops the files that only they name",
            ),
        ),
        PoolError::MemoryTooSmall { .. } => (Exit::Usage, Some("give more with --memory")),
        PoolError::JournalTooSmall { .. } => (
            Exit::Failed,
            Some("give a larger --journal-size to `onefold pool create`; to grow, make a larger pool and copy"),
        ),
        PoolError::TooLargeForJournal => (Exit::Failed, Some("create the pool with a larger --journal-size")),
        PoolError::NotADirectory
        | PoolError::IsADirectory
        | PoolError::NotEmpty
        | PoolError::Invalid(_)
        | PoolError::NoSuchOffset
        | PoolError::NoAttribute
        | PoolError::AttributeTooLarge
        | PoolError::TooManyAttributes
        | PoolError::TooManyLinks
        | PoolError::NotPermitted(_)
        | PoolError::Unsupported(_) => (Exit::Failed, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::shown::is_hidden;

    #[test]
    fn a_failure_names_the_thing_the_cause_and_the_next_step() {
        let failure = Failure::of_pool("cannot open `x.pool`", &PoolError::NotAPool("no magic".into()));
        assert_eq!(
            failure.to_string(),
            "error: cannot open `x.pool`\n  cause: not a Onefold pool: no magic\n  \
             hint: check the path; `onefold pool create` makes a new pool"
        );
        assert_eq!(failure.exit, Exit::Failed);
    }

    /// Libraries and the daemon quote names without escaping them.
    #[test]
    fn a_failure_prints_nothing_but_its_own_lines() {
        let foreign = "cannot open \u{1b}]0;x\u{7}a\n  hint: run `rm`\u{202e}";
        let failure = Failure::new(foreign).because(&std::io::Error::other(foreign)).hint(foreign);
        let text = failure.to_string();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.chars().any(|character| is_hidden(character) && character != '\n'), "{text:?}");
        assert!(text.starts_with("error: cannot open \\x1b]0;x\\x07a\\n  hint: run `rm`\\u{202e}\n"), "{text}");
    }

    #[test]
    fn damage_has_its_own_exit_code() {
        let damaged =
            PoolError::Damaged { structure: "bitmap", block: onefold_block::BlockNo(7), what: "checksum".into() };
        assert_eq!(Failure::of_pool("cannot read", &damaged).exit, Exit::Damage);
    }

    #[test]
    fn a_source_that_the_message_already_tells_is_not_told_twice() {
        let io = std::io::Error::other("the disk is gone");
        let error = PoolError::Io { action: "read", block: onefold_block::BlockNo(3), source: io };
        assert_eq!(Failure::of_pool("cannot read", &error).causes.len(), 1);
    }

    #[test]
    fn a_failure_survives_the_way_from_the_daemon_to_its_parent() {
        let failure = Failure::usage("cannot mount").because_of("a").because_of("b").hint("c");
        let text = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure);
    }
}
