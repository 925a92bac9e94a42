//! What a scan reads again of images that it knows, call by call.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES_U64, Clock, Random};
use onefold_share::format::mark::Mark;
use onefold_share::opt_out::{exclude, include};
use onefold_share::pace::{Limits, Pace, Wish};
use onefold_share::pass::{PassOptions, PassReport, pass};
use onefold_share::scan::{RereadPolicy, RetryTime, ScanOptions, ScanReport, Turn, scan};
use onefold_share::state::files::Marks;
use onefold_share::state::trust::Distrust;
use onefold_share::state::{Notice, State, StateError};
use onefold_substrate::{CpuTime, Files, Names, UserNo};
use onefold_testing::simulated::{Habits, Host, HostNo, SimulatedFileSystem, SimulationOptions};

const K: u64 = BLOCK_BYTES_U64;
const WRITER: HostNo = HostNo(0);

struct IdleCpu;

impl CpuTime for IdleCpu {
    fn used(&self) -> Duration {
        Duration::ZERO
    }
}

/// A file system for one host: one that overwrites blocks where they lie, as XFS does, or one that tells generations.
fn ground(overwrites_in_place: bool) -> SimulatedFileSystem {
    let habits = Habits { overwrites_in_place, ..Habits::default() };
    let options =
        SimulationOptions { hosts: 1, images: 0, total_blocks: 1 << 14, habits, ..SimulationOptions::default() };
    SimulatedFileSystem::new(&options)
}

/// Writes blocks that are equal for equal seeds.
fn write(ground: &SimulatedFileSystem, path: &str, at: u64, seed: u64, blocks: u64) {
    for block in 0..blocks {
        let mut bytes = vec![0; 4096];
        SeededRandom::new(seed + block).fill(&mut bytes).unwrap();
        ground.write_image(WRITER, path, (at + block) * K, &bytes).unwrap();
    }
    ground.pass(Duration::from_secs(1));
}

/// How a scan goes.
struct ScanSettings<'a> {
    turn: Turn,
    enough: &'a dyn Fn(u64) -> bool,
    wish: &'a dyn Fn() -> Wish,
    limits: Limits,
}

const WHOLE: ScanSettings<'static> =
    ScanSettings { turn: Turn::Whole, enough: &|_| false, wish: &|| Wish::GoOn, limits: NO_LIMITS };
const NO_LIMITS: Limits =
    Limits { read_bytes_per_second: None, share_bytes_per_second: None, cpu_percent: None, stall_max: None };

fn within(bytes: u64) -> ScanSettings<'static> {
    ScanSettings { turn: Turn::Within(bytes), ..WHOLE }
}

fn try_scan(host: &Host<'_>, how: &ScanSettings<'_>, notices: &dyn Fn(Notice)) -> Result<ScanReport, StateError> {
    let state = State::open(&host.substrate, &*host.clock, &*host.random, notices).unwrap();
    let pace = Pace::new(how.limits, &*host.clock, &IdleCpu, how.wish);
    let options = ScanOptions {
        rereading: RereadPolicy {
            turn: &|_| how.turn,
            enough: how.enough,
            map_bytes_min: 0,
            failed: RetryTime::AfterPause,
        },
        ..ScanOptions::new(&pace)
    };
    scan(&state, &mut Marks::load(&state).unwrap(), &options)
}

fn scanned(host: &Host<'_>, how: &ScanSettings<'_>) -> ScanReport {
    try_scan(host, how, &|_| {}).unwrap()
}

fn passed(host: &Host<'_>) -> PassReport {
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
    let pace = Pace::unlimited();
    let options = PassOptions { memory_bytes: 1 << 20, ..PassOptions::new(Path::new("/var/tmp"), &pace, &*host.clock) };
    pass(&state, &mut Marks::load(&state).unwrap(), &options).unwrap()
}

/// Returns how much of the images has each content once.
fn is_all_shared(ground: &SimulatedFileSystem) -> bool {
    let census = ground.census();
    census.physical == census.distinct
}

