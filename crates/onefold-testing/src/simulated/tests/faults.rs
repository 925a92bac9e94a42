//! Tests that each kind of fault happens as the trait says, and only on request.

use onefold_substrate::{Files, Locks, Names, Sharing};

use super::super::Faults;
use super::*;

fn faulty(faults: Faults) -> SimulatedFileSystem {
    SimulatedFileSystem::new(&SimulationOptions { images: 0, faults, ..SimulationOptions::default() })
}

/// Makes a file whatever fails, as it uses no host's calls.
fn given(system: &SimulatedFileSystem, path: &str, blocks: &[u8]) {
    drop(file(&system.observe(), path, blocks));
}

const HALF: u32 = 500_000;

#[test]
fn every_call_may_fail_with_eio() {
    let system = faulty(Faults { io: HALF, ..Faults::none() });
    given(&system, "a", &[1, 2, 3, 4]);
    given(&system, "b", &[1, 2, 3, 4]);
    let host = system.mount(HostNo(0));
    let path = Path::new;
    let open = |path: &str| (0..).find_map(|_| host.substrate.open(Path::new(path), Access::Write).ok()).unwrap();
    let (a, b) = (open("a"), open("b"));
    let mut into = [0; 10];
    let fails = |call: &mut dyn FnMut() -> Option<i32>| {
        let failed: Vec<_> = (0..100).filter_map(|_| call()).collect();
        assert!((20..80).contains(&failed.len()) && failed.iter().all(|errno| *errno == 5), "{failed:?}");
    };
    let number = |error: std::io::Error| error.raw_os_error();
    let share_number = |error| if let ShareError::Io(error) = error { error.raw_os_error() } else { None };
    fails(&mut || host.substrate.open(path("a"), Access::Read).err().and_then(number));
    fails(&mut || host.substrate.list(path("")).err().and_then(number));
    fails(&mut || host.substrate.stat(&a).err().and_then(number));
    fails(&mut || host.substrate.read_at(&a, 0, &mut into).err().and_then(number));
    fails(&mut || host.substrate.try_lock(&a).err().and_then(number));
    fails(&mut || host.substrate.extents(&a, 0).err().and_then(number));
    fails(&mut || host.substrate.room().err().and_then(number));
    fails(&mut || host.substrate.share(at(&a, 0), at(&b, 0), 4 * B).err().and_then(share_number));
    fails(&mut || host.substrate.clone_range(at(&a, 0), at(&b, 0), 4 * B).err().and_then(share_number));
    fails(&mut || host.substrate.write_at(&a, 0, &bytes(&[5, 6])).err().and_then(number));
    fails(&mut || host.substrate.set_len(&a, 5 * B).err().and_then(number));
    fails(&mut || host.substrate.punch(&a, 0, B).err().and_then(number));
    fails(&mut || host.substrate.sync(&a).err().and_then(number));
    fails(&mut || host.substrate.link(path("a"), path("a2")).err().and_then(number).filter(|errno| *errno == 5));
    fails(&mut || host.substrate.rename(path("a"), path("a")).err().and_then(number));
    system.check().unwrap();
}

#[test]
fn a_failed_write_has_written_some_first_part_and_a_failed_sync_lost_some() {
    let system = faulty(Faults { io: HALF, ..Faults::none() });
    given(&system, "a", &[1, 1, 1]);
    let host = system.mount(HostNo(0));
    let file = (0..).find_map(|_| host.substrate.open(Path::new("a"), Access::Write).ok()).unwrap();
    let observer = system.observe();
    let seen = || content(&observer, &observer.substrate.open(Path::new("a"), Access::Read).unwrap());
    let (mut parts, mut losses) = (0, 0);
    for _ in 0..100 {
        // Whole blocks, so that each is either old or new.
        for block in 0..3 {
            while host.substrate.write_at(&file, block * B, &bytes(&[2])).is_err() {
                parts += 1;
            }
        }
        if host.substrate.sync(&file).is_err() && seen() != [2, 2, 2] {
            losses += 1;
        }
    }
    assert!(parts > 50 && losses > 2, "{parts} {losses}");
    system.check().unwrap();
}

#[test]
fn sharing_may_be_busy_full_or_refused_and_a_rename_denied() {
    let each = |faults: Faults| {
        let system = faulty(faults);
        given(&system, "a", &[1]);
        given(&system, "b", &[1]);
        let host = system.mount(HostNo(0));
        let [a, b] = ["a", "b"].map(|path| host.substrate.open(Path::new(path), Access::Write).unwrap());
        let shared = host.substrate.share(at(&a, 0), at(&b, 0), B);
        let cloned = host.substrate.clone_range(at(&a, 0), at(&b, 0), B);
        let renamed = host.substrate.rename(Path::new("a"), Path::new("c"));
        (shared.err(), cloned.err(), renamed.err().map(|error| error.kind()))
    };
    let always = 1_000_000;
    let busy = each(Faults { busy: always, ..Faults::none() });
    assert!(matches!(busy, (Some(ShareError::Busy), Some(ShareError::Busy), None)), "{busy:?}");
    let full = each(Faults { full: always, ..Faults::none() });
    let kind = std::io::ErrorKind::StorageFull;
    assert!(matches!(&full, (Some(ShareError::Full), Some(ShareError::Full), Some(told)) if *told == kind), "{full:?}");
    let refused = each(Faults { refused: always, ..Faults::none() });
    assert!(matches!(refused, (Some(ShareError::Refused(_)), Some(ShareError::Refused(_)), None)), "{refused:?}");
    let denied = each(Faults { rename_denied: always, ..Faults::none() });
    assert!(matches!(denied, (None, None, Some(std::io::ErrorKind::PermissionDenied))), "{denied:?}");
}

#[test]
fn maps_may_be_short_stale_or_without_places() {
    let map = |faults: Faults| {
        let system = faulty(faults);
        let host = system.mount(HostNo(0));
        let file = file(&host, "a", &[1, 2, 3, 4]);
        host.substrate.punch(&file, B, B).unwrap();
        let first = host.substrate.extents(&file, 0).unwrap();
        host.substrate.punch(&file, 0, 4 * B).unwrap();
        let second = host.substrate.extents(&file, 0).unwrap();
        (first, second)
    };
    let always = 1_000_000;
    let (first, second) = map(Faults::none());
    assert_eq!((first.len(), second.len()), (2, 0));
    let (first, second) = map(Faults { stale_map: always, ..Faults::none() });
    assert!(first.len() == 2 && second == first, "a map of before");
    let (first, _) = map(Faults { unplaced: always, ..Faults::none() });
    assert!(first.iter().all(|extent| extent.place.is_none()) && first.len() == 2, "{first:?}");
    let lengths = (0..20).map(|seed| {
        let faults = Faults { short_map: always, ..Faults::none() };
        let habits = super::super::Habits { extents_max: 3, ..Default::default() };
        let options = SimulationOptions { seed, images: 0, faults, habits, ..SimulationOptions::default() };
        let system = SimulatedFileSystem::new(&options);
        let host = system.mount(HostNo(0));
        let file = file(&host, "a", &[1; 9]);
        for block in [1, 3, 5, 7] {
            host.substrate.punch(&file, block * B, B).unwrap();
        }
        host.substrate.extents(&file, 0).unwrap().len()
    });
    assert_eq!(lengths.collect::<std::collections::BTreeSet<_>>(), [1, 2, 3].into());
}
