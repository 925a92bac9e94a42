//! Progress of passes that were interrupted: places of write logs that share already, and the slots that they share
//! with. A pass that takes in such a log leaves these places out of its plan.
//!
//! The subject is zero. Each frame but the last holds runs of one log, in order of their blocks:
//!
//! | field  | notes                                                                                             |
//! |--------|---------------------------------------------------------------------------------------------------|
//! | length | of the name, at most 255                                                                          |
//! | name   | of the log, which no other log ever has                                                           |
//! | runs   | for each: the distance of its first block from the end of the run before it, in this log; its number of blocks, less one; the distance of its first slot from the slot behind the run before it, in zigzag form |
//!
//! Numbers have variable length. A log with many runs has several frames, one after the other; distances begin anew in
//! each. The last frame holds the number of blocks in all, 8 bytes.

use std::io;

use onefold_substrate::Substrate;

use super::number::{push_number, take_number, unzigzag, zigzag};
use super::record::{Frame, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::{FileBlock, FormatError, Slot};

/// Maximum length of a log's name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Maximum length of an encoded run: three numbers.
const RUN_BYTES_MAX: usize = 30;
const _: () = assert!(NAME_BYTES_MAX + 2 + RUN_BYTES_MAX <= PAYLOAD_BYTES_MAX, "a frame has room for a run");

/// Consecutive blocks of a file that share with consecutive slots of an arena file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DoneRun {
    /// The first block.
    pub first: FileBlock,
    /// Its slot.
    pub slot: Slot,
    /// Number of blocks, at least one.
    pub count: u64,
}

impl DoneRun {
    /// Returns the block behind its last one.
    #[must_use]
    pub fn end(&self) -> FileBlock {
        FileBlock(self.first.0 + self.count)
    }

    /// Returns each block and its slot.
    pub fn places(&self) -> impl Iterator<Item = (FileBlock, Slot)> + use<> {
        let (first, slot) = (self.first.0, self.slot.number());
        (0..self.count).filter_map(move |at| Some((FileBlock(first + at), Slot::from_number(slot + at)?)))
    }

    /// Appends another run if it continues this one, in the file and in the arena file. Returns whether it does.
    pub(crate) fn join(&mut self, next: &DoneRun) -> bool {
        let goes_on = self.end() == next.first
            && self.slot.arena() == next.slot.arena()
            && self.slot.number() + self.count == next.slot.number();
        self.count += if goes_on { next.count } else { 0 };
        goes_on
    }
}

/// The places of a log that share already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProgress {
    /// The name of the log.
    pub log: String,
    /// The places, disjoint and in order of their blocks.
    pub runs: Vec<DoneRun>,
}

/// Writes the progress of some logs to an empty file and makes it durable. A log whose name no file can have is left
/// out.
///
/// # Errors
/// No space; errors of the device.
///
/// # Panics
/// If runs of a log overlap, or are out of order.
pub fn write<S: Substrate>(substrate: &S, file: S::File, identity: [u8; 16], logs: &[LogProgress]) -> io::Result<()> {
    let header = RecordHeader { kind: RecordKind::Progress, identity, subject: 0 };
    let mut writer = RecordWriter::new(substrate, file, &header);
    let mut blocks: u64 = 0;
    for LogProgress { log, runs } in logs.iter().filter(|progress| progress.log.len() <= NAME_BYTES_MAX) {
        assert!(runs.windows(2).all(|pair| pair[0].end() <= pair[1].first), "runs of {log} are out of order");
        let mut rest = &runs[..];
        while !rest.is_empty() {
            let mut payload = Vec::new();
            push_number(log.len() as u64, &mut payload);
            payload.extend_from_slice(log.as_bytes());
            let (mut next, mut slot) = (0, 0);
            while let [run, others @ ..] = rest
                && payload.len() + RUN_BYTES_MAX <= PAYLOAD_BYTES_MAX
            {
                push_number(run.first.0 - next, &mut payload);
                push_number(run.count - 1, &mut payload);
                push_number(zigzag(run.slot.number().wrapping_sub(slot)), &mut payload);
                (next, slot) = (run.end().0, run.slot.number() + run.count);
                blocks += run.count;
                rest = others;
            }
            writer.frame(&payload)?;
        }
    }
    writer.finish(&blocks.to_le_bytes()).map(drop)
}