/// `watch` read each image that was written to as a whole, in each round.
#[test]
fn of_a_written_image_that_tells_little_a_share_of_what_was_written_is_read_and_all_of_it_in_the_end() {
    let ground = ground(true);
    let host = ground.mount(WRITER);
    write(&ground, "images/one", 0, 1000, 300);
    write(&ground, "images/two", 0, 5000, 300);
    assert_eq!(scanned(&host, &WHOLE).read_bytes, 600 * K);
    passed(&host);
    // Blocks that nobody shares are overwritten where they lie: no map tells.
    let (mut read, mut written) = (0, 0);
    for round in 0..40 {
        write(&ground, "images/one", 7 * round % 300, 5000 + 7 * round % 300, 1);
        written += K;
        read += scanned(&host, &within(K)).read_bytes;
    }
    assert!(read > 0 && read <= 2 * written, "{read} read of {written} written");
    assert!(!is_all_shared(&ground));
    // Once nobody writes any more, the round comes to its end, and then nothing is read.
    let rounds = (0..).take_while(|_| scanned(&host, &within(K)).read_bytes > 0).count();
    assert!((140..=160).contains(&rounds), "{rounds} rounds");
    passed(&host);
    assert!(is_all_shared(&ground), "{:?}", ground.census());
    ground.check().unwrap();
}

/// A file that nobody writes to any more is read to its end at its turn.
#[test]
fn a_file_without_writers_is_read_to_its_end_at_once() {
    let ground = ground(true);
    let host = ground.mount(WRITER);
    write(&ground, "images/one", 0, 1000, 100);
    scanned(&host, &WHOLE);
    write(&ground, "images/one", 50, 9, 1);
    assert!(scanned(&host, &within(0)).read_bytes <= 2 * K);
    let rest = scanned(&host, &WHOLE).read_bytes;
    assert!((98 * K..=100 * K).contains(&rest), "what was read of it since the write is not read again: {rest}");
    assert_eq!(scanned(&host, &WHOLE).unchanged, 1);
}

/// A pass that shared an image made all that it shared look new.
#[test]
fn shared_blocks_that_are_overwritten_show_and_those_that_a_pass_has_shared_do_not() {
    let ground = ground(true);
    let host = ground.mount(WRITER);
    for image in ["images/one", "images/two", "images/zoo"] {
        write(&ground, image, 0, 1000, 200);
    }
    write(&ground, "images/zoo", 300, 7777, 3);
    scanned(&host, &WHOLE);
    assert_eq!(passed(&host).shared.now, 400 * K);
    write(&ground, "images/one", 20, 7777, 3);
    write(&ground, "images/two", 120, 7777, 1);
    let found = scanned(&host, &within(0));
    // Four blocks moved; as much again is the share of what is written that is read on.
    assert!((4 * K..=8 * K).contains(&found.read_bytes), "{found:?}");
    passed(&host);
    assert!(is_all_shared(&ground), "{:?}", ground.census());
    ground.check().unwrap();
}

#[test]
fn where_generations_are_told_what_changed_is_read_and_nothing_else() {
    let ground = ground(false);
    let host = ground.mount(WRITER);
    for image in ["images/one", "images/two"] {
        write(&ground, image, 0, 1000, 200);
    }
    write(&ground, "images/two", 200, 7777, 4);
    scanned(&host, &WHOLE);
    assert_eq!(passed(&host).shared.now, 200 * K);
    for round in 0..4 {
        write(&ground, "images/one", 20 + 40 * round, 7777 + round, 1);
        let found = scanned(&host, &within(0));
        assert!((K..=2 * K).contains(&found.read_bytes), "{found:?}");
        assert_eq!(scanned(&host, &within(0)).unchanged, 2, "all of it is known");
        passed(&host);
        assert!(is_all_shared(&ground), "{:?}", ground.census());
    }
    ground.check().unwrap();
}

