//! Figures of an installation: how fast its stages are, which one limits it, and how far it is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onefold_block::Clock;
use onefold_block::clock::SystemClock;
use onefold_block::size::percent;
use onefold_disk::Progress;
use onefold_image::{ImageSource, Stage, StageFigures, StageMeter};
use onefold_net::{HttpCause, InstallProgress, InstallStages, LimitingStage, SharedGroupReport, StageProgress};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::output::TextTable;
use crate::size::{grouped, human};

/// Time between two looks at the stages.
const LOOK: Duration = Duration::from_millis(500);
/// Looks that are remembered: figures are those of the last seconds.
const LOOKS_MAX: usize = 10;
/// The parts of the machines that stages keep busy.
const PARTS: [LimitingStage; 3] = [LimitingStage::Network, LimitingStage::Processor, LimitingStage::Disk];

/// The figures of one installation.
pub(super) struct InstallFigures {
    clock: Arc<dyn Clock>,
    stages: StageMeter,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    /// The latest looks, the earliest first.
    looks: Mutex<VecDeque<Look>>,
    /// Counts of multicast, if that was asked for.
    group: Option<SharedGroupReport>,
    /// Set once the server ends the installation.
    is_ended: OnceLock<Arc<AtomicBool>>,
}

/// The figures at one moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Duration,
    stages: StageFigures,
    done_bytes: u64,
}

impl InstallFigures {
    /// Returns the figures of an installation from a source, which has not begun.
    pub(super) fn new(source: &dyn ImageSource, group: Option<SharedGroupReport>) -> InstallFigures {
        InstallFigures::with_clock(Arc::new(SystemClock), source, group)
    }

    fn with_clock(clock: Arc<dyn Clock>, source: &dyn ImageSource, group: Option<SharedGroupReport>) -> InstallFigures {
        let first = Look { at: clock.monotonic(), stages: StageFigures::default(), done_bytes: 0 };
        InstallFigures {
            stages: StageMeter::new(Arc::clone(&clock), source),
            clock,
            done_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            looks: Mutex::new([first].into()),
            group,
            is_ended: OnceLock::new(),
        }
    }

    /// Takes the flag by which the server ends the installation.
    pub(super) fn end_by(&self, flag: Arc<AtomicBool>) {
        let _ = self.is_ended.set(flag);
    }

    /// Returns whether the server has ended the installation.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Returns the meter of the stages.
    pub(super) fn stages(&self) -> &StageMeter {
        &self.stages
    }

    /// Takes the progress. Returns a line about the stages now and then.
    pub(super) fn note(&self, progress: Progress) -> Option<String> {
        self.done_bytes.store(progress.done_bytes, Ordering::Relaxed);
        self.total_bytes.store(progress.total_bytes, Ordering::Relaxed);
        {
            let mut looks = self.looks.lock();
            let now = self.look();
            if looks.back().is_some_and(|last| now.at.saturating_sub(last.at) < LOOK) {
                return None;
            }
            looks.push_back(now);
            if looks.len() > LOOKS_MAX {
                looks.pop_front();
            }
        }
        self.text()
    }

    fn look(&self) -> Look {
        let done_bytes = self.done_bytes.load(Ordering::Relaxed);
        Look { at: self.clock.monotonic(), stages: self.stages.figures(), done_bytes }
    }

    /// Returns what went on in the last seconds: stages, bytes that were done, and the time for that.
    fn lately(&self) -> (StageFigures, u64, Duration) {
        let now = self.look();
        let Some(first) = self.looks.lock().front().copied() else { return Default::default() };
        let done_bytes = now.done_bytes.saturating_sub(first.done_bytes);
        (now.stages.since(&first.stages), done_bytes, now.at.saturating_sub(first.at))
    }

