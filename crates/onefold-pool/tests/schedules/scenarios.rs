//! The scenarios: a few threads each, which meet on the same contents.

use std::sync::Arc;

use onefold_pool::{OpenOptions, TestLimits, Verification};
use shuttle::rand::Rng;

use crate::common::behind;
use crate::explore::{Scenario, explore, replays};
use crate::script::{Act, FILE_BLOCKS, Files, Letter, Name, Script};

/// The first block that is not in the inode itself, so that clones share the node that names it.
const FAR: u64 = FILE_BLOCKS - 2;

/// Returns options with which freed blocks are reused at once.
fn plain() -> OpenOptions {
    let test_limits = TestLimits { lowest_first: true, late_after: 0, ..TestLimits::default() };
    OpenOptions { test_limits, ..behind() }
}

/// Returns options with which all contents have one of two fingerprints, and bytes are compared.
fn colliding() -> OpenOptions {
    let test_limits = TestLimits { fingerprint_bits: 1, lowest_first: true, late_after: 0, ..TestLimits::default() };
    OpenOptions { verify: Verification::Value, test_limits, ..behind() }
}

/// Returns options with which all contents have one fingerprint, and bytes are compared.
fn alike() -> OpenOptions {
    let test_limits = TestLimits { fingerprint_bits: 0, lowest_first: true, late_after: 0, ..TestLimits::default() };
    OpenOptions { verify: Verification::Value, test_limits, ..behind() }
}

/// Returns options with which a block has at most two references; the third needs a copy.
fn soon_full() -> OpenOptions {
    let test_limits = TestLimits { references_max: 2, lowest_first: true, late_after: 0, ..TestLimits::default() };
    OpenOptions { test_limits, ..behind() }
}

/// Returns options with which writes find no stored block.
fn blind() -> OpenOptions {
    let test_limits = TestLimits { filter_bytes_max: 0, lowest_first: true, late_after: 0, ..TestLimits::default() };
    OpenOptions { test_limits, ..behind() }
}

fn scenario(name: &'static str, options: OpenOptions, files: Files, scripts: fn() -> Vec<Script>) -> Arc<Scenario> {
    Arc::new(Scenario { name, options, files, scripts })
}

fn file(name: Name, holds: &[(u64, Letter)]) -> (Name, std::collections::BTreeMap<u64, Letter>) {
    (name, holds.iter().copied().collect())
}

fn write(name: Name, first: u64, letters: &[Letter]) -> Act {
    Act::Write(name, first, letters.to_vec())
}

/// One thread drops the only reference to a content while another writes it, and a third takes the block.
fn last_reference(name: &'static str, options: OpenOptions) -> Arc<Scenario> {
    let files = Files::from([file("a", &[(0, 1)]), file("b", &[]), file("c", &[])]);
    scenario(name, options, files, || {
        vec![
            vec![write("a", 0, &[2]), Act::Commit, Act::Read("a")],
            vec![write("b", 0, &[1]), Act::Read("b")],
            vec![Act::Commit, write("c", 0, &[3]), Act::Read("c"), Act::Read("b")],
        ]
    })
}

#[test]
fn a_content_is_written_while_its_last_reference_goes() {
    explore(&last_reference("last reference", plain()));
}

#[test]
fn a_content_is_compared_while_its_last_reference_goes() {
    explore(&last_reference("last reference, compared", alike()));
}

/// Two threads write the same new content; one of them drops it at once.
fn new_content(name: &'static str, options: OpenOptions) -> Arc<Scenario> {
    let files = Files::from([file("a", &[]), file("b", &[(3, 5)]), file("c", &[])]);
    scenario(name, options, files, || {
        vec![
            vec![write("a", 0, &[1, 1]), Act::Unlink("a"), Act::Reclaim],
            vec![write("b", 0, &[2, 1]), Act::Read("b")],
            vec![write("c", 0, &[1]), Act::Punch("c", 0, 1), Act::Commit, write("c", 1, &[3, 4]), Act::Read("c")],
        ]
    })
}

#[test]
fn a_new_content_is_written_by_many_and_dropped_by_some() {
    explore(&new_content("new content", plain()));
}

#[test]
fn a_new_content_that_looks_like_others_is_written_by_many_and_dropped_by_some() {
    explore(&new_content("new content, alike", alike()));
}

#[test]
fn a_file_is_cloned_while_both_sides_are_overwritten() {
    let files = Files::from([file("a", &[(0, 1), (FAR, 2), (FAR + 1, 3)]), file("b", &[])]);
    explore(&scenario("clones", plain(), files, || {
        vec![
            vec![Act::Clone("a", "x"), write("x", FAR, &[4]), Act::Read("x"), Act::Unlink("x")],
            vec![write("a", FAR, &[4]), Act::Read("a"), Act::Punch("a", 0, 1)],
            vec![Act::Clone("a", "y"), Act::Commit, Act::Reclaim, write("y", 0, &[2]), Act::Read("y")],
            vec![write("b", FAR, &[2, 3]), Act::Checkpoint, Act::Read("b")],
        ]
    }));
}

