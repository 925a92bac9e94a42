//! A whole state folder of sharing with believed damage, on which scans, passes and a write monitor run. Images are on
//! a simulated file system, which panics as soon as one of them reads otherwise than it was written.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::clock::ManualClock;
use onefold_share::monitor::{Monitor, MonitorPolicy};
use onefold_share::pace::Pace;
use onefold_share::pass::{PassOptions, pass};
use onefold_share::scan::{ScanOptions, scan};
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_substrate::{Access, ListedKind, Substrate, UserNo};
use onefold_testing::simulated::{Host, HostNo, SimulatedFileSystem, SimulationOptions};

use crate::Choices;
use crate::mutate::{damage_record, hurtful_number, seal_record};

/// Maximum number of calls of the file system; more count as a hang. The sound sample needs about two thousand.
const CALLS_MAX: u64 = 200_000;
/// Maximum number of changes of the folder.
const CHANGES_MAX: u64 = 6;
/// The state folder of root, for whom the host works.
const FOLDER: &str = ".onefold";
/// Valid names of files in the folder.
const NAMES: [&str; 14] = [
    "files/1",
    "files/0",
    "files/4294967295",
    "files/x",
    "shards/whole.1",
    "shards/whole.18446744073709551615",
    "shards/whole.",
    "logs/1.0.0.0",
    "logs/4294967295.ffffffffffffffff.0000000000000000.18446744073709551615",
    "arena/0",
    "arena/2097151",
    "arena/4294967295",
    "scratch/0000000000000000.0",
    "identity",
];

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let options = SimulationOptions {
        seed: choices.below(4),
        hosts: 1,
        images: 5,
        image_blocks_max: 10,
        contents: 12,
        ..SimulationOptions::default()
    };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.mount(HostNo(0));
    for _ in 0..2 {
        share(&host, &mut Choices::new(&[]));
        (0..12).for_each(|_| file_system.let_writers_write());
        file_system.pass(Duration::from_secs(1));
    }
    // Logs that no pass has processed.
    let _ = scan_only(&host);
    for _ in 0..=choices.below(CHANGES_MAX) {
        let _ = damage(&mut choices, &host.substrate);
    }
    if choices.below(4) == 3 {
        let _ = expose(&mut choices, &file_system, &host.substrate);
    }
    let calls = file_system.counters().calls;
    for _ in 0..=choices.below(3) {
        share(&host, &mut choices);
        (0..choices.below(8)).for_each(|_| file_system.let_writers_write());
        file_system.pass(Duration::from_secs(1));
    }
    let calls = file_system.counters().calls - calls;
    assert!(calls < CALLS_MAX, "{calls} calls: this does not end");
    file_system.check().unwrap_or_else(|problem| panic!("{problem}"));
}

/// Does all work of a host. Errors are expected.
fn share(host: &Host<'_>, choices: &mut Choices<'_>) {
    let Ok(state) = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}) else { return };
    let Ok(mut files) = Marks::load(&state) else { return };
    let _ = scan(&state, &mut files, &ScanOptions::new(&Pace::unlimited()));
    if choices.below(3) == 1 {
        watch(host, choices, &state, &mut files);
    }
    let (pace, clock) = (Pace::unlimited(), ManualClock::default());
    let options = PassOptions {
        memory_bytes: 1 << 20,
        is_dry_run: choices.below(16) == 15,
        shard_entries_max: 12,
        ..PassOptions::new(Path::new("/var/tmp"), &pace, &clock)
    };
    let _ = pass(&state, &mut files, &options);
}

fn scan_only(host: &Host<'_>) -> Option<()> {
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).ok()?;
    let mut files = Marks::load(&state).ok()?;
    scan(&state, &mut files, &ScanOptions::new(&Pace::unlimited())).ok()?;
    Some(())
}

/// Reports writes that never happened to a write monitor, at places that no image has.
fn watch<'run, S: Substrate>(host: &Host<'run>, choices: &mut Choices<'_>, state: &State<'_, S>, files: &mut Marks) {
    let Some(path) = files.iter().map(|mark| mark.path.clone()).next() else { return };
    let policy = MonitorPolicy { memory_bytes: 512, ..MonitorPolicy::default() };
    let Ok(monitor) = Monitor::open(state, files, &path, policy, host.clock.clone()) else { return };
    for _ in 0..choices.below(12) {
        let (offset, length) = (hurtful_number(choices, 8192), hurtful_number(choices, 4096));
        match choices.below(5) {
            0 => monitor.wrote(offset, &vec![choices.byte(); usize::try_from(length % 20_000).expect("small")]),
            1 => monitor.wrote_unseen(offset, length),
            2 => monitor.zeroed(offset, length),
            3 => monitor.truncated(length),
            _ => drop(monitor.tick(state)),
        }
    }
    // Claimed unseen parts of files of petabytes are not read to their end.
    let _ = monitor.tick(state);
    monitor.lost_track();
    let _ = monitor.close(state, files);
}