    /// Returns which part of the machines limits the installation, and for which part of the time others wait, for
    /// people.
    fn text(&self) -> Option<String> {
        let (stages, done_bytes, time) = self.lately();
        let limit = limit_of(&stages)?;
        let tells_waiting = stages.receive.is_some();
        let rate = part_of(&stages, limit, time).bytes_per_second;
        if limit == LimitingStage::Network && rate == 0 && done_bytes == 0 {
            return Some("nothing comes from the server now; it may wait for other machines".to_owned());
        }
        let is_other = |part: &LimitingStage| *part != limit && (tells_waiting || *part != LimitingStage::Network);
        let waits = PARTS.into_iter().filter(is_other).map(|part| {
            format!("{} waits {} %", name_of_part(part, tells_waiting), part_of(&stages, part, time).waiting_percent)
        });
        let waits = waits.collect::<Vec<_>>().join(", ");
        let mut text = format!("{} {}/s is the limit; {waits}", name_of_part(limit, tells_waiting), human(rate));
        if let Some(group) = self.group.as_ref().map(|group| group.lock()).filter(|group| group.sent_packets > 0) {
            let lost = group.sent_packets.saturating_sub(group.received_packets);
            let (lost, again) = (percent(lost, group.sent_packets), grouped(group.requested_symbols));
            text += &format!("; {lost} lost, {again} symbols again");
        }
        Some(text)
    }

    /// Returns how far the installation is, for the server.
    pub(super) fn progress(&self) -> InstallProgress {
        let (stages, done_bytes, time) = self.lately();
        let group = self.group.as_ref().map(|group| group.lock().clone()).unwrap_or_default();
        InstallProgress {
            done_bytes: self.done_bytes.load(Ordering::Relaxed),
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            received_bytes: self.stages.received_bytes(),
            bytes_per_second: per_second(done_bytes, time),
            limit: limit_of(&stages),
            stages: limit_of(&stages).map(|_| {
                let [network, processor, disk] = PARTS.map(|part| part_of(&stages, part, time));
                InstallStages { network, processor, disk }
            }),
            is_multicast: group.is_arriving,
            http_cause: group.http_reason.map(HttpCause::from),
            received_packets: group.received_packets,
            sent_packets: group.sent_packets,
            requested_symbols: group.requested_symbols,
        }
    }

    /// Returns the time of all threads in each stage, and the bytes that went through it.
    pub(super) fn table(&self) -> TextTable {
        let figures = self.stages.figures();
        let mut table = TextTable::new(["stage", "bytes", "seconds of all threads"]);
        for (stage, figure) in figures.all() {
            if stage != Stage::Receive || figures.receive.is_some() {
                let seconds = format!("{:.1}", figure.busy.as_secs_f64());
                table.row([name_of(stage, figures.receive.is_some()).to_owned(), human(figure.bytes), seconds]);
            }
        }
        table
    }

    /// Returns the same for machines.
    pub(super) fn json(&self) -> Value {
        let figures = self.stages.figures();
        let stages = figures.all().map(|(stage, figure)| match stage == Stage::Receive && figures.receive.is_none() {
            true => Value::Null,
            false => json!({ "bytes": figure.bytes, "seconds": figure.busy.as_secs_f64() }),
        });
        let [receive, unpack, write, compare] = stages;
        let limit = limit_of(&figures).map(|limit| name_of_part(limit, figures.receive.is_some()));
        json!({ "receive": receive, "unpack": unpack, "write": write, "compare": compare, "limit": limit })
    }
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let per_second = u128::from(bytes) * 1000 / time.as_millis().max(1);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// Returns the name of a part of the machines. Reading from an archive of this machine is not told from unpacking.
fn name_of_part(part: LimitingStage, tells_waiting: bool) -> &'static str {
    match part {
        LimitingStage::Processor if !tells_waiting => "archive",
        part => part.name(),
    }
}

/// Returns what the stages of one part of the machines have done in a time.
fn part_of(stages: &StageFigures, part: LimitingStage, time: Duration) -> StageProgress {
    let is_of_part = |stage| part_with(stage) == part;
    let bytes = stages.all().into_iter().filter(|(stage, _)| is_of_part(*stage)).map(|(_, figure)| figure.bytes).sum();
    let waiting_percent = stages.waiting_percent(is_of_part);
    StageProgress { bytes_per_second: per_second(bytes, time), waiting_percent }
}

