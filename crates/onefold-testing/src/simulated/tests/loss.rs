//! Tests of what a crash undoes, and what it does not.

use onefold_substrate::{Files, Names, Sharing};
use std::collections::BTreeSet;

use super::*;

/// Returns the distinct observations over many seeds.
fn over_seeds<T: Ord>(observe: impl Fn(&SimulatedFileSystem) -> T) -> BTreeSet<T> {
    let look = |seed| {
        let system = empty(seed);
        let seen = observe(&system);
        system.check().unwrap();
        seen
    };
    (0..200).map(look).collect()
}

/// Reads a file as an observer without earlier knowledge; `None` if it is missing.
fn read(system: &SimulatedFileSystem, path: &str) -> Option<Vec<u8>> {
    let host = system.observe();
    let file = host.substrate.open(Path::new(path), Access::Read).ok()?;
    Some(content(&host, &file))
}

#[test]
fn what_was_synced_stays_and_what_was_not_is_lost_or_kept_block_by_block() {
    let seen = over_seeds(|system| {
        let host = system.mount(HostNo(0));
        let file = file(&host, "a", &[1, 2]);
        host.substrate.sync(&file).unwrap();
        system.sync_all();
        host.substrate.write_at(&file, 0, &bytes(&[5, 6])).unwrap();
        system.crash(HostNo(0));
        read(system, "a").unwrap()
    });
    let with = |choices: [[u8; 3]; 2]| choices[0].into_iter().flat_map(move |one| choices[1].map(|two| vec![one, two]));
    let expected: BTreeSet<_> = with([[1, 5, 0], [2, 6, 0]]).collect();
    assert!(seen.is_subset(&expected) && seen.len() >= 8, "{seen:?}");
    let synced = over_seeds(|system| {
        let host = system.mount(HostNo(0));
        let file = file(&host, "a", &[1, 2]);
        system.sync_all();
        host.substrate.write_at(&file, 0, &bytes(&[5, 6])).unwrap();
        host.substrate.sync(&file).unwrap();
        system.crash(HostNo(0));
        read(system, "a").unwrap()
    });
    assert_eq!(synced, BTreeSet::from([vec![5, 6]]));
}

#[test]
fn a_length_that_was_not_synced_is_lost_or_kept() {
    let seen = over_seeds(|system| {
        let host = system.mount(HostNo(0));
        let file = file(&host, "a", &[1, 2]);
        system.sync_all();
        host.substrate.write_at(&file, 2 * B, &bytes(&[3])).unwrap();
        system.crash(HostNo(0));
        read(system, "a").unwrap()
    });
    assert_eq!(seen, BTreeSet::from([vec![1, 2], vec![1, 2, 0], vec![1, 2, 3]]));
    let seen = over_seeds(|system| {
        let host = system.mount(HostNo(0));
        let file = file(&host, "a", &[1, 2]);
        system.sync_all();
        host.substrate.set_len(&file, B).unwrap();
        system.crash(HostNo(0));
        read(system, "a").unwrap()
    });
    assert_eq!(seen, BTreeSet::from([vec![1], vec![1, 0], vec![1, 2]]));
}