#[test]
fn a_clone_is_removed_and_reclaimed_while_its_contents_are_written() {
    let files = Files::from([file("a", &[(0, 1), (FAR, 2)]), file("b", &[(5, 1)]), file("c", &[])]);
    explore(&scenario("reclaim", plain(), files, || {
        vec![
            vec![Act::Clone("a", "x"), Act::Unlink("a"), Act::Reclaim, Act::Commit, Act::Read("x")],
            vec![write("b", 5, &[2]), write("b", FAR, &[1, 2]), Act::Truncate("b", FAR), Act::Read("b")],
            vec![Act::Reclaim, Act::Commit, write("c", 0, &[2, 6]), Act::Read("c")],
        ]
    }));
}

#[test]
fn blocks_are_shared_while_they_are_overwritten_cloned_and_used_again() {
    let holds = [(0, 1), (FAR, 2), (FAR + 1, 3)];
    let files = Files::from([file("a", &holds), file("b", &holds), file("c", &[])]);
    explore(&scenario("sharing", blind(), files, || {
        vec![
            vec![Act::Share(("a", FAR), ("b", FAR)), Act::Share(("a", 0), ("b", 0)), Act::Read("b")],
            vec![Act::Clone("b", "x"), Act::Share(("b", FAR + 1), ("a", FAR + 1)), Act::Read("x"), Act::Unlink("x")],
            vec![write("a", FAR, &[4, 3]), Act::Commit, write("c", 0, &[5]), Act::Read("c"), Act::Read("a")],
            vec![write("b", 0, &[6]), Act::Share(("b", FAR), ("a", FAR)), Act::Reclaim, Act::Read("b")],
        ]
    }));
}

#[test]
fn a_file_is_read_while_its_blocks_are_freed_and_used_again() {
    let files = Files::from([file("a", &[(0, 1), (1, 2)]), file("b", &[])]);
    explore(&scenario("readers", plain(), files, || {
        vec![
            vec![Act::Read("a"), Act::Read("a")],
            vec![write("a", 0, &[3]), Act::Commit, write("a", 1, &[1]), Act::Read("a")],
            vec![write("b", 0, &[4]), Act::Commit, write("b", 0, &[5]), Act::Read("b")],
        ]
    }));
}

#[test]
fn data_is_scrubbed_while_its_blocks_are_freed_and_used_again() {
    let files = Files::from([file("a", &[(0, 1), (FAR, 2)]), file("b", &[])]);
    explore(&scenario("scrub", plain(), files, || {
        vec![
            vec![Act::Scrub],
            vec![write("a", 0, &[3]), Act::Commit, Act::Truncate("a", 1), Act::Commit],
            vec![write("b", 0, &[4]), Act::Commit, write("b", 0, &[2]), Act::Read("b")],
        ]
    }));
}

/// Returns three threads with random acts of all kinds on four contents, drawn by the explorer.
fn anything() -> Vec<Script> {
    const OWN: [[Name; 3]; 3] = [["a", "u", "x"], ["b", "v", "y"], ["c", "w", "z"]];
    let dice = |bound: u64| shuttle::rand::thread_rng().gen_range(0..bound);
    (0..3)
        .map(|thread| {
            let [own, first_clone, second_clone] = OWN[thread];
            let (mut clones, mut cloned) = (vec![first_clone, second_clone], Vec::new());
            (0..5)
                .map(|_| {
                    let target = if dice(3) == 0 { "shared" } else { own };
                    let at = if dice(2) == 0 { dice(3) } else { FAR };
                    match dice(14) {
                        0..4 => Act::Write(target, at, (0..=dice(2)).map(|_| dice(5)).collect()),
                        4 => Act::Punch(target, at, 2),
                        5 => Act::Truncate(target, at),
                        6 | 7 => match clones.pop() {
                            Some(clone) => {
                                cloned.push(clone);
                                Act::Clone(target, clone)
                            }
                            None => Act::Reclaim,
                        },
                        8 if dice(2) == 0 => cloned.pop().map_or(Act::Reclaim, Act::Unlink),
                        8 => Act::Commit,
                        9 if dice(2) == 0 => Act::Checkpoint,
                        10 => Act::Read(target),
                        11 => Act::Share((own, at), ("shared", dice(3))),
                        12 => Act::Share(("shared", dice(3)), (own, at)),
                        _ => Act::Reclaim,
                    }
                })
                .collect()
        })
        .collect()
}

fn files_of_anything() -> Files {
    Files::from([
        file("a", &[(0, 1), (FAR, 2)]),
        file("b", &[(1, 1), (FAR, 3)]),
        file("c", &[(2, 4)]),
        file("shared", &[(0, 1), (1, 2), (FAR, 3)]),
    ])
}

#[test]
fn anything_at_once() {
    explore(&scenario("anything", plain(), files_of_anything(), anything));
}

#[test]
fn anything_at_once_with_colliding_fingerprints() {
    explore(&scenario("anything, colliding", colliding(), files_of_anything(), anything));
}

#[test]
fn anything_at_once_that_writes_do_not_find() {
    explore(&scenario("anything, not found", blind(), files_of_anything(), anything));
}

#[test]
fn anything_at_once_with_counts_that_are_soon_full() {
    explore(&scenario("anything, full counts", soon_full(), files_of_anything(), anything));
}

/// A failure can be repeated only if the explorer alone decides what happens.
#[test]
fn a_schedule_goes_the_same_way_again() {
    replays(&scenario("again", plain(), files_of_anything(), anything), 20);
    replays(&scenario("again, colliding", colliding(), files_of_anything(), anything), 20);
}
