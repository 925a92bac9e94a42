//! Tests that the engine accepts the synthetic index as its own, and that the bare calls share.

use std::path::Path;
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::ManualClock;
use onefold_share::pace::Pace;
use onefold_share::pass::{PassOptions, PassReport};
use onefold_share::run::{RunOptions, RunReport, Seams};
use onefold_share::scan::{ScanOptions, ScanReport};
use onefold_share::state::Notice;
use onefold_substrate::{Access, Files};
use onefold_synthetic::calls::{CallsError, Pair, read_pairs, share_pairs};
use onefold_synthetic::index::{IndexError, IndexPlan, make_index};
use onefold_testing::simulated::{Host, SimulatedFileSystem, SimulationOptions};

/// Returns a file system without images, and a host that mounts it.
fn mounted() -> (SimulatedFileSystem, Host<'static>) {
    let options = SimulationOptions { images: 0, total_blocks: 1 << 16, ..SimulationOptions::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.observe();
    (file_system, host)
}

/// Does what `share run` does.
fn run(host: &Host<'_>) -> (ScanReport, PassReport) {
    let (pace, folder, clock) = (Pace::unlimited(), std::env::temp_dir(), ManualClock::default());
    let options = RunOptions {
        files: None,
        scan: ScanOptions::new(&pace),
        pass: PassOptions { memory_bytes: 1 << 20, threads: 2, ..PassOptions::new(&folder, &pace, &clock) },
        mend_wait: Duration::ZERO,
        step: &|_| {},
    };
    let notices = &|notice: Notice| panic!("{notice}");
    let seams = Seams { substrate: &host.substrate, clock: &*host.clock, random: &*host.random, notices };
    let RunReport { scanned, passed, .. } = onefold_share::run(&seams, &options).expect("the run ends");
    (scanned, passed)
}

#[test]
fn a_made_index_is_merged_with_its_news_and_nothing_is_read_for_it() {
    for (entries, news) in [(1, 1), (1000, 50), (65_537, 3)] {
        let (_file_system, host) = mounted();
        make_index(&host.substrate, IndexPlan { entries, news }).unwrap();
        let (scanned, passed) = run(&host);
        assert_eq!((scanned.files, scanned.unchanged, scanned.read_bytes), (2, 2, 0));
        assert_eq!((passed.planned.new, passed.planned.stale, passed.planned.promoted), (news, 0, 0));
        let (counts, _) = passed.index.unwrap();
        assert_eq!((counts.unique, counts.shared), (entries + news, 0));
    }
}

#[test]
fn an_index_is_not_made_over_another_one() {
    let (_file_system, host) = mounted();
    let plan = IndexPlan { entries: 10, news: 1 };
    make_index(&host.substrate, plan).unwrap();
    assert!(matches!(make_index(&host.substrate, plan), Err(IndexError::Taken)));
    assert!(matches!(make_index(&host.substrate, IndexPlan { entries: 0, ..plan }), Err(IndexError::Plan { .. })));
}

#[test]
fn pairs_are_shared_in_calls_of_bounded_size_and_unequal_ones_are_told() {
    let (_file_system, host) = mounted();
    let substrate = &host.substrate;
    let file = |name: &str, blocks: &[u8]| {
        let file = substrate.create(Path::new(name)).unwrap();
        let bytes: Vec<u8> = blocks.iter().flat_map(|byte| [*byte; BLOCK_BYTES]).collect();
        substrate.write_at(&file, 0, &bytes).unwrap();
        substrate.sync(&file).unwrap();
        substrate.open(Path::new(name), Access::Write).unwrap()
    };
    let (source, target) = (file("source", &[1, 2, 3, 4, 5]), file("target", &[9, 3, 4, 5, 1]));
    let pairs = read_pairs(&b"2 1 3\n0 4 1\n"[..]).unwrap();
    assert_eq!(pairs, [Pair { source: 2, target: 1, count: 3 }, Pair { source: 0, target: 4, count: 1 }]);
    let called = share_pairs(substrate, &source, &target, &pairs, 2 * BLOCK_BYTES as u64).unwrap();
    assert_eq!((called.calls, called.bytes), (3, 4 * BLOCK_BYTES as u64));
    let wrong = [Pair { source: 0, target: 0, count: 1 }];
    assert!(matches!(share_pairs(substrate, &source, &target, &wrong, 4096), Err(CallsError::Differ(0))));
}

#[test]
fn lines_that_tell_no_pair_are_refused() {
    for text in ["1 2", "1 2 0", "1 2 3 4", "a 2 3", ""] {
        let lines = format!("0 0 1\n{text}\n");
        assert!(matches!(read_pairs(lines.as_bytes()), Err(CallsError::Line { line: 2, .. })), "{text}");
    }
}
