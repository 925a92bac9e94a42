//! What is said over a control socket: one JSON object a line, requests from the client, replies from the daemon.
//!
//! A request is answered by any number of `progress` lines and then by exactly one `done` or `failed` line. Unknown
//! fields are ignored, unknown verbs fail. Version history, newest first:
//!
//! - 1: the first one.

use onefold_pool::{FileStat, PoolStat};
use serde::{Deserialize, Serialize};

use super::stat_form::{FileStatForm, PoolStatForm};

/// Longest line in either direction, in bytes with its newline.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A wish of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Numbers of the pool. Anyone may ask.
    Stat,
    /// Numbers of the one open file that is sent along with the request, as a file descriptor. It must be open for
    /// reading: what a file shares says something about what it and others hold.
    FileStat,
    /// Makes the second open file that is sent along, an empty one, a clone of the first. The first must be open for
    /// reading, the second for writing: who could open them so may do this.
    Clone,
    /// Takes in what the device has gained.
    Grow,
    /// Tells the device which blocks are free.
    Trim,
    /// Reads and verifies all data.
    Scrub {
        /// Upper limit of the reading, in bytes per second.
        bytes_per_second: Option<u64>,
    },
    /// Makes everything durable.
    Sync,
    /// Ends the doors of the pool, its mount among them. The last reply comes when the pool is closed and everything is
    /// on disk.
    Umount,
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum ControlReply {
    /// Work goes on: `done` of `total` blocks.
    Progress {
        /// Blocks that are done.
        done: u64,
        /// Blocks in all.
        total: u64,
    },
    /// The request is done.
    Done {
        /// What came of it.
        answer: Answer,
    },
    /// The request failed and changed nothing, or stopped at a sound point.
    Failed {
        /// Which kind of failure.
        kind: FailureKind,
        /// What happened, for people.
        message: String,
    },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// Nothing to tell.
    Nothing,
    /// Of `stat`.
    Stat {
        /// The pool's numbers.
        #[serde(with = "PoolStatForm")]
        stat: Box<PoolStat>,
    },
    /// Of `file-stat`.
    FileStat {
        /// The file's numbers.
        #[serde(with = "FileStatForm")]
        stat: FileStat,
    },
    /// Of `grow` (new size) and `trim` (discarded), in bytes.
    Bytes {
        /// How many.
        bytes: u64,
    },
    /// Of `scrub`.
    Scrub {
        /// What was found.
        report: ScrubReport,
    },
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// The first problems, as many as fit a line.
    pub problems: Vec<ScrubProblem>,
    /// Problems in all.
    pub problems_total: u64,
    /// Data blocks that were read and verified.
    pub data_blocks_hashed: u64,
    /// It was stopped before the end.
    pub stopped: bool,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubProblem {
    /// Which structure.
    pub structure: String,
    /// Where, if it has a place.
    pub block: Option<u64>,
    /// Paths of the files hit, as far as known.
    pub files: Vec<String>,
    /// What is wrong.
    pub what: String,
}

/// Kinds of failure that a client may tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The line is no request, or lacks the open files that belong to it.
    BadRequest,
    /// The peer may not do this.
    NotPermitted,
    /// Files of the mount are open, or clients use another door.
    Busy,
    /// Another mount keeps the pool in use.
    Held,
    /// The pool has no room.
    NoSpace,
    /// Damage was met.
    Damaged,
    /// Too many clients at once.
    TooManyClients,
    /// The pool said no, for another reason.
    Failed,
}

#[cfg(test)]
mod tests {
    use onefold_pool::{ActivityStat, FilterStat};

    use super::*;

    fn written<T: Serialize>(message: &T) -> String {
        serde_json::to_string(message).unwrap()
    }

    #[test]
    fn requests_are_written_as_documented() {
        let table = [
            (ControlRequest::Stat, r#"{"verb":"stat"}"#),
            (ControlRequest::FileStat, r#"{"verb":"file-stat"}"#),
            (ControlRequest::Clone, r#"{"verb":"clone"}"#),
            (ControlRequest::Grow, r#"{"verb":"grow"}"#),
            (ControlRequest::Trim, r#"{"verb":"trim"}"#),
            (ControlRequest::Scrub { bytes_per_second: None }, r#"{"verb":"scrub","bytes_per_second":null}"#),
            (ControlRequest::Scrub { bytes_per_second: Some(9) }, r#"{"verb":"scrub","bytes_per_second":9}"#),
            (ControlRequest::Sync, r#"{"verb":"sync"}"#),
            (ControlRequest::Umount, r#"{"verb":"umount"}"#),
        ];
        for (request, text) in table {
            assert_eq!(written(&request), text);
            assert_eq!(serde_json::from_str::<ControlRequest>(text).unwrap(), request);
        }
    }

    #[test]
    fn a_newer_client_may_say_more() {
        let text = r#"{"verb":"scrub","bytes_per_second":5,"order":"by-age"}"#;
        let request = serde_json::from_str::<ControlRequest>(text).unwrap();
        assert_eq!(request, ControlRequest::Scrub { bytes_per_second: Some(5) });
        assert_eq!(
            serde_json::from_str::<ControlRequest>(r#"{"verb":"scrub"}"#).unwrap(),
            ControlRequest::Scrub { bytes_per_second: None }
        );
    }

    #[test]
    fn replies_come_back_as_they_were_sent() {
        let stat = PoolStat {
            label: "images \"one\"\n".into(),
            uuid: "0123456789abcdef0123456789abcdef".into(),
            device_bytes: u64::MAX,
            zero_bytes: 1,
            filter: FilterStat { index_bits: 19, entry_count: 7, ..FilterStat::default() },
            activity: ActivityStat { commits: 3, ..ActivityStat::default() },
            ..PoolStat::default()
        };
        let file = FileStat {
            apparent_bytes: 5,
            zero_bytes: 1,
            unique_bytes: 2,
            shared_bytes: 2,
            distinct_bytes: 3,
            is_estimated: true,
        };
        let problem = ScrubProblem {
            structure: "data".into(),
            block: Some(12),
            files: vec!["a/b".into()],
            what: "does not match its fingerprint".into(),
        };
        let report = ScrubReport { problems: vec![problem], problems_total: 4, data_blocks_hashed: 99, stopped: true };
        let replies = [
            ControlReply::Progress { done: 1, total: 2 },
            ControlReply::Done { answer: Answer::Nothing },
            ControlReply::Done { answer: Answer::Stat { stat: Box::new(stat) } },
            ControlReply::Done { answer: Answer::FileStat { stat: file } },
            ControlReply::Done { answer: Answer::Bytes { bytes: 1 << 40 } },
            ControlReply::Done { answer: Answer::Scrub { report } },
            ControlReply::Failed { kind: FailureKind::NoSpace, message: "no space left".into() },
        ];
        for reply in replies {
            let text = written(&reply);
            assert!(!text.contains('\n'), "one line: {text}");
            assert_eq!(serde_json::from_str::<ControlReply>(&text).unwrap(), reply);
        }
    }
}
