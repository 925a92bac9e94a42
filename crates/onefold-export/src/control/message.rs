//! Messages on a control socket: one JSON object per line, requests from the client, replies from the daemon.
//!
//! The answer to a request is any number of `progress` lines and then exactly one `done` or `failed` line. Unknown
//! fields are ignored; unknown verbs fail. Version history, newest first:
//!
//! - 1: the first one.

use onefold_pool::{FileStat, PoolStat};
use serde::{Deserialize, Serialize};

use super::stat_form::{FileStatForm, PoolStatForm};

/// Maximum length of a line in either direction, in bytes with its newline.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Returns numbers of the pool. Open to everyone.
    Stat,
    /// Returns numbers of the one open file that is sent with the request as a file descriptor. The file must be open
    /// for reading: the amount that it shares says something about its content and that of others.
    FileStat,
    /// Makes the second open file that is sent along, an empty one, a clone of the first. The first must be open for
    /// reading and the second for writing: a process that could open them may also clone.
    Clone,
    /// Extends the pool to the present size of its device.
    Grow,
    /// Discards free blocks on the device.
    Trim,
    /// Reads and verifies all data.
    Scrub {
        /// Upper limit of the read rate, in bytes per second.
        bytes_per_second: Option<u64>,
    },
    /// Makes everything durable.
    Sync,
    /// Ends the doors of the pool, including its mount. The last reply comes when the pool is closed and everything is
    /// on disk.
    Umount,
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum ControlReply {
    /// Progress: `done` of `total` blocks.
    Progress {
        /// Blocks done so far.
        done: u64,
        /// Blocks in all.
        total: u64,
    },
    /// The request is done.
    Done {
        /// The result.
        answer: ControlAnswer,
    },
    /// The request failed and changed nothing, or stopped at a sound point.
    Failed {
        /// The kind of failure.
        kind: FailureKind,
        /// A message for people.
        message: String,
    },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ControlAnswer {
    /// No further result.
    Nothing,
    /// Result of `stat`.
    Stat {
        /// The pool's numbers.
        #[serde(with = "PoolStatForm")]
        stat: Box<PoolStat>,
    },
    /// Result of `file-stat`.
    FileStat {
        /// The file's numbers.
        #[serde(with = "FileStatForm")]
        stat: FileStat,
    },
    /// Result of `grow` (new size) and `trim` (discarded), in bytes.
    Bytes {
        /// Number of bytes.
        bytes: u64,
    },
    /// Result of `scrub`.
    Scrub {
        /// The findings.
        report: ScrubReport,
    },
}

/// The findings of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// The first problems, as many as fit in a line.
    pub problems: Vec<ScrubProblem>,
    /// Number of problems in all.
    pub problems_total: u64,
    /// Number of data blocks that were read and verified.
    pub data_blocks_hashed: u64,
    /// Whether it was stopped before the end.
    pub stopped: bool,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubProblem {
    /// The damaged structure.
    pub structure: String,
    /// Its block, if it has one.
    pub block: Option<u64>,
    /// Paths of the affected files, as far as known.
    pub files: Vec<String>,
    /// Description of the problem.
    pub what: String,
}

/// Kinds of failure that a client can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The line is no request, or lacks its open files.
    BadRequest,
    /// The peer may not make this request.
    NotPermitted,
    /// Files of the mount are open, or clients use another door.
    Busy,
    /// Another mount keeps the pool in use.
    Held,
    /// The pool has no room.
    NoSpace,
    /// The request met damage.
    Damaged,
    /// Too many clients are connected.
    TooManyClients,
    /// The pool refused for another reason.
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
            ControlReply::Done { answer: ControlAnswer::Nothing },
            ControlReply::Done { answer: ControlAnswer::Stat { stat: Box::new(stat) } },
            ControlReply::Done { answer: ControlAnswer::FileStat { stat: file } },
            ControlReply::Done { answer: ControlAnswer::Bytes { bytes: 1 << 40 } },
            ControlReply::Done { answer: ControlAnswer::Scrub { report } },
            ControlReply::Failed { kind: FailureKind::NoSpace, message: "no space left".into() },
        ];
        for reply in replies {
            let text = written(&reply);
            assert!(!text.contains('\n'), "one line: {text}");
            assert_eq!(serde_json::from_str::<ControlReply>(&text).unwrap(), reply);
        }
    }
}