/// A scan that a window cut short began at the first path each night.
#[test]
fn a_scan_that_is_cut_short_goes_on_where_it_ended_and_comes_to_all_files() {
    let ground = ground(true);
    let host = ground.mount(WRITER);
    let images = ["images/a/one", "images/b/two", "images/one", "images/two"];
    images.iter().enumerate().for_each(|(at, image)| write(&ground, image, 0, 10_000 * at as u64, 700));
    // One second at 1 MiB: a third of a file. The others have changed each time.
    let limits = Limits { read_bytes_per_second: NonZeroU64::new(1 << 20), ..NO_LIMITS };
    let mut read = 0;
    for night in 0..40 {
        let began = host.clock.monotonic();
        let wish = || if host.clock.monotonic() > began + Duration::from_secs(1) { Wish::StopSoon } else { Wish::GoOn };
        let bytes = Cell::new(0);
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let pace = Pace::new(limits, &*host.clock, &IdleCpu, &wish);
        let options = ScanOptions {
            rereading: RereadPolicy { map_bytes_min: 0, ..RereadPolicy::default() },
            progress: &|at| {
                bytes.set(at.read_bytes);
                ControlFlow::Continue(())
            },
            ..ScanOptions::new(&pace)
        };
        let ended = scan(&state, &mut Marks::load(&state).unwrap(), &options);
        read += bytes.get();
        write(&ground, images[night % 2], night as u64, 1, 1);
        if ended.is_ok() {
            break;
        }
    }
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
    let files = Marks::load(&state).unwrap();
    for image in images {
        let mark = files.iter().find(|mark| mark.path == Path::new(image)).unwrap();
        assert!(mark.scanned.is_some() || mark.reading.is_known, "{mark:?}, {read} bytes read");
    }
}

#[test]
fn a_scan_ends_when_enough_is_known_and_the_next_one_goes_on() {
    let ground = ground(true);
    let host = ground.mount(WRITER);
    let images = ["images/a/one", "images/b/two", "images/one", "images/two"];
    images.iter().for_each(|image| write(&ground, image, 0, 1000, 50));
    let how = ScanSettings { enough: &|bytes| bytes > 0, ..WHOLE };
    for at in 1..4 {
        let found = scanned(&host, &how);
        assert!(found.is_cut_short && found.read_bytes == 50 * K, "{found:?}");
        assert_eq!(passed(&host).shared.now, if at == 1 { 0 } else { 50 * K });
    }
    assert!(!scanned(&host, &how).is_cut_short);
    passed(&host);
    assert!(is_all_shared(&ground), "{:?}", ground.census());
}

/// A file with a block that could not be read was read as a whole in each round, without end.
#[test]
fn only_what_could_not_be_read_is_read_again_after_pauses_that_grow() {
    for in_place in [true, false] {
        let ground = ground(in_place);
        let host = ground.mount(WRITER);
        write(&ground, "images/one", 0, 1000, 300);
        write(&ground, "images/two", 0, 1000, 300);
        ground.set_readable("images/one", 77, false).unwrap();
        let notices = RefCell::new(Vec::new());
        let note = |notice: Notice| notices.borrow_mut().push(notice.to_string());
        let scan = || try_scan(&host, &WHOLE, &note).unwrap();
        let found = scan();
        assert_eq!((found.read_bytes, found.logged_blocks, found.failing), (599 * K, 599, 1));
        assert_eq!(passed(&host).shared.now, 299 * K);
        assert!(notices.borrow().len() == 1 && notices.borrow()[0].contains("images/one"), "{notices:?}");
        // The rest of it counts as read.
        assert_eq!((scan().unchanged, scan().read_bytes), (2, 0));
        let mut tries = Vec::new();
        for minute in 0..130 {
            ground.pass(Duration::from_secs(60));
            let found = scan();
            assert_eq!(found.read_bytes, 0);
            if found.unchanged == 1 {
                tries.push(minute);
            }
        }
        let pauses: Vec<i32> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(tries.len() >= 6 && pauses.windows(2).all(|pair| pair[1] >= pair[0] * 2 - 2), "{tries:?}");
        assert_eq!(notices.borrow().len(), 1, "it is said once");
        ground.set_readable("images/one", 77, true).unwrap();
        ground.pass(Duration::from_secs(24 * 3600));
        assert_eq!(scan().read_bytes, K);
        assert_eq!(passed(&host).shared.now, K);
        assert!(is_all_shared(&ground), "{:?}", ground.census());
    }
}

