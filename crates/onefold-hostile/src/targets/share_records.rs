//! Decoders of the files in sharing's state folder: identity, marks, write logs, shards of the index and their entries,
//! intents, kept maps and guests, runs over guest files, settings of domains.

use std::path::{Path, PathBuf};

use onefold_block::Timestamp;
use onefold_share::domain::settings::Settings;
use onefold_share::domain::{Domain, Membership};
use onefold_share::format::entry::{ContentEntry, ContentPlace};
use onefold_share::format::files_run::FilesRun;
use onefold_share::format::guest::{self, GuestHead, KeptClaim, KeptFile, KeptFiles, KeptGuest, PhasedPieces, Piece};
use onefold_share::format::identity::Identity;
use onefold_share::format::intent::{self, Intent, IntentRun};
use onefold_share::format::log::{LogKind, LogWriter, Note, WrittenBlock, read_log};
use onefold_share::format::map::{self, KeptExtent};
use onefold_share::format::mark::{Mark, MarkFlags};
use onefold_share::format::reading::{ReadingState, Round};
use onefold_share::format::shard::{ShardReader, ShardWriter};
use onefold_share::format::stamp::Stamp;
use onefold_share::format::{FileBlock, FileNo, FingerprintPrefix, FormatError, Slot, cursor};
use onefold_substrate::{Access, FileHandle, Files};
use onefold_testing::simulated::{SimulatedFile, SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};

use crate::Choices;
use crate::mutate::damage_record;

const UUID: [u8; 16] = [7; 16];
const FILE: FileNo = FileNo(9);

type Sim = SimulatedSubstrate<'static>;

/// A file system with one file, which is rewritten for each input.
struct Desk {
    substrate: Sim,
}

impl Desk {
    fn new() -> Desk {
        let options = SimulationOptions { images: 0, ..SimulationOptions::default() };
        let substrate = SimulatedFileSystem::new(&options).observe().substrate;
        substrate.create(Path::new("file")).expect("an empty file system has room");
        Desk { substrate }
    }

    fn file(&self) -> SimulatedFile<'static> {
        self.substrate.open(Path::new("file"), Access::Write).expect("it was made")
    }

    /// Returns the bytes that `write` writes.
    fn written(&self, write: impl FnOnce(SimulatedFile<'static>)) -> Vec<u8> {
        self.substrate.set_len(&self.file(), 0).expect("there is room");
        write(self.file());
        let length = self.substrate.stat(&self.file()).expect("no fault was asked for").length;
        let mut bytes = vec![0; usize::try_from(length).expect("a small file")];
        self.substrate.read_at(&self.file(), 0, &mut bytes).expect("no fault was asked for");
        bytes
    }

    /// Returns a file that holds these bytes.
    fn holding(&self, bytes: &[u8]) -> SimulatedFile<'static> {
        self.substrate.set_len(&self.file(), 0).expect("there is room");
        self.substrate.write_at(&self.file(), 0, bytes).expect("there is room");
        self.file()
    }
}

pub(super) fn run(bytes: &[u8]) {
    thread_local! {
        static DESK: Desk = Desk::new();
    }
    let mut choices = Choices::new(bytes);
    DESK.with(|desk| match choices.below(9) {
        0 => identity(&mut choices, desk),
        1 => mark(&mut choices, desk),
        2 => log(&mut choices, desk),
        3 => shard(&mut choices, desk),
        4 => intent(&mut choices, desk),
        5 => map(&mut choices, desk),
        6 => cursor(&mut choices, desk),
        7 => kept_guest(&mut choices, desk),
        _ => {
            let rest = choices.take_rest();
            entries(rest);
            settings(rest);
            files_run(rest);
        }
    });
}

/// Checks an administrator's settings: they are refused, or each domain is joined once.
fn settings(bytes: &[u8]) {
    let domain = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<Domain>().ok();
    let Ok(settings) = Settings::parse(bytes) else { return };
    for word in bytes.split(u8::is_ascii_whitespace) {
        let joined = domain(word).and_then(|domain| settings.joined(&domain));
        assert!(joined.is_none_or(|into| settings.joined(&into).is_none()));
    }
}

/// Whatever the text of a run over guest files says: it is refused, or it is the one that its lists have.
fn files_run(text: &[u8]) {
    let Some(run) = FilesRun::of_text(1, Timestamp::default(), text) else { return };
    assert_eq!(run.text().as_deref(), Some(text));
}