/// Reads the progress of logs. Returns at most about `runs_max` runs: the frames behind these are not read.
///
/// # Errors
/// See [`FormatError`].
pub fn read<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: &[u8; 16],
    runs_max: usize,
) -> Result<Vec<LogProgress>, FormatError> {
    let mut reader = RecordReader::open(substrate, file, RecordKind::Progress, Some(identity))?;
    let (mut logs, mut blocks, mut runs): (Vec<LogProgress>, u64, usize) = (Vec::new(), 0, 0);
    while runs < runs_max {
        match reader.next_frame()? {
            Some(Frame::Inner(payload)) => {
                let next = decode(payload)?;
                runs += next.runs.len();
                blocks += next.runs.iter().map(|run| run.count).sum::<u64>();
                match logs.last_mut().filter(|last| last.log == next.log) {
                    Some(last) if last.runs.last().is_some_and(|run| run.end() > next.runs[0].first) => {
                        return Err(OUT_OF_ORDER);
                    }
                    Some(last) => last.runs.extend(next.runs),
                    None => logs.push(next),
                }
            }
            Some(Frame::Last(payload)) if payload == blocks.to_le_bytes() => break,
            _ => return Err(FormatError::Damaged("it has not as many blocks as it says")),
        }
    }
    Ok(logs)
}

const OUT_OF_ORDER: FormatError = FormatError::Damaged("its runs are out of order");