/// To find the last log of a file, all logs were listed: once for each file.
#[test]
fn a_scan_lists_the_logs_once_however_many_files_there_are() {
    let lists = |images: u64| {
        let ground = ground(true);
        let host = ground.mount(WRITER);
        for round in 0..2 {
            (0..images).for_each(|image| write(&ground, &format!("images/disk{image}"), 0, round * 1000 + image, 1));
            scanned(&host, &WHOLE);
        }
        ground.counters().lists
    };
    assert_eq!(lists(2), lists(40));
}

/// A log tells of a part of its file only, once that was read before: it does not stand for all that an index said that
/// is lost.
#[test]
fn an_index_that_is_lost_is_found_again_though_logs_tell_of_parts_of_files() {
    let ground = ground(false);
    let host = ground.mount(WRITER);
    write(&ground, "images/one", 0, 1000, 50);
    scanned(&host, &WHOLE);
    passed(&host);
    write(&ground, "images/one", 3, 7777, 1);
    assert!(scanned(&host, &within(0)).read_bytes <= 2 * K);
    for name in host.substrate.list(Path::new(".onefold/shards")).unwrap() {
        host.substrate.remove(&Path::new(".onefold/shards").join(name.name)).unwrap();
    }
    assert_eq!(scanned(&host, &within(0)).read_bytes, 50 * K);
    write(&ground, "images/two", 0, 1000, 3);
    scanned(&host, &WHOLE);
    assert_eq!(passed(&host).shared.now, 3 * K);
}

fn mark_of(host: &Host<'_>, path: &str) -> Mark {
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
    let files = Marks::load(&state).unwrap();
    let mut marks = files.iter().filter(|mark| mark.path == Path::new(path));
    let mark = marks.next().unwrap().clone();
    assert!(marks.next().is_none(), "a file has one mark");
    mark
}

/// Nothing that was known of a file in another domain counts: neither its map, nor its rounds, nor what failed.
#[test]
fn a_file_that_comes_into_another_domain_is_read_as_a_whole() {
    for in_place in [true, false] {
        let ground = ground(in_place);
        let host = ground.mount(WRITER);
        write(&ground, "images/one", 0, 1000, 100);
        ground.set_readable("images/one", 77, false).unwrap();
        assert_eq!(scanned(&host, &WHOLE).read_bytes, 99 * K);
        ground.set_readable("images/one", 77, true).unwrap();
        let before = mark_of(&host, "images/one");
        assert!(!before.reading.again.is_empty(), "{before:?}");
        ground.give_image(WRITER, "images/one", 1000).unwrap();
        ground.pass(Duration::from_secs(1));
        assert_eq!(scanned(&host, &within(0)).read_bytes, 100 * K);
        let after = mark_of(&host, "images/one");
        assert_ne!(after.number, before.number);
        assert!(after.scanned.is_some() && after.reading.again.is_empty(), "{after:?}");
        let maps = host.substrate.list(Path::new(".onefold/maps")).unwrap();
        let maps: Vec<_> = maps.into_iter().map(|map| map.name).collect();
        assert_eq!(maps, [Path::new(&after.number.to_string())]);
    }
}