/// Returns the file that `sound` writes, damaged, or any bytes.
fn damaged(choices: &mut Choices<'_>, desk: &Desk, sound: impl FnOnce(SimulatedFile<'static>)) -> Vec<u8> {
    if choices.below(8) == 7 {
        return choices.take_rest().to_vec();
    }
    let mut bytes = desk.written(sound);
    while !choices.is_used_up() {
        damage_record(choices, &mut bytes);
    }
    bytes
}

fn identity(choices: &mut Choices<'_>, desk: &Desk) {
    let sound = Identity { uuid: UUID, key: [3; 32] };
    let bytes = damaged(choices, desk, |file| sound.write(&desk.substrate, file).expect("there is room"));
    if let Ok(found) = Identity::read(&desk.substrate, desk.holding(&bytes)) {
        let again = desk.written(|file| found.write(&desk.substrate, file).expect("there is room"));
        assert_eq!(Identity::read(&desk.substrate, desk.holding(&again)).ok(), Some(found));
    }
}

fn mark(choices: &mut Choices<'_>, desk: &Desk) {
    let time = Timestamp { seconds: 1_790_000_000, nanoseconds: 999_999_999 };
    let now = Timestamp { seconds: 1_790_000_000, nanoseconds: 0 };
    let stamp = Stamp { length: 1 << 29, modified: time, changed: time };
    let round = Some(Round { stamp, left: 1 << 20 });
    let mut reading = ReadingState { is_known: true, generation: Some(77), cursor: 1 << 20, round, again: Vec::new() };
    for at in 0..3 {
        reading.read_again(at << 20..(at << 20) + 4096, at % 2 == 0, now);
    }
    let sound = Mark {
        flags: MarkFlags { is_reserved: true, is_ahead: false },
        number: FILE,
        handle: FileHandle::new(&[5; 16]).expect("a short one"),
        path: PathBuf::from("vm/disk.raw"),
        scanned: Some(Stamp { length: 1 << 30, modified: time, changed: time }),
        membership: Membership { domain: "staff".parse().expect("a name"), tenant: 1000, owner: 0 },
        reading,
        last_log: Some(1 << 60),
    };
    let bytes = damaged(choices, desk, |file| sound.write(&desk.substrate, file, UUID).expect("there is room"));
    if let Ok(found) = Mark::read(&desk.substrate, desk.holding(&bytes), &UUID) {
        assert!(Mark::is_path_kept(&found.path));
        let again = desk.written(|file| found.write(&desk.substrate, file, UUID).expect("there is room"));
        assert_eq!(Mark::read(&desk.substrate, desk.holding(&again), &UUID).ok(), Some(found));
    }
}

fn map(choices: &mut Choices<'_>, desk: &Desk) {
    let extent = |at: u64| KeptExtent {
        offset: at << 20,
        length: 4096 << (at % 4),
        place: (!at.is_multiple_of(5)).then_some(at << 30),
        is_unwritten: at % 7 == 3,
    };
    let sound: Vec<KeptExtent> = (0..20).map(extent).collect();
    let write = |extents: &[KeptExtent], file| drop(map::write(&desk.substrate, file, UUID, FILE, extents));
    let bytes = damaged(choices, desk, |file| write(&sound, file));
    if let Ok((FILE, found)) = map::read(&desk.substrate, desk.holding(&bytes), &UUID) {
        assert!(found.windows(2).all(|pair| pair[0].end() <= pair[1].offset), "{found:?}");
        let again = desk.written(|file| write(&found, file));
        assert_eq!(map::read(&desk.substrate, desk.holding(&again), &UUID).ok(), Some((FILE, found)));
    }
}