/// Changes the folder in one way.
fn damage<S: Substrate>(choices: &mut Choices<'_>, substrate: &S) -> io::Result<()> {
    let all = all_files(substrate, Path::new(FOLDER))?;
    if all.is_empty() {
        return Ok(());
    }
    let path = choices.one_of(&all);
    match choices.below(12) {
        10 | 11 => renumber(choices, substrate, path),
        0 => {
            let other = choices.one_of(&all);
            let bytes = content(substrate, other)?;
            put(substrate, path, &bytes)
        }
        1 => {
            let name = Path::new(FOLDER).join(*choices.one_of(&NAMES));
            if choices.below(2) == 0 { substrate.rename(path, &name) } else { substrate.link(path, &name) }
        }
        2 => substrate.remove(path),
        3 => {
            let file = substrate.open(path, Access::Write)?;
            substrate.set_len(&file, hurtful_number(choices, 1 << 30) % (1 << 40))
        }
        4 => {
            let name = Path::new(FOLDER).join(*choices.one_of(&NAMES));
            substrate.create_dir(&name)
        }
        _ => {
            let mut bytes = content(substrate, path)?;
            for _ in 0..=choices.below(4) {
                damage_record(choices, &mut bytes);
            }
            put(substrate, path, &bytes)
        }
    }
}

/// Gives a file another owner, or gives others rights to it. The file system panics if blocks are then put into a file
/// that others may read.
fn expose<S: Substrate>(choices: &mut Choices<'_>, file_system: &SimulatedFileSystem, substrate: &S) -> io::Result<()> {
    let all = all_files(substrate, Path::new(FOLDER))?;
    if all.is_empty() {
        return Ok(());
    }
    let owner = if choices.below(2) == 0 { UserNo::ROOT } else { UserNo(7) };
    let mode = u32::from(choices.byte()) | u32::from(choices.byte() & 0o16) << 8;
    file_system.protect(choices.one_of(&all), owner, mode)
}

/// Gives a file another number, in its name and in its header, so that readers believe it.
fn renumber<S: Substrate>(choices: &mut Choices<'_>, substrate: &S, path: &Path) -> io::Result<()> {
    let number = hurtful_number(choices, 1);
    let name = match path.parent().and_then(Path::file_name).and_then(|folder| folder.to_str()) {
        Some("shards") => format!("shards/whole.{number}"),
        Some("files") => format!("files/{number}"),
        Some("logs") => format!("logs/{number}.{number:016x}.{number:016x}.{number}"),
        Some("arena") => format!("arena/{number}"),
        _ => return Ok(()),
    };
    let mut bytes = content(substrate, path)?;
    if let Some(subject) = bytes.get_mut(32..40) {
        subject.copy_from_slice(&number.to_le_bytes());
    }
    seal_record(&mut bytes);
    put(substrate, path, &bytes)?;
    substrate.rename(path, &Path::new(FOLDER).join(name))
}

/// Returns all files in a folder and below, in the order of their names.
fn all_files<S: Substrate>(substrate: &S, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for listed in substrate.list(folder)? {
        let path = folder.join(&listed.name);
        match listed.kind {
            ListedKind::Folder => all.extend(all_files(substrate, &path)?),
            ListedKind::File => all.push(path),
            ListedKind::Other => {}
        }
    }
    all.sort();
    Ok(all)
}

/// Returns the beginning of a file. Arena files are mostly a gibibyte of holes.
fn content<S: Substrate>(substrate: &S, path: &Path) -> io::Result<Vec<u8>> {
    let file = substrate.open(path, Access::Read)?;
    let mut bytes = vec![0; 64 << 10];
    let count = substrate.read_at(&file, 0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn put<S: Substrate>(substrate: &S, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = substrate.open(path, Access::Write)?;
    substrate.set_len(&file, 0)?;
    substrate.write_at(&file, 0, bytes)
}
