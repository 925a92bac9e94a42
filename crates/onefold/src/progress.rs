//! Progress and remaining time of long work: a bar on a terminal, elsewhere a line every few seconds, always on
//! standard error.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use onefold_block::BLOCK_BYTES;
use onefold_block::shown::ShownText;
use onefold_disk::Progress;

use crate::interrupt::Interrupt;
use crate::size::human;

const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Shows the progress of one piece of work. Without a terminal, work that ends within moments shows nothing.
pub(crate) struct Meter {
    /// The activity, as in "checking".
    doing: String,
    unit: MeterUnit,
    shown: MeterDisplay,
    interrupt: Interrupt,
}

/// The unit of the amounts that a meter shows.
#[derive(Clone, Copy, Debug)]
enum MeterUnit {
    Bytes,
    Files,
}

enum MeterDisplay {
    Nothing,
    Bar(ProgressBar),
    Lines(Mutex<MeterLines>),
}

struct MeterLines {
    started: Instant,
    printed: Instant,
    /// More about the work, if there is any.
    detail: String,
}

impl Meter {
    /// Returns a meter for work of a length that is not known yet; `quiet` shows nothing.
    pub(crate) fn new(doing: impl Into<String>, quiet: bool, interrupt: Interrupt) -> Meter {
        Meter::with_unit(doing, MeterUnit::Bytes, quiet, interrupt)
    }

    /// As [`Meter::new`], for work that is counted in files.
    pub(crate) fn of_files(doing: impl Into<String>, quiet: bool, interrupt: Interrupt) -> Meter {
        Meter::with_unit(doing, MeterUnit::Files, quiet, interrupt)
    }

    fn with_unit(doing: impl Into<String>, unit: MeterUnit, quiet: bool, interrupt: Interrupt) -> Meter {
        // It contains names of files and pools.
        let doing = ShownText::line(&doing.into()).to_string();
        let shown = if quiet {
            MeterDisplay::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = bar(&doing, unit, ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(250));
            MeterDisplay::Bar(bar)
        } else {
            let now = Instant::now();
            MeterDisplay::Lines(Mutex::new(MeterLines { started: now, printed: now, detail: String::new() }))
        };
        Meter { doing, unit, shown, interrupt }
    }

    /// Shows more about the work, on a line of its own below a bar, and behind the amounts elsewhere.
    pub(crate) fn show_detail(&self, text: &str) {
        match &self.shown {
            MeterDisplay::Nothing => {}
            MeterDisplay::Bar(bar) => {
                bar.set_style(style(self.unit, true));
                bar.set_message(text.to_owned());
            }
            MeterDisplay::Lines(lines) => {
                if let Ok(mut lines) = lines.lock() {
                    text.clone_into(&mut lines.detail);
                }
            }
        }
    }

    /// Shows that `done` of `total` bytes are done. Returns `Break` when the user wants to stop.
    pub(crate) fn show_bytes(&self, done: u64, total: u64) -> ControlFlow<()> {
        self.show(done, total)
    }

    /// Shows that `done` of `total` files are done, on a meter of files. Returns `Break` when the user wants to stop.
    pub(crate) fn show_files(&self, done: u64, total: u64) -> ControlFlow<()> {
        self.show(done, total)
    }

    fn show(&self, done: u64, total: u64) -> ControlFlow<()> {
        match &self.shown {
            MeterDisplay::Nothing => {}
            MeterDisplay::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            MeterDisplay::Lines(lines) => {
                // Poisoned only by a panic while printing: then there is nothing left to show.
                if let Ok(mut lines) = lines.lock()
                    && lines.printed.elapsed() >= LINE_INTERVAL
                {
                    lines.printed = Instant::now();
                    let detail = if lines.detail.is_empty() { String::new() } else { format!("; {}", lines.detail) };
                    eprintln!("{}{detail}", line(&self.doing, self.unit, done, total, lines.started.elapsed()));
                }
            }
        }
        if self.interrupt.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Returns a callback for work on a disk.
    pub(crate) fn on_progress(&self) -> impl Fn(Progress) -> ControlFlow<()> + Sync {
        |progress: Progress| self.show_bytes(progress.done_bytes, progress.total_bytes)
    }

    /// Returns whether the user wants to stop.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.is_asked()
    }

