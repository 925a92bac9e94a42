//! How many lines the log takes: many at once when a room of machines begins together, and few per second for ever.

use std::time::{Duration, Instant};

/// Lines that may come at once.
const BURST: u32 = 200;
/// Time after which one more line may come.
const EVERY: Duration = Duration::from_millis(100);

/// A limit of lines. It counts those that were left out.
#[derive(Debug, Default)]
pub(super) struct LineLimit {
    /// Lines that came lately, and the time from which on they are forgotten one by one.
    recent: u32,
    since: Option<Instant>,
    left_out: u64,
}

impl LineLimit {
    /// Returns the line if the limit takes it, and before it how many were left out. Without a line, only the latter.
    pub(super) fn pass(&mut self, line: Option<String>, now: Instant) -> Vec<String> {
        let since = *self.since.get_or_insert(now);
        let forgotten = now.saturating_duration_since(since).as_millis() / EVERY.as_millis();
        let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX);
        self.recent = self.recent.saturating_sub(forgotten);
        self.since = Some(if self.recent == 0 { now } else { since + EVERY * forgotten });
        let mut passed = Vec::new();
        if self.left_out > 0 && self.takes() {
            passed.push(format!("lines about machines that were left out: {}", self.left_out));
            self.left_out = 0;
        }
        match line {
            Some(line) if self.takes() => passed.push(line),
            Some(_) => self.left_out += 1,
            None => {}
        }
        passed
    }

    fn takes(&mut self) -> bool {
        let takes = self.recent < BURST;
        self.recent += u32::from(takes);
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_becomes_few_and_their_number_is_told() {
        let (mut limit, mut now) = (LineLimit::default(), Instant::now());
        let mut passed = 0;
        for _ in 0..1000 {
            passed += limit.pass(Some("line".to_owned()), now).len();
        }
        assert_eq!(passed, BURST as usize);
        now += EVERY;
        assert_eq!(limit.pass(None, now), ["lines about machines that were left out: 800"]);
        assert!(limit.pass(Some("line".to_owned()), now).is_empty());
        now += EVERY * 2;
        assert_eq!(limit.pass(Some("line".to_owned()), now), ["lines about machines that were left out: 1", "line"]);
        // A second of a flood brings as many lines as the limit says.
        let mut passed = 0;
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            passed += limit.pass(Some("line".to_owned()), now).len();
        }
        assert_eq!(passed, 10);
        now += Duration::from_secs(3600);
        assert_eq!(limit.pass(None, now).len(), 1);
        assert_eq!(limit.pass(Some("line".to_owned()), now), ["line"]);
    }
}
