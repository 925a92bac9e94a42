//! Problems in reading texts and folders of a guest.

use std::fmt;

use parking_lot::Mutex;

use crate::error::GuestError;

/// Something in a file of the guest that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the file. Bytes of the guest.
    pub path: Vec<u8>,
    /// The number of the line from 1, if the problem concerns a line.
    pub line: Option<u64>,
    /// Description of the problem.
    pub problem: String,
}

impl Problem {
    /// Returns the problem of a whole file.
    #[must_use]
    pub fn of_file(path: &[u8], problem: impl Into<String>) -> Problem {
        Problem { path: path.to_vec(), line: None, problem: problem.into() }
    }

    /// Returns the problem of a line, counted from 1.
    #[must_use]
    pub fn of_line(path: &[u8], line: u64, problem: impl Into<String>) -> Problem {
        Problem { path: path.to_vec(), line: Some(line), problem: problem.into() }
    }
}

impl fmt::Display for Problem {
    /// Shows a path that is not UTF-8 with replacement characters. The caller must escape control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.path))?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// Problems that were found: the first ones in full, the rest as a number.
#[derive(Debug, Default)]
pub struct ProblemLog {
    met: Mutex<(Vec<Problem>, u64)>,
}

/// Maximum number of problems that are kept in full.
const PROBLEMS_MAX: usize = 100;

impl ProblemLog {
    /// Records a problem.
    pub fn note(&self, problem: Problem) {
        self.note_with(|| problem);
    }

    /// Records the problem of a line, counted from 1. A text may have millions of them, and each takes little time.
    pub fn note_line(&self, path: &[u8], line: u64, problem: &'static str) {
        self.note_with(|| Problem::of_line(path, line, problem));
    }

    /// Records a problem. It is only created if it is kept.
    fn note_with(&self, problem: impl FnOnce() -> Problem) {
        let mut met = self.met.lock();
        if met.0.len() >= PROBLEMS_MAX {
            met.1 += 1;
            return;
        }
        let problem = problem();
        if !met.0.contains(&problem) {
            met.1 += 1;
            met.0.push(problem);
        }
    }

    /// Records why a file cannot be read and returns `None`. A file that does not exist is not a problem.
    pub fn skip<T>(&self, path: &[u8], outcome: Result<T, GuestError>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(GuestError::NotFound | GuestError::NotADirectory) => None,
            Err(error) => {
                self.note(Problem::of_file(path, error.to_string()));
                None
            }
        }
    }

    /// Returns the first problems.
    #[must_use]
    pub fn first(&self) -> Vec<Problem> {
        self.met.lock().0.clone()
    }

    /// Returns the number of problems. After a hundred others, the same problem may count more than once.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.met.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_no_problem_and_the_log_is_bounded() {
        let log = ProblemLog::default();
        assert_eq!(log.skip(b"/a", Ok(1)), Some(1));
        assert_eq!(log.skip::<u8>(b"/a", Err(GuestError::NotFound)), None);
        assert_eq!(log.count(), 0);
        for line in 1..=300 {
            log.note_line(b"/etc/fstab", line.min(50), "it has no path");
        }
        assert_eq!((log.count(), log.first().len()), (50, 50));
        for line in 51..=300 {
            log.note(Problem::of_line(b"/etc/fstab", line, "it has no path"));
        }
        assert_eq!((log.count(), log.first().len()), (300, PROBLEMS_MAX));
        assert_eq!(log.first()[1].to_string(), "/etc/fstab, line 2: it has no path");
        assert_eq!(log.skip::<u8>(b"/b", Err(GuestError::TooManyLinks)), None);
        assert_eq!(log.count(), 301);
    }
}