#[test]
fn names_are_lost_from_some_point_on() {
    let seen = over_seeds(|system| {
        let host = system.mount(HostNo(0));
        let path = Path::new;
        drop(file(&host, "a", &[]));
        system.sync_all();
        host.substrate.rename(path("a"), path("b")).unwrap();
        host.substrate.link(path("b"), path("c")).unwrap();
        host.substrate.remove(path("b")).unwrap();
        host.substrate.create_dir(path("d")).unwrap();
        host.substrate.create(path("d/e")).map(drop).unwrap();
        system.crash(HostNo(0));
        let there = ["a", "b", "c", "d/e"].iter().filter(|path| read(system, path).is_some());
        let folder = system.observe().substrate.list(path("d")).is_ok();
        (there.copied().collect::<Vec<_>>(), folder)
    });
    let expected = [
        (vec!["a"], false),
        (vec!["b"], false),
        (vec!["b", "c"], false),
        (vec!["c"], false),
        (vec!["c"], true),
        (vec!["c", "d/e"], true),
    ];
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn a_name_given_after_a_sync_never_leads_to_less() {
    let seen = over_seeds(|system| {
        let host = system.mount(HostNo(0));
        drop(file(&host, "state", &[1]));
        system.sync_all();
        let new = file(&host, "new", &[2, 3]);
        host.substrate.sync(&new).unwrap();
        host.substrate.rename(Path::new("new"), Path::new("state")).unwrap();
        system.crash(HostNo(0));
        read(system, "state").unwrap()
    });
    assert_eq!(seen, BTreeSet::from([vec![1], vec![2, 3]]));
}

#[test]
fn what_another_host_built_upon_is_not_lost() {
    let seen = over_seeds(|system| {
        let [one, two] = [0, 1].map(|number| system.mount(HostNo(number)));
        one.substrate.create_dir(Path::new("d")).unwrap();
        drop(file(&one, "d/a", &[]));
        drop(file(&two, "d/b", &[1]));
        let shared = two.substrate.open(Path::new("d/a"), Access::Write).unwrap();
        let at_one = one.substrate.open(Path::new("d/a"), Access::Write).unwrap();
        one.substrate.write_at(&at_one, 0, &bytes(&[1, 2])).unwrap();
        two.substrate.write_at(&shared, B, &bytes(&[3])).unwrap();
        two.substrate.sync(&shared).unwrap();
        system.crash(HostNo(0));
        read(system, "d/a")
    });
    assert_eq!(seen, BTreeSet::from([Some(vec![1, 3])]));
}

#[test]
fn what_was_shared_stays_as_it_was_after_any_crash() {
    let seen = over_seeds(|system| {
        let [one, two] = [0, 1].map(|number| system.mount(HostNo(number)));
        let theirs = file(&one, "a", &[1, 2]);
        let mine = file(&two, "b", &[1, 2]);
        system.sync_all();
        one.substrate.write_at(&theirs, 0, &bytes(&[7])).unwrap();
        two.substrate.write_at(&mine, 0, &bytes(&[7])).unwrap();
        let source = two.substrate.open(Path::new("a"), Access::Read).unwrap();
        assert_eq!(two.substrate.share(at(&source, 0), at(&mine, 0), 2 * B).unwrap(), ComparisonResult::Shared);
        system.crash(HostNo(0));
        system.crash(HostNo(1));
        (read(system, "a"), read(system, "b"))
    });
    assert_eq!(seen, BTreeSet::from([(Some(vec![7, 2]), Some(vec![7, 2]))]));
}

#[test]
fn a_clone_that_was_not_synced_is_lost_or_kept() {
    let seen = over_seeds(|system| {
        let host = system.mount(HostNo(0));
        let (source, arena) = (file(&host, "a", &[1]), file(&host, "arena", &[8]));
        system.sync_all();
        host.substrate.clone_range(at(&source, 0), at(&arena, 0), B).unwrap();
        system.crash(HostNo(0));
        read(system, "arena").unwrap()
    });
    assert_eq!(seen, BTreeSet::from([vec![0], vec![1], vec![8]]));
}

#[test]
fn what_was_cloned_from_stays_as_it_was_after_any_crash() {
    let seen = over_seeds(|system| {
        let [one, two] = [0, 1].map(|number| system.mount(HostNo(number)));
        let (theirs, arena) = (file(&one, "a", &[1]), file(&two, "arena", &[8]));
        system.sync_all();
        one.substrate.write_at(&theirs, 0, &bytes(&[2])).unwrap();
        let source = two.substrate.open(Path::new("a"), Access::Read).unwrap();
        two.substrate.clone_range(at(&source, 0), at(&arena, 0), B).unwrap();
        system.crash(HostNo(0));
        (read(system, "a").unwrap(), content(&two, &arena))
    });
    assert_eq!(seen, BTreeSet::from([(vec![2], vec![2])]));
}

/// Restoring older bytes takes room, which makes names durable, and so may free the very file that they belong to.
#[test]
fn a_crash_may_take_from_a_file_that_only_its_lost_removal_keeps() {
    let seen = (0..50).map(|seed| {
        let habits = super::super::Habits { overwrites_in_place: false, ..Default::default() };
        let options =
            SimulationOptions { seed, hosts: 3, images: 0, total_blocks: 10, habits, ..SimulationOptions::default() };
        let system = SimulatedFileSystem::new(&options);
        let [one, two, three] = [0, 1, 2].map(|number| system.mount(HostNo(number)));
        let removed = file(&one, "a", &[1, 1]);
        let filler = file(&three, "filler", &[3; 7]);
        system.sync_all();
        one.substrate.write_at(&removed, 0, &bytes(&[2, 2])).unwrap();
        drop(removed);
        three.substrate.write_at(&filler, 7 * B, &bytes(&[3])).unwrap();
        two.substrate.remove(Path::new("a")).unwrap();
        assert_eq!(three.substrate.room().unwrap().free, 0);
        system.crash(HostNo(0));
        system.check().unwrap();
        three.substrate.room().unwrap().free / B
    });
    let seen: BTreeSet<u64> = seen.collect();
    assert!(seen.contains(&0) && seen.contains(&2), "nothing was lost, or the removal became durable: {seen:?}");
}

#[test]
fn images_lose_what_was_written_through_the_host_and_their_copies_follow() {
    let seen = over_seeds(|system| {
        system.write_image(HostNo(1), "images/one", 0, &bytes(&[1])).unwrap();
        system.sync_all();
        system.write_image(HostNo(1), "images/one", 0, &bytes(&[2])).unwrap();
        system.crash(HostNo(1));
        read(system, "images/one").unwrap()
    });
    assert_eq!(seen, BTreeSet::from([vec![0], vec![1], vec![2]]));
}

#[test]
fn a_removed_file_holds_its_room_until_that_is_durable_or_the_room_is_needed() {
    let options = SimulationOptions { images: 0, total_blocks: 10, ..SimulationOptions::default() };
    let system = SimulatedFileSystem::new(&options);
    let host = system.mount(HostNo(0));
    drop(file(&host, "a", &[1; 8]));
    host.substrate.remove(Path::new("a")).unwrap();
    assert_eq!(host.substrate.room().unwrap().free, 2 * B);
    let new = file(&host, "b", &[2; 10]);
    assert_eq!(host.substrate.room().unwrap().free, 0);
    let error = host.substrate.write_at(&new, 10 * B, b"x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    host.substrate.write_at(&new, 0, &bytes(&[3])).unwrap();
    system.crash(HostNo(0));
    assert_eq!(read(&system, "a"), None);
    system.check().unwrap();
}

#[test]
fn calls_of_a_crashed_host_fail_and_a_new_incarnation_goes_on() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let old = file(&host, "a", &[1]);
    system.sync_all();
    system.crash(HostNo(0));
    assert_eq!(host.substrate.write_at(&old, 0, b"x").unwrap_err().kind(), std::io::ErrorKind::NotConnected);
    assert!(host.substrate.list(Path::new("")).is_err());
    let host = system.mount(HostNo(0));
    let again = host.substrate.open(Path::new("a"), Access::Write).unwrap();
    drop(old);
    assert_eq!(content(&host, &again), [1]);
    system.check().unwrap();
}