fn kept_guest(choices: &mut Choices<'_>, desk: &Desk) {
    let time = onefold_guest::filesystem::Timestamp { seconds: 1_790_000_000, nanoseconds: 999_999_999 };
    let changed = Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds };
    let head = GuestHead {
        stamp: Some(Stamp { length: 1 << 30, modified: changed, changed }),
        has_packages: true,
        tiers: 0b10_1110,
        ..GuestHead::default()
    };
    let mut files = KeptFiles::default();
    for (at, phase) in (0..8_u64).zip(0..8_usize) {
        let claim = match at % 3 {
            0 if at > 4 => KeptClaim::Content([9; 16]),
            0 => KeptClaim::Digest([9; 16]),
            1 => KeptClaim::Path { path: at, probes: None },
            _ => KeptClaim::Path { path: at, probes: Some(at) },
        };
        let mut pieces = PhasedPieces::default();
        pieces.0[phase] = (0..at).map(|piece| Piece { content: piece, block: 100 - piece, count: 1 }).collect();
        let file = KeptFile {
            package: (at % 3 == 0).then_some(u32::from(at > 4)),
            claim,
            tree: 0,
            system: 1,
            file: at << 7,
            generation: at,
            size_bytes: at << 12,
            modified: time,
            changed: time,
            created: (at > 3).then_some(time),
        };
        files.push(&file, &pieces);
    }
    let sound = KeptGuest { head, packages: vec!["a 1 all".to_owned(), "b 2 amd64".to_owned()], files };
    let write = |guest: &KeptGuest, file| drop(guest::write(&desk.substrate, file, UUID, FILE, guest));
    let bytes = damaged(choices, desk, |file| write(&sound, file));
    if let Ok((FILE, Some(found))) = guest::read(&desk.substrate, desk.holding(&bytes), &UUID, |_| true, usize::MAX) {
        let visited = found.files.each(&mut |file, pieces| {
            let package = file.package.map(|package| usize::try_from(package).expect("32 bits"));
            assert!(package.is_none_or(|package| package < found.packages.len()), "{file:?}");
            for piece in pieces.phases().flat_map(|(_, pieces)| pieces) {
                let ends = (piece.content.checked_add(piece.count), piece.block.checked_add(piece.count));
                assert!(matches!(ends, (Some(_), Some(end)) if end <= FileBlock::LIMIT), "{piece:?}");
            }
            Ok::<(), ()>(())
        });
        assert_eq!(visited, Ok(()));
        let again = desk.written(|file| write(&found, file));
        let read = guest::read(&desk.substrate, desk.holding(&again), &UUID, |_| true, usize::MAX);
        assert_eq!(read.ok(), Some((FILE, Some(found))));
    }
}

fn cursor(choices: &mut Choices<'_>, desk: &Desk) {
    let write = |path: &Path, file| cursor::write(&desk.substrate, file, UUID, path).expect("there is room");
    let bytes = damaged(choices, desk, |file| write(Path::new("vm/disk.raw"), file));
    if let Ok(found) = cursor::read(&desk.substrate, desk.holding(&bytes), &UUID) {
        let again = desk.written(|file| write(&found, file));
        assert_eq!(cursor::read(&desk.substrate, desk.holding(&again), &UUID).ok(), Some(found));
    }
}

/// Returns the readable notes of a log, and whether all of it was readable.
fn notes(desk: &Desk, kind: LogKind, bytes: &[u8]) -> (Vec<Note>, Option<FileNo>) {
    let mut notes = Vec::new();
    let mut next = 0;
    let each = |_, note| -> Result<(), FormatError> {
        let (first, count) = match note {
            Note::Written(written) => (written.block.0, 1),
            Note::Changed { first, count } => (first.0, count),
        };
        assert!(count > 0 && first >= next, "{note:?} after block {next}");
        next = first + count;
        assert!(next <= FileBlock::LIMIT, "{note:?}");
        notes.push(note);
        Ok(())
    };
    let file = read_log(&desk.substrate, desk.holding(bytes), kind, &UUID, each).ok();
    (notes, file)
}

fn write_log(desk: &Desk, kind: LogKind, file: FileNo, notes: &[Note]) -> Vec<u8> {
    desk.written(|log| {
        let mut writer = LogWriter::new(&desk.substrate, log, kind, UUID, file);
        notes.iter().for_each(|note| writer.push(*note).expect("there is room"));
        writer.finish().expect("there is room");
    })
}

