//! The seam to the machine's processors: whether one of them has nothing to do.

use std::fmt::Debug;
use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Tells whether processors are idle. The core never asks the operating system itself.
pub trait Processors: Debug + Send + Sync {
    /// Tells whether fewer threads beside the calling one are ready to run than there are processors. `now` is the time on
    /// a monotonic clock; the answer may be a little older.
    fn have_idle(&self, now: Duration) -> bool;
}

/// How long an answer of the kernel is good for. To ask takes one or two microseconds.
const ANSWER_TIME: Duration = Duration::from_micros(100);

/// The machine's own processors.
#[derive(Debug)]
pub struct SystemProcessors {
    /// `/proc/loadavg`; none where there is no such file: then no processor is known to be idle.
    load: Option<File>,
    count: usize,
    /// When the kernel was asked last, in microseconds, doubled, and one more where a processor was idle.
    answer: AtomicU64,
}

impl Default for SystemProcessors {
    fn default() -> SystemProcessors {
        SystemProcessors {
            load: File::open("/proc/loadavg").ok(),
            // Of a process that may use a part of the machine, this is the part. Threads are counted on all of it, so such a
            // process seldom takes a processor for idle.
            count: thread::available_parallelism().map_or(1, NonZero::get),
            answer: AtomicU64::new(0),
        }
    }
}

impl SystemProcessors {
    fn ask(&self) -> bool {
        let mut text = [0; 128];
        let read = self.load.as_ref().and_then(|load| load.read_at(&mut text, 0).ok());
        let ready = read.and_then(|bytes| threads_ready(&text[..bytes]));
        ready.is_some_and(|ready| ready.saturating_sub(1) < self.count)
    }
}

impl Processors for SystemProcessors {
    fn have_idle(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX) & (u64::MAX >> 1);
        let last = self.answer.load(Ordering::Relaxed);
        if last != 0 && u128::from(now.saturating_sub(last >> 1)) < ANSWER_TIME.as_micros() {
            return last & 1 == 1;
        }
        let has_idle = self.ask();
        self.answer.store(now << 1 | u64::from(has_idle), Ordering::Relaxed);
        has_idle
    }
}

/// Returns how many threads are ready to run, that which asks among them, from what proc_loadavg(5) describes.
fn threads_ready(load: &[u8]) -> Option<usize> {
    let threads = std::str::from_utf8(load).ok()?.split(' ').nth(3)?;
    threads.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_ready_are_the_fourth_word() {
        assert_eq!(threads_ready(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(threads_ready(b"0.20 0.18 0.12"), None);
        assert_eq!(threads_ready(b""), None);
        assert_eq!(threads_ready(b"0.20 0.18 0.12 x/80 11206\n"), None);
    }

    #[test]
    fn the_thread_that_asks_does_not_count() {
        let file = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&file, text).unwrap();
            Some(File::open(&file).unwrap())
        };
        let of = |ready: usize| SystemProcessors {
            load: file(&format!("0.20 0.18 0.12 {ready}/80 11206\n")),
            count: 2,
            answer: AtomicU64::new(0),
        };
        assert!(of(1).ask());
        assert!(of(2).ask());
        assert!(!of(3).ask(), "two others for two processors");
        assert!(!SystemProcessors { load: None, ..of(1) }.ask(), "nobody knows");
    }

    #[test]
    fn an_answer_is_used_again_for_a_short_time() {
        let processors = SystemProcessors { load: None, count: 2, answer: AtomicU64::new(0) };
        let now = Duration::from_secs(9);
        assert!(!processors.have_idle(now));
        processors.answer.fetch_or(1, Ordering::Relaxed);
        assert!(processors.have_idle(now + ANSWER_TIME / 2));
        assert!(!processors.have_idle(now + ANSWER_TIME * 3));
    }
}
