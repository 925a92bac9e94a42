//! The seam to the machine's processors: whether one of them is idle.

use std::fmt::Debug;
use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Reports whether processors are idle. The core never asks the operating system itself.
pub trait Processors: Debug + Send + Sync {
    /// Returns whether fewer threads besides the calling one are ready to run than there are processors. `now` is the
    /// time on a monotonic clock; the answer may be slightly older.
    fn have_idle(&self, now: Duration) -> bool;
}

/// How long an answer is trusted, in microseconds. This also holds for the first answer that no processor is idle.
/// Asking the kernel takes one or two.
const BELIEF_MIN_US: u64 = 100;
/// Upper bound for trusting that no processor is idle, in microseconds: the time doubles after each such answer, so a
/// busy machine is hardly asked. There, a question before each wait would cost other programs more than polling could
/// gain.
const BELIEF_MAX_US: u64 = 6_400;

/// The machine's own processors.
#[derive(Debug)]
pub struct SystemProcessors {
    /// `/proc/loadavg`; `None` if the file is missing: then no processor counts as idle.
    load: Option<File>,
    count: usize,
    /// When the kernel was last asked, in microseconds, doubled, plus one if a processor was idle.
    answer: AtomicU64,
    /// How long that answer is trusted, in microseconds.
    belief_us: AtomicU64,
}

impl Default for SystemProcessors {
    fn default() -> SystemProcessors {
        SystemProcessors {
            load: File::open("/proc/loadavg").ok(),
            // For a process limited to a part of the machine, this is that part. Threads are counted on the whole
            // machine, so such a process seldom considers a processor idle.
            count: thread::available_parallelism().map_or(1, NonZero::get),
            answer: AtomicU64::new(0),
            belief_us: AtomicU64::new(0),
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
        if last != 0 && now.saturating_sub(last >> 1) < self.belief_us.load(Ordering::Relaxed) {
            return last & 1 == 1;
        }
        let has_idle = self.ask();
        let belief_us = if has_idle || last & 1 == 1 {
            BELIEF_MIN_US
        } else {
            (2 * self.belief_us.load(Ordering::Relaxed)).clamp(BELIEF_MIN_US, BELIEF_MAX_US)
        };
        self.belief_us.store(belief_us, Ordering::Relaxed);
        self.answer.store(now << 1 | u64::from(has_idle), Ordering::Relaxed);
        has_idle
    }
}

/// Returns the number of threads ready to run, including the asking one, from the text of proc_loadavg(5).
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
            ..SystemProcessors::default()
        };
        assert!(of(1).ask());
        assert!(of(2).ask());
        assert!(!of(3).ask(), "two others for two processors");
        assert!(!SystemProcessors { load: None, ..of(1) }.ask(), "nobody knows");
    }

    #[test]
    fn an_answer_is_believed_for_a_while_and_longer_each_time_that_all_are_busy() {
        let processors = SystemProcessors { load: None, ..SystemProcessors::default() };
        let mut asked = Vec::new();
        for now_us in (9_000_000..9_040_000).step_by(50) {
            assert!(!processors.have_idle(Duration::from_micros(now_us)));
            let last = processors.answer.load(Ordering::Relaxed) >> 1;
            if asked.last() != Some(&last) {
                asked.push(last);
            }
        }
        let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses[..7], [100, 200, 400, 800, 1_600, 3_200, 6_400]);
        assert!(pauses[7..].iter().all(|&pause| pause == 6_400), "{pauses:?}");

        // A processor was idle: that is trusted for a short time, and so is the next answer.
        processors.answer.store(9_050_000 << 1 | 1, Ordering::Relaxed);
        processors.belief_us.store(BELIEF_MIN_US, Ordering::Relaxed);
        assert!(processors.have_idle(Duration::from_micros(9_050_050)));
        assert!(!processors.have_idle(Duration::from_micros(9_050_100)));
        assert_eq!(processors.belief_us.load(Ordering::Relaxed), BELIEF_MIN_US);
    }
}