/// Decodes a frame. It has at least one run.
fn decode(mut payload: &[u8]) -> Result<LogProgress, FormatError> {
    const CUT: FormatError = FormatError::Damaged("a run ends too early");
    let rest = &mut payload;
    let length = take_number(rest).and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= NAME_BYTES_MAX).ok_or(FormatError::Damaged("a name is too long"))?;
    let (name, runs) = rest.split_at_checked(length).ok_or(CUT)?;
    *rest = runs;
    let log = str::from_utf8(name).map_err(|_| FormatError::Damaged("a name is no text"))?.to_owned();
    let (mut next, mut slot, mut runs) = (0_u64, 0_u64, Vec::new());
    while !rest.is_empty() {
        let (gap, count) = take_number(rest).zip(take_number(rest)).ok_or(CUT)?;
        let distance = unzigzag(take_number(rest).ok_or(CUT)?);
        let first = next.checked_add(gap).filter(|first| *first < FileBlock::LIMIT).ok_or(OUT_OF_ORDER)?;
        let from =
            Slot::from_number(slot.wrapping_add(distance)).ok_or(FormatError::Damaged("there is no such slot"))?;
        // The first condition keeps the others from overflowing.
        if count >= Slot::IN_FILE - from.index() || first + count >= FileBlock::LIMIT {
            return Err(FormatError::Damaged("a run ends behind its file"));
        }
        let run = DoneRun { first: FileBlock(first), slot: from, count: count + 1 };
        (next, slot) = (run.end().0, from.number() + run.count);
        runs.push(run);
    }
    if runs.is_empty() { Err(CUT) } else { Ok(LogProgress { log, runs }) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onefold_block::random::SeededRandom;
    use onefold_substrate::{Access, Files};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};

    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn substrate() -> SimulatedSubstrate<'static> {
        SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() }).observe().substrate
    }

    fn run(first: u64, slot: u64, count: u64) -> DoneRun {
        DoneRun { first: FileBlock(first), slot: Slot::from_number(slot).unwrap(), count }
    }

    fn progress(log: &str, runs: Vec<DoneRun>) -> LogProgress {
        LogProgress { log: log.to_owned(), runs }
    }

    #[test]
    fn progress_is_read_as_it_was_written() {
        let (substrate, random) = (substrate(), SeededRandom::new(3));
        for (round, most) in [0, 1, 50, 30_000].into_iter().enumerate() {
            let mut next = 0;
            let runs = (0..most).map(|_| {
                let first = next + random.below(3) * random.below(1 << 18);
                let slot = Slot::from_number(random.below(Slot::LIMIT)).unwrap();
                let count = 1 + random.below(Slot::IN_FILE - slot.index());
                next = first + count;
                DoneRun { first: FileBlock(first), slot, count }
            });
            let logs = [progress("1.0a.host.0", runs.collect()), progress("2.0b.host.1", vec![run(0, 0, 1)])];
            let logs: Vec<LogProgress> = logs.into_iter().filter(|log| !log.runs.is_empty()).collect();
            let path = format!("progress{round}");
            write(&substrate, substrate.create(Path::new(&path)).unwrap(), UUID, &logs).unwrap();
            let open = || substrate.open(Path::new(&path), Access::Read).unwrap();
            assert_eq!(read(&substrate, open(), &UUID, usize::MAX).unwrap(), logs);
            assert!(matches!(read(&substrate, open(), &[0; 16], usize::MAX), Err(FormatError::Foreign)));
            let some = read(&substrate, open(), &UUID, 1).unwrap();
            assert!(logs.len() == 1 || some.len() == 1, "only the first frame was asked for");
        }
    }

    /// The bytes of a record do not change: other versions read them.
    #[test]
    fn a_record_has_these_bytes_and_none_is_read_that_differs() {
        let substrate = substrate();
        let path = Path::new("progress");
        let logs = [progress("9.a", vec![run(300, 5, 2), run(302, 4, 1)])];
        write(&substrate, substrate.create(path).unwrap(), UUID, &logs).unwrap();
        let mut bytes = [0; 99];
        let file = substrate.open(path, Access::Write).unwrap();
        assert_eq!(substrate.read_at(&file, 0, &mut bytes).unwrap(), 99);
        assert_eq!((&bytes[..12], &bytes[32..40]), (&b"onefold\x1a\x0e\0\x01\0"[..], &[0; 8][..]));
        assert_eq!(bytes[72..83], [3, b'9', b'.', b'a', 0xac, 2, 1, 10, 0, 0, 5]);
        assert_eq!(bytes[91..], [3, 0, 0, 0, 0, 0, 0, 0]);
        for at in (0..99).filter(|at| !(12..16).contains(at) && !(32..60).contains(at)) {
            let mut spoilt = bytes;
            spoilt[at] ^= 0x41;
            substrate.write_at(&file, 0, &spoilt).unwrap();
            let read = read(&substrate, substrate.open(path, Access::Read).unwrap(), &UUID, usize::MAX);
            assert!(read.is_err(), "{at}: {read:?}");
        }
    }

    #[test]
    fn runs_that_cannot_be_are_refused() {
        let frame = |numbers: &[u64]| {
            let mut payload = vec![1, b'a'];
            numbers.iter().for_each(|number| push_number(*number, &mut payload));
            decode(&payload)
        };
        assert_eq!(frame(&[4, 1, 6]).unwrap(), progress("a", vec![run(4, 3, 2)]));
        for (numbers, what) in [
            (&[][..], "no run"),
            (&[4, 1][..], "cut"),
            (&[FileBlock::LIMIT, 0, 0][..], "behind all blocks"),
            (&[FileBlock::LIMIT - 1, 1, 0][..], "ends behind all blocks"),
            (&[u64::MAX, 0, 0][..], "behind all blocks"),
            (&[0, 0, 0, u64::MAX, 0, 0][..], "before the last one"),
            (&[0, Slot::IN_FILE, 0][..], "ends behind the arena file"),
            (&[0, u64::MAX, 0][..], "ends behind the arena file"),
            (&[0, 0, 2 * Slot::LIMIT][..], "no such slot"),
            (&[0, 0, 1][..], "no such slot"),
        ] {
            assert!(frame(numbers).is_err(), "{what}: {numbers:?}");
        }
        assert!(decode(&[2, b'a']).is_err() && decode(&[1, 0xff, 0, 0, 0]).is_err() && decode(&[]).is_err());
    }

    #[test]
    fn runs_join_where_both_sides_go_on() {
        let mut joined = run(5, 7, 2);
        assert!(joined.join(&run(7, 9, 3)) && joined == run(5, 7, 5));
        for other in [run(11, 12, 1), run(10, 13, 1), run(10, 11, 1)] {
            assert!(!joined.join(&other) && joined == run(5, 7, 5), "{other:?}");
        }
        let mut last = run(0, Slot::IN_FILE - 1, 1);
        assert!(!last.join(&run(1, Slot::IN_FILE, 1)), "another arena file");
        let places: Vec<_> = run(5, 7, 2).places().map(|(block, slot)| (block.0, slot.number())).collect();
        assert_eq!(places, [(5, 7), (6, 8)]);
    }
}