/// Returns the name of a stage in the closing table.
fn name_of(stage: Stage, tells_waiting: bool) -> &'static str {
    match stage {
        Stage::Receive => "receive",
        Stage::Unpack if tells_waiting => "decompress, verify",
        Stage::Unpack => "read, decompress, verify",
        Stage::Write => "write",
        Stage::Compare => "compare",
    }
}

/// Returns the part of the machines whose stages took most of the threads' time; `None` if none took any.
fn limit_of(stages: &StageFigures) -> Option<LimitingStage> {
    let busy = |part: &LimitingStage| stages.busy(|stage| part_with(stage) == *part);
    PARTS.into_iter().max_by_key(busy).filter(|part| !busy(part).is_zero())
}

/// Returns the part of the machines that a stage keeps busy.
fn part_with(stage: Stage) -> LimitingStage {
    match stage {
        Stage::Receive => LimitingStage::Network,
        Stage::Unpack => LimitingStage::Processor,
        Stage::Write | Stage::Compare => LimitingStage::Disk,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use onefold_block::Timestamp;
    use onefold_image::archive::{ArchiveError, Headers, WantedUnit};
    use onefold_image::install::Target;
    use onefold_image::{
        ChunkReader, ImageVersion, MeteredSource, MeteredTarget, OnUnit, UnitKey, UnitName, WantedUnits,
    };

    use super::*;

    /// A clock that only work moves.
    #[derive(Default)]
    struct WorkClock(AtomicU64);

    impl WorkClock {
        fn pass(&self, milliseconds: u64) {
            self.0.fetch_add(milliseconds, Ordering::Relaxed);
        }
    }

    impl Clock for WorkClock {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    /// A source and a target that take their time for each mebibyte.
    struct SlowPlace {
        clock: Arc<WorkClock>,
        key: UnitKey,
        receive_ms: u64,
        unpack_ms: u64,
        write_ms: u64,
        compare_ms: u64,
        waited_ms: AtomicU64,
        is_remote: bool,
    }

    impl fmt::Debug for SlowPlace {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("SlowPlace").finish_non_exhaustive()
        }
    }

    impl ImageSource for SlowPlace {
        fn key(&self) -> &UnitKey {
            &self.key
        }

        fn read(&self, _: &[WantedUnit], _: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
            self.clock.pass(self.receive_ms + self.unpack_ms);
            self.waited_ms.fetch_add(self.receive_ms, Ordering::Relaxed);
            each(0, &vec![1; 1 << 20]);
            Ok(())
        }

        fn find(&self, _: WantedUnit) -> Result<(), ArchiveError> {
            Ok(())
        }

        fn chunks<'s>(
            &'s self,
            _: &[UnitName],
            _: &Headers,
            _: &[WantedUnits],
            _: u64,
        ) -> Result<Box<dyn ChunkReader + 's>, ArchiveError> {
            Err(ArchiveError::Lost { unit: UnitName([0; 32]) })
        }

        fn received_bytes(&self) -> u64 {
            1 << 19
        }

        fn waited(&self) -> Option<Duration> {
            self.is_remote.then(|| Duration::from_millis(self.waited_ms.load(Ordering::Relaxed)))
        }

        fn of_image(&self, _: &ImageVersion, error: ArchiveError) -> ArchiveError {
            error
        }
    }

    impl Target for SlowPlace {
        fn length_bytes(&self) -> u64 {
            1 << 30
        }

        fn is_blank(&self) -> bool {
            false
        }

        fn write(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
            self.clock.pass(self.write_ms);
            Ok(())
        }

        fn zero(&self, _: u64, _: u64) -> std::io::Result<u64> {
            Ok(0)
        }

        fn discard(&self, _: u64, _: u64) -> std::io::Result<u64> {
            Ok(0)
        }

        fn sync(&self) -> std::io::Result<()> {
            Ok(())
        }

        fn read(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
            self.clock.pass(self.compare_ms);
            Ok(())
        }
    }

    /// Installs twenty mebibytes. Returns the last line about the stages, and the progress.
    fn installed(
        [receive_ms, unpack_ms, write_ms, compare_ms]: [u64; 4],
        is_remote: bool,
        group: Option<SharedGroupReport>,
    ) -> (String, InstallProgress) {
        let (clock, key, waited_ms) = (Arc::new(WorkClock::default()), UnitKey([7; 32]), AtomicU64::new(0));
        let shared = Arc::clone(&clock);
        let place = SlowPlace { clock: shared, key, receive_ms, unpack_ms, write_ms, compare_ms, waited_ms, is_remote };
        let figures = InstallFigures::with_clock(clock, &place, group);
        let (source, target) =
            (MeteredSource::new(&place, figures.stages()), MeteredTarget::new(&place, figures.stages()));
        let mut line = None;
        for mebibyte in 1..=20 {
            source.read(&[], 0, &mut |_, _| ()).unwrap();
            target.write(0, &[1; 1 << 20]).unwrap();
            target.read(0, &mut [0; 1 << 10]).unwrap();
            let progress = Progress { done_bytes: mebibyte << 20, total_bytes: 40 << 20 };
            line = figures.note(progress).or(line);
        }
        (line.unwrap(), figures.progress())
    }

    #[test]
    fn the_line_names_the_slowest_stage_and_how_long_the_other_end_waits() {
        for (stages, is_remote, begin, limit) in [
            ([900, 50, 50, 0], true, "network ", LimitingStage::Network),
            ([60, 800, 50, 0], true, "processor ", LimitingStage::Processor),
            ([60, 50, 900, 0], true, "disk ", LimitingStage::Disk),
            ([0, 900, 50, 0], false, "archive ", LimitingStage::Processor),
        ] {
            let (line, progress) = installed(stages, is_remote, None);
            assert!(line.starts_with(begin) && line.contains("/s is the limit; ") && line.len() < 78, "{line}");
            let waits: Vec<&str> = line.matches(" waits 9").collect();
            assert_eq!(
                (waits.len(), line.contains("network waits")),
                (usize::from(is_remote) + 1, is_remote && limit != LimitingStage::Network),
                "{line}"
            );
            let found = progress.stages.unwrap();
            let waits = [found.network, found.processor, found.disk].map(|stage| stage.waiting_percent);
            assert_eq!(waits.iter().filter(|percent| **percent >= 90).count(), 2, "{waits:?}");
            let rate = found.disk.bytes_per_second;
            assert!((800 << 10..1200 << 10).contains(&rate), "{rate}");
            assert_eq!((progress.limit, progress.done_bytes), (Some(limit), 20 << 20));
            assert_eq!((progress.total_bytes, progress.received_bytes), (40 << 20, 1 << 19));
            assert!((800 << 10..1200 << 10).contains(&progress.bytes_per_second), "{}", progress.bytes_per_second);
        }
    }

    /// Regression: the longest single stage was the limit, although writing and comparing together took longer.
    #[test]
    fn the_stages_of_one_part_of_the_machine_count_together() {
        let (line, progress) = installed([400, 0, 350, 250], true, None);
        assert!(line.starts_with("disk ") && line.ends_with("network waits 60 %, processor waits 100 %"), "{line}");
        let stages = progress.stages.unwrap();
        assert_eq!((progress.limit, stages.disk.waiting_percent), (Some(LimitingStage::Disk), 40));
    }

    #[test]
    fn losses_are_told_where_packets_were_sent() {
        let group = SharedGroupReport::default();
        (group.lock().sent_packets, group.lock().received_packets, group.lock().is_arriving) = (1000, 995, true);
        group.lock().requested_symbols = 1234;
        let (line, progress) = installed([900, 50, 50, 0], true, Some(group));
        assert!(line.ends_with("; 0.5 % lost, 1,234 symbols again"), "{line}");
        assert!(progress.is_multicast && progress.sent_packets == 1000 && progress.requested_symbols == 1234);
    }
}