    /// Removes the bar before results are printed.
    pub(crate) fn finish(&self) {
        if let MeterDisplay::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

impl onefold_pool::Progress for Meter {
    fn update(&self, done: u64, total: u64) -> ControlFlow<()> {
        self.show_bytes(done.saturating_mul(BLOCK_BYTES as u64), total.saturating_mul(BLOCK_BYTES as u64))
    }
}

/// Returns a bar that takes the rest of the row. A long name of the work leaves nothing of it, and takes a second row.
fn bar(doing: &str, unit: MeterUnit, target: ProgressDrawTarget) -> ProgressBar {
    ProgressBar::with_draw_target(Some(0), target).with_style(style(unit, false)).with_prefix(doing.to_owned())
}

/// Returns the form of a bar, with or without a line below it, which ends with the row.
fn style(unit: MeterUnit, has_detail: bool) -> ProgressStyle {
    let template = match unit {
        MeterUnit::Bytes => {
            "{prefix} [{wide_bar}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left"
        }
        MeterUnit::Files => "{prefix} [{wide_bar}] {pos} of {len} files, {eta} left",
    };
    let below = if has_detail { "\n  {wide_msg}" } else { "" };
    let style = ProgressStyle::with_template(&format!("{template}{below}"));
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// Returns one line of progress: amount, rate, and remaining time.
fn line(doing: &str, unit: MeterUnit, done: u64, total: u64, elapsed: Duration) -> String {
    let done = done.min(total);
    let percent = u128::from(done) * 100 / u128::from(total.max(1));
    let elapsed_ms = elapsed.as_millis().max(1);
    let bytes_per_second = u64::try_from(u128::from(done) * 1000 / elapsed_ms).unwrap_or(u64::MAX);
    let mut text = match unit {
        MeterUnit::Bytes => {
            format!("{doing}: {} of {} ({percent} %), {}/s", human(done), human(total), human(bytes_per_second))
        }
        MeterUnit::Files => format!("{doing}: {done} of {total} files ({percent} %)"),
    };
    if done > 0 {
        let left_ms = elapsed_ms * u128::from(total - done) / u128::from(done);
        text.push_str(&format!(", {} left", duration(u64::try_from(left_ms / 1000).unwrap_or(u64::MAX))));
    }
    text
}

/// Returns a number of seconds in its two most significant units.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use indicatif::TermLike;

    use super::*;

    /// A terminal of 80 columns that keeps the texts written to it.
    #[derive(Clone, Debug, Default)]
    struct NotedTerminal(Arc<Mutex<Vec<String>>>);

    impl TermLike for NotedTerminal {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push(text.to_owned());
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Regression: the longest detail, that of an installation by multicast, took two rows.
    #[test]
    fn more_about_the_work_ends_with_the_row() {
        let (terminal, doing, unit) = (NotedTerminal::default(), "installing web@3".to_owned(), MeterUnit::Bytes);
        let bar = bar(&doing, unit, ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        let (shown, interrupt) = (MeterDisplay::Bar(bar.clone()), Interrupt::default());
        let meter = Meter { doing, unit, shown, interrupt };
        meter.show_detail(
            "processor 412.00 MiB/s is the limit; network waits 90 %, disk waits 90 %; 12.3 % lost, \
             1,234 symbols again",
        );
        assert!(meter.show_bytes(1 << 30, 4 << 30).is_continue());
        bar.abandon();
        let written = terminal.0.lock().unwrap();
        let detail = written.iter().find(|text| text.contains("processor")).unwrap();
        assert_eq!(
            detail.trim_end(),
            &"  processor 412.00 MiB/s is the limit; network waits 90 %, disk waits 90 %; 12.3 % lost"[..80]
        );
        assert!(written.iter().any(|text| text.starts_with("installing web@3 [")), "{written:?}");
        assert!(written.iter().all(|text| text.chars().count() <= 80), "{written:?}");
    }

    #[test]
    fn a_line_tells_how_much_how_fast_and_how_long_yet() {
        let text = line("verifying", MeterUnit::Files, 5, 20, Duration::from_secs(10));
        assert_eq!(text, "verifying: 5 of 20 files (25 %), 30 s left");
        let text = line("checking", MeterUnit::Bytes, 1 << 30, 4 << 30, Duration::from_secs(10));
        assert_eq!(text, "checking: 1.00 GiB of 4.00 GiB (25 %), 102.39 MiB/s, 30 s left");
    }

    #[test]
    fn a_name_in_a_meter_controls_no_terminal() {
        let meter = Meter::new("importing a\u{1b}[2J\n\u{202e}.raw", true, Interrupt::default());
        assert_eq!(meter.doing, r"importing a\x1b[2J\n\u{202e}.raw");
    }

    #[test]
    fn a_line_survives_any_numbers() {
        for (done, total) in [(0, 0), (5, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 1)] {
            for elapsed in [Duration::ZERO, Duration::MAX] {
                line("checking", MeterUnit::Bytes, done, total, elapsed);
                line("verifying", MeterUnit::Files, done, total, elapsed);
            }
        }
    }

    #[test]
    fn times_are_told_in_two_units() {
        assert_eq!(duration(0), "0 s");
        assert_eq!(duration(61), "1 min 1 s");
        assert_eq!(duration(7260), "2 h 1 min");
    }
}
