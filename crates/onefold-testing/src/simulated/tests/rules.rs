//! Tests of the trait's rules for names, files and locks.

use std::io::ErrorKind;
use std::time::Duration;

use onefold_block::Clock;
use onefold_substrate::{Files, ListedKind, Locks, Names, Sharing};
use rustix::io::Errno;

use super::*;

#[test]
fn names_are_made_once_and_lead_where_they_were_made_to() {
    let system = empty(1);
    let [one, two] = [0, 1].map(|number| system.mount(HostNo(number)));
    let path = Path::new;
    one.substrate.create_dir(path("state")).unwrap();
    assert_eq!(two.substrate.create_dir(path("state")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    drop(file(&one, "state/a", &[1]));
    assert_eq!(two.substrate.create(path("state/a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    one.substrate.link(path("state/a"), path("state/b")).unwrap();
    assert_eq!(two.substrate.link(path("state/a"), path("state/b")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    drop(file(&two, "state/c", &[2]));
    two.substrate.rename(path("state/c"), path("state/a")).unwrap();
    let read = |path: &str| content(&one, &one.substrate.open(Path::new(path), Access::Read).unwrap());
    assert_eq!((read("state/a"), read("state/b")), (vec![2], vec![1]));
    one.substrate.remove(path("state/b")).unwrap();
    assert_eq!(one.substrate.remove(path("state/b")).unwrap_err().kind(), ErrorKind::NotFound);
    let listed = one.substrate.list(path("")).unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|listed| listed.kind == ListedKind::Folder));
    assert_eq!(one.substrate.list(path("state")).unwrap().len(), 1);
    assert_eq!(one.substrate.open(path("state"), Access::Read).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(errno(one.substrate.open(path("../a"), Access::Read)), Some(Errno::XDEV.raw_os_error()));
    assert_eq!(errno(one.substrate.list(path("state/a"))), Some(Errno::NOTDIR.raw_os_error()));
    system.check().unwrap();
}

#[test]
fn a_file_lives_as_long_as_it_has_a_name_or_is_open_and_its_handle_is_not_given_again() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let first = file(&host, "a", &[1, 2, 3]);
    let handle = host.substrate.stat(&first).unwrap().handle;
    host.substrate.remove(Path::new("a")).unwrap();
    assert_eq!(content(&host, &first), [1, 2, 3]);
    drop(first);
    system.sync_all();
    let room = host.substrate.room().unwrap();
    assert_eq!(room.free, room.total, "nothing leads to it any more");
    let second = file(&host, "a", &[1]);
    assert_ne!(host.substrate.stat(&second).unwrap().handle, handle);
    system.check().unwrap();
}

#[test]
fn what_is_behind_the_end_is_not_there_and_what_is_cut_does_not_come_back() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let file = file(&host, "a", &[1, 2, 3]);
    host.substrate.set_len(&file, B + 100).unwrap();
    host.substrate.set_len(&file, 3 * B).unwrap();
    let mut read = vec![9; 3 * BLOCK_BYTES];
    assert_eq!(host.substrate.read_at(&file, 0, &mut read).unwrap(), 3 * BLOCK_BYTES);
    assert_eq!(read, [vec![1; BLOCK_BYTES], vec![2; 100], vec![0; 2 * BLOCK_BYTES - 100]].concat());
    assert_eq!(host.substrate.read_at(&file, 3 * B, &mut read).unwrap(), 0);
    host.substrate.write_at(&file, 5 * B + 7, b"end").unwrap();
    let stat = host.substrate.stat(&file).unwrap();
    assert_eq!((stat.length, stat.allocated), (5 * B + 10, 3 * B));
    host.substrate.punch(&file, 50, 5 * B).unwrap();
    assert_eq!(host.substrate.stat(&file).unwrap().allocated, 2 * B, "only the ends are left");
    let mut start = [9; 60];
    host.substrate.read_at(&file, 0, &mut start).unwrap();
    assert_eq!((&start[..50], &start[50..]), (&[1; 50][..], &[0; 10][..]));
    system.check().unwrap();
}

#[test]
fn a_file_opened_for_reading_is_not_written() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    drop(file(&host, "a", &[1]));
    let file = host.substrate.open(Path::new("a"), Access::Read).unwrap();
    assert_eq!(errno(host.substrate.write_at(&file, 0, b"x")), Some(Errno::BADF.raw_os_error()));
    assert_eq!(errno(host.substrate.set_len(&file, 0)), Some(Errno::BADF.raw_os_error()));
    assert_eq!(errno(host.substrate.punch(&file, 0, B)), Some(Errno::BADF.raw_os_error()));
}

#[test]
fn a_lock_is_had_once_and_goes_with_its_opening() {
    let system = empty(1);
    let [one, two] = [0, 1].map(|number| system.mount(HostNo(number)));
    drop(file(&one, "lock", &[]));
    let open = |host: &Host<'static>| host.substrate.open(Path::new("lock"), Access::Read).unwrap();
    let (mine, mine_too, other) = (open(&one), open(&one), open(&two));
    assert!(one.substrate.try_lock(&mine).unwrap() && one.substrate.try_lock(&mine).unwrap());
    assert!(!one.substrate.try_lock(&mine_too).unwrap() && !two.substrate.try_lock(&other).unwrap());
    drop(mine);
    assert!(two.substrate.try_lock(&other).unwrap());
    assert_eq!(system.counters().locks_expired, 0);
}

#[test]
fn locks_of_a_silent_host_are_others_after_a_while_and_it_is_not_told() {
    for crashes in [true, false] {
        let system = empty(1);
        let [one, two] = [0, 1].map(|number| system.mount(HostNo(number)));
        let mine = file(&one, "lock", &[]);
        let other = two.substrate.open(Path::new("lock"), Access::Read).unwrap();
        assert!(one.substrate.try_lock(&mine).unwrap());
        system.sync_all();
        if crashes {
            system.crash(HostNo(0))
        } else {
            system.stall(HostNo(0))
        };
        two.clock.sleep(Duration::from_secs(20));
        assert!(!two.substrate.try_lock(&other).unwrap(), "it may be back");
        two.clock.sleep(Duration::from_secs(20));
        assert!(two.substrate.try_lock(&other).unwrap());
        assert_eq!(system.counters().locks_expired, 1);
        if !crashes {
            system.unstall(HostNo(0));
            one.substrate.write_at(&mine, 0, b"not told").unwrap();
            assert!(!one.substrate.try_lock(&mine).unwrap());
        }
    }
}

#[test]
fn a_host_that_is_back_in_time_has_kept_its_locks() {
    let system = empty(1);
    let [one, two] = [0, 1].map(|number| system.mount(HostNo(number)));
    let mine = file(&one, "lock", &[]);
    assert!(one.substrate.try_lock(&mine).unwrap());
    system.stall(HostNo(0));
    system.pass(Duration::from_secs(20));
    system.unstall(HostNo(0));
    system.pass(Duration::from_secs(100));
    let other = two.substrate.open(Path::new("lock"), Access::Read).unwrap();
    assert!(!two.substrate.try_lock(&other).unwrap());
}

#[test]
fn content_changes_times_and_sharing_does_not() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let (one, two) = (file(&host, "a", &[1]), file(&host, "b", &[1]));
    let times = |file| host.substrate.stat(file).map(|stat| (stat.modified, stat.changed)).unwrap();
    let before = times(&two);
    host.clock.sleep(Duration::from_secs(1));
    assert_eq!(host.substrate.share(at(&one, 0), at(&two, 0), B).unwrap(), ComparisonResult::Shared);
    assert_eq!(times(&two), before);
    host.substrate.write_at(&two, 0, b"x").unwrap();
    assert!(times(&two).0 > before.0 && times(&two).1 > before.1);
}

#[test]
fn a_monitor_sees_what_writers_write_through_its_host() {
    let options = SimulationOptions { tells_writes: true, images: 40, ..SimulationOptions::default() };
    let system = SimulatedFileSystem::new(&options);
    let hosts: Vec<_> = (0..options.hosts).map(|number| system.mount(HostNo(number))).collect();
    (0..300).for_each(|_| system.let_writers_write());
    let seen: Vec<_> = hosts.iter().map(Host::take_writes).collect();
    assert!(seen.iter().flatten().count() > 100 && seen.iter().all(|seen| !seen.is_empty()));
    assert!(hosts.iter().all(|host| host.take_writes().is_empty()));
    let write = &seen[0][0];
    assert!(write.path.starts_with("images"), "{write:?}");
    (0..300).for_each(|_| system.let_writers_write());
    system.crash(HostNo(0));
    assert!(hosts[0].take_writes().is_empty(), "a crash takes what a monitor has not flushed");
}