fn log(choices: &mut Choices<'_>, desk: &Desk) {
    let written = |block, digest| Note::from(WrittenBlock { block: FileBlock(block), digest });
    let mut sound: Vec<Note> = (0..6).map(|block| written(block, Some(FingerprintPrefix([9; 12])))).collect();
    sound.push(Note::Changed { first: FileBlock(9), count: 70_000 });
    sound.extend((0..4).map(|block| written(100_000 + block * 7, None)));
    let kind = if choices.below(2) == 0 { LogKind::Log } else { LogKind::Request };
    let sound = write_log(desk, kind, FILE, &sound);
    let bytes = damaged(choices, desk, |file| desk.substrate.write_at(&file, 0, &sound).expect("there is room"));
    let (found, file) = notes(desk, kind, &bytes);
    if let Some(file) = file {
        assert_eq!(notes(desk, kind, &write_log(desk, kind, file, &found)), (found, Some(file)));
    }
}

fn shard(choices: &mut Choices<'_>, desk: &Desk) {
    let is_split = choices.below(2) == 1;
    let sound = |file| {
        let mut writer = ShardWriter::new(&desk.substrate, file, UUID, 5, is_split);
        for number in 0..12 {
            let place = match number % 3 {
                0 => ContentPlace::Shared(Slot::new(u32::from(number), 77).expect("a slot")),
                _ => ContentPlace::Unique(FileNo(u32::from(number)), FileBlock(1 << number)),
            };
            writer.push(&ContentEntry { digest: FingerprintPrefix([number; 12]), place }).expect("there is room");
        }
        writer.finish().expect("there is room");
    };
    let bytes = damaged(choices, desk, sound);
    let Ok(mut reader) = ShardReader::open(&desk.substrate, desk.holding(&bytes), &UUID) else { return };
    let (generation, is_split) = (reader.generation(), reader.is_split());
    let takes_stretches = choices.below(2) == 1;
    let mut found = Vec::new();
    while let Ok(Some(entry)) = reader.next_entry() {
        assert!(found.last().is_none_or(|last: &ContentEntry| last.digest < entry.digest), "{found:?}, {entry:?}");
        let mut last = entry.digest;
        found.push(entry);
        if takes_stretches {
            let Ok(stretch) = reader.take_below(u128::MAX) else { break };
            for entry in stretch.entries() {
                assert!(last < entry.digest, "{last} before {entry:?}");
                last = entry.digest;
                found.push(entry);
            }
        }
    }
    let again = desk.written(|file| {
        let mut writer = ShardWriter::new(&desk.substrate, file, UUID, generation, is_split);
        found.iter().for_each(|entry| writer.push(entry).expect("there is room"));
        writer.finish().expect("there is room");
    });
    let mut reader = ShardReader::open(&desk.substrate, desk.holding(&again), &UUID).expect("just written");
    for entry in found {
        assert_eq!(reader.next_entry().expect("just written"), Some(entry));
    }
    assert_eq!(reader.next_entry().expect("just written"), None);
}

fn intent(choices: &mut Choices<'_>, desk: &Desk) {
    let run = |at: u32| IntentRun {
        first: FileBlock(u64::from(at) * 9),
        slot: Slot::new(at, 5).expect("a slot"),
        count: 1 + at,
        checksum: at,
    };
    let sound = Intent {
        number: FILE,
        handle: FileHandle::new(&[5; 16]).expect("a short one"),
        path: PathBuf::from("vm/disk.raw"),
        modified: Timestamp { seconds: 1_790_000_000, nanoseconds: 999_999_999 },
        runs: (0..5).map(run).collect(),
    };
    let write = |intent: Option<&Intent>, file| {
        intent::write(intent, &desk.substrate, file, UUID).expect("there is room");
    };
    let bytes = damaged(choices, desk, |file| write(Some(&sound), file));
    if let Ok(found) = intent::read(&desk.substrate, &desk.holding(&bytes), &UUID) {
        for run in found.iter().flat_map(|intent| &intent.runs) {
            assert_eq!(run.slots().count() as u64, u64::from(run.count), "{run:?}");
            assert!(run.first.0 + u64::from(run.count) <= FileBlock::LIMIT, "{run:?}");
        }
        let again = desk.written(|file| write(found.as_ref(), file));
        assert_eq!(intent::read(&desk.substrate, &desk.holding(&again), &UUID).ok(), Some(found));
    }
}

fn entries(mut bytes: &[u8]) {
    while let Ok(Some((entry, length))) = ContentEntry::decode(bytes) {
        let mut again = Vec::new();
        entry.encode(&mut again);
        assert_eq!(again, bytes[..length], "{entry:?}");
        bytes = &bytes[length..];
    }
}
