//! Counts for clones if they, or their templates, are not where the last scan has listed them.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Files, ListedKind, Names};
use onefold_testing::simulated::{Host, SimulatedFileSystem, SimulationOptions};

use super::*;
use crate::clone::{CloneOptions, ExistingFilePolicy, clone};
use crate::explain::explain;
use crate::scan::list;
use crate::selection::Selection;

/// Number of blocks of the template, which is beside the folder that was scanned.
const BLOCKS: u64 = 8;
const TEMPLATE: &str = "gold.raw";

/// Makes a template, and a clone of it in the one folder that a scan lists.
fn clone_into_folder(file_system: &SimulatedFileSystem, host: &Host<'_>) {
    let substrate = &host.substrate;
    let file = substrate.create(Path::new(TEMPLATE)).unwrap();
    substrate.write_at(&file, 0, &vec![7; usize::try_from(BLOCKS * BLOCK_BYTES_U64).unwrap()]).unwrap();
    file_system.sync_all();
    substrate.create_dir(Path::new("vm")).unwrap();
    let options = CloneOptions {
        existing: ExistingFilePolicy::Keep,
        temporary_folder: Path::new("/var/tmp"),
        memory_bytes: 1 << 16,
        clock: &*host.clock,
        random: &*host.random,
    };
    let cloned = clone(substrate, None, Path::new(TEMPLATE), Path::new("vm/a.raw"), &options).unwrap();
    assert!(cloned.unrecorded.is_none(), "{cloned:?}");
    let state = State::open(substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
    let roots = [PathBuf::from("vm")];
    let wants = |_: &Path, _: ListedKind| true;
    list(&state, &mut Marks::load(&state).unwrap(), &Selection::new(&roots, &wants)).unwrap();
}

fn counted(host: &Host<'_>, since: Option<&str>) -> States {
    let state = State::look(&host.substrate, &*host.clock, &|_| {}).unwrap().unwrap();
    let since = since.map(Path::new);
    count(&state, &CountOptions { since, temporary_folder: Path::new("/var/tmp"), memory_bytes: 1 << 16 }).unwrap()
}

#[test]
fn a_named_template_counts_where_it_is_recorded_and_was_never_scanned() {
    let options = SimulationOptions { images: 0, total_blocks: 1 << 12, ..Default::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.observe();
    clone_into_folder(&file_system, &host);

    let states = counted(&host, None);
    assert_eq!((states.unknown_templates, states.images[0].bytes.template), (1, 0), "{states:?}");
    let states = counted(&host, Some(TEMPLATE));
    assert_eq!(states.unknown_templates, 0, "{states:?}");
    assert_eq!(states.images[0].bytes.template, BLOCKS * BLOCK_BYTES_U64, "{states:?}");
    assert_eq!(states.images[0].template.as_deref(), Some(Path::new(TEMPLATE)));
    let state = State::look(&host.substrate, &*host.clock, &|_| {}).unwrap();
    for (state, since) in [(state.as_ref(), Some(Path::new(TEMPLATE))), (None, Some(Path::new(TEMPLATE)))] {
        let explained = explain(&host.substrate, state, Path::new("vm/a.raw"), 0, since).unwrap();
        assert_eq!(explained.template.as_deref(), since, "{explained:?}");
        let explained = explain(&host.substrate, state, Path::new("vm/a.raw"), 0, None).unwrap();
        assert!(explained.is_template_unknown && explained.template.is_none(), "{explained:?}");
    }
}

#[test]
fn an_image_that_is_not_where_it_was_counts_as_absent() {
    let options = SimulationOptions { images: 0, total_blocks: 1 << 12, ..Default::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.observe();
    clone_into_folder(&file_system, &host);
    assert_eq!(counted(&host, None).absent, 0);

    let [image, elsewhere] = ["vm/a.raw", "vm/b.raw"].map(Path::new);
    host.substrate.rename(image, elsewhere).unwrap();
    let states = counted(&host, None);
    assert_eq!((states.absent, states.images.len()), (1, 0), "{states:?}");
    host.substrate.create(image).unwrap();
    let states = counted(&host, None);
    assert_eq!((states.absent, states.images.len()), (1, 0), "another file has its name: {states:?}");
    let state = State::look(&host.substrate, &*host.clock, &|_| {}).unwrap().unwrap();
    let explained = explain(&host.substrate, Some(&state), Path::new(TEMPLATE), 0, None).unwrap();
    assert_eq!(explained.sharers.absent, 1, "{explained:?}");
    let references = crate::references::count(&state, &Marks::load(&state).unwrap()).unwrap().unwrap();
    assert_eq!(references.absent, 1, "{references:?}");
    drop(state);
    host.substrate.remove(image).unwrap();
    host.substrate.rename(elsewhere, image).unwrap();
    assert_eq!(counted(&host, None).absent, 0);
}

#[test]
fn counting_ends_in_the_middle_of_a_map_if_the_caller_wants_that() {
    let options = SimulationOptions { images: 0, total_blocks: 1 << 12, ..Default::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let host = file_system.observe();
    clone_into_folder(&file_system, &host);
    let state = State::look(&host.substrate, &*host.clock, &|_| {}).unwrap().unwrap();
    let options = CountOptions { since: None, temporary_folder: Path::new("/var/tmp"), memory_bytes: 1 << 16 };
    let all = std::cell::Cell::new(0);
    let counted = count_until(&state, &options, &|| {
        all.set(all.get() + 1);
        false
    });
    assert!(counted.is_ok() && all.get() >= 3, "the file, its extent and its row: {}", all.get());
    for last in 0..all.get() {
        let asked = std::cell::Cell::new(0);
        let ended = count_until(&state, &options, &|| asked.replace(asked.get() + 1) >= last);
        assert!(matches!(ended, Err(CountError::State(StateError::Interrupted))), "{last}");
        assert_eq!(asked.get(), last + 1, "it asks no more once it is to end");
    }
}