/// libvirt gives an image to the user of its machines at each start, and back to root at the stop.
#[test]
fn a_file_that_another_owner_gets_within_its_domain_is_not_read_and_its_round_goes_on() {
    let ground = ground(true);
    let host = ground.mount(WRITER);
    write(&ground, "images/one", 0, 1000, 100);
    let give = |owner| {
        ground.give_image(WRITER, "images/one", owner).unwrap();
        ground.pass(Duration::from_secs(1));
    };
    give(1000);
    scanned(&host, &WHOLE);
    let number = mark_of(&host, "images/one").number;
    for owner in [0, 1000] {
        give(owner);
        let found = scanned(&host, &WHOLE);
        assert_eq!((found.read_bytes, found.unchanged), (0, 1));
    }
    // An unshared block is overwritten where it lies: a round begins.
    write(&ground, "images/one", 50, 9, 1);
    scanned(&host, &within(K));
    let mut left = mark_of(&host, "images/one").reading.round.unwrap().left;
    for owner in [0, 1000] {
        give(owner);
        assert!(scanned(&host, &within(K)).read_bytes <= 2 * K);
        let mark = mark_of(&host, "images/one");
        let rest = mark.reading.round.unwrap().left;
        assert!(mark.number == number && rest < left, "{rest} of {left} left");
        left = rest;
    }
}

/// `exclude` and `include` change the time of a file's last change, as a write does.
#[test]
fn a_file_that_was_excluded_and_included_again_is_read_only_if_it_changed_meanwhile() {
    let ground = ground(true);
    let host = ground.mount(WRITER);
    let path = Path::new("images/one");
    write(&ground, "images/one", 0, 1000, 100);
    assert_eq!(scanned(&host, &WHOLE).read_bytes, 100 * K);
    let turn = |meanwhile: &dyn Fn()| {
        for _ in 0..2 {
            exclude(&host.substrate, path).unwrap();
            ground.pass(Duration::from_secs(1));
            meanwhile();
            include(&host.substrate, path).unwrap();
            ground.pass(Duration::from_secs(1));
        }
        scanned(&host, &WHOLE).read_bytes
    };
    assert_eq!(turn(&|| {}), 0);
    assert_eq!(turn(&|| {}), 0, "the notes of the first time do no harm");
    // An unshared block is overwritten where it lies, which the file's map does not show.
    assert_eq!(turn(&|| write(&ground, "images/one", 50, 9, 1)), 100 * K);
    assert_eq!(turn(&|| {}), 0);
    // A scan in between drops what is known of the file.
    exclude(&host.substrate, path).unwrap();
    ground.pass(Duration::from_secs(1));
    assert_eq!(scanned(&host, &WHOLE).opted_out, 1);
    include(&host.substrate, path).unwrap();
    ground.pass(Duration::from_secs(1));
    assert_eq!(scanned(&host, &WHOLE).read_bytes, 100 * K);
    // Another program's attribute is no reason to believe the time of the content alone.
    host.substrate.set_attribute(path, "user.other", Some(b"1")).unwrap();
    ground.pass(Duration::from_secs(1));
    assert_eq!(scanned(&host, &WHOLE).read_bytes, 100 * K);
}

/// Kept maps and the cursor are files of the state: what another user says in them is not believed.
#[test]
fn a_kept_map_or_a_cursor_of_another_user_is_refused() {
    const OTHER: UserNo = UserNo(7);
    let ground = ground(true);
    let host = ground.mount(WRITER);
    write(&ground, "images/one", 0, 1000, 30);
    scanned(&host, &WHOLE);
    drop(host.substrate.create(Path::new(".onefold/cursor")).unwrap());
    for name in [".onefold/cursor", ".onefold/maps/1", ".onefold/maps"] {
        write(&ground, "images/one", 3, 9, 1);
        let mode = if name.ends_with("maps") { 0o700 } else { 0o600 };
        ground.protect(name, OTHER, mode).unwrap();
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {});
        let refused = match state {
            Ok(_) => try_scan(&host, &WHOLE, &|_| {}).unwrap_err(),
            Err(error) => error,
        };
        let expected = Distrust::Owner { owner: OTHER, user: UserNo::ROOT };
        assert!(
            matches!(&refused, StateError::Untrusted { path, why } if path == Path::new(name) && *why == expected),
            "{name}: {refused}"
        );
        ground.protect(name, UserNo::ROOT, mode).unwrap();
        // What is in the cursor is of no use, and is dropped.
        scanned(&host, &WHOLE);
    }
}
