//! Names of files, and their numbers, that change while hosts look at them.

use super::*;
use crate::format::log::LogKind;
use crate::format::mark::Mark;
use crate::state::files::StampChange;
use crate::state::locks::Subject;

/// A file with two names, of which only the second has been seen.
fn with_two_names() -> Ground {
    let ground = Ground::new();
    ground.write("b", 1, 3);
    ground.host.substrate.link(Path::new("b"), Path::new("a")).unwrap();
    ground.file_system.pass(Duration::from_secs(1));
    let state = ground.state();
    scan_those(&state, &mut Marks::load(&state).unwrap(), &|path, _| path != Path::new("a"));
    assert_eq!(unread(&state), [("b".into(), false)].into());
    drop(state);
    ground
}

/// Regression: a host that found a file by another name noted that name, and with it the times of the last reading. A
/// request of another host to read the file again was lost.
#[test]
fn what_another_host_has_noted_outlives_a_new_name() {
    let ground = with_two_names();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let number = files.iter().next().unwrap().number;
    // Another host's pass has found that a block of it was overwritten.
    Marks::load(&state).unwrap().forget_scan(&state, number).unwrap();
    assert_eq!(scan_all(&state, &mut files).unchanged, 1);
    assert_eq!(unread(&state), [("a".into(), true)].into());
    // So has one that only saw that its times were set.
    let file = ground.host.substrate.open(Path::new("a"), Access::Read).unwrap();
    let stamp = crate::format::stamp::Stamp::of(&ground.host.substrate.stat(&file).unwrap());
    files.note(&state, number, Path::new("a"), Some(stamp)).unwrap();
    Marks::load(&state).unwrap().forget_scan(&state, number).unwrap();
    files.restamp(&state, number, StampChange { before: stamp, after: stamp }).unwrap();
    assert_eq!(unread(&state), [("a".into(), true)].into());
}

/// The host that has a file is about to write its mark. Meanwhile another host sees another name, which is noted later.
#[test]
fn a_new_name_of_a_file_that_another_host_has_is_noted_later() {
    let ground = with_two_names();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let mark = files.iter().next().unwrap().clone();
    {
        let other = ground.state();
        let _lock = other.try_lock(&Subject::File(mark.handle.clone())).unwrap().unwrap();
        scan_all(&state, &mut files);
        assert_eq!(files.get(mark.number).unwrap().path, Path::new("a"));
        assert_eq!(unread(&state), [("b".into(), false)].into());
    }
    scan_all(&state, &mut Marks::load(&state).unwrap());
    assert_eq!(unread(&state), [("a".into(), false)].into());
}

/// For a file with several names, the same name is always noted, so that no mark is written without need.
#[test]
fn of_several_names_the_first_one_counts() {
    let ground = Ground::new();
    ground.write("m", 1, 3);
    for name in ["a/b", "z", "b", "c/a"] {
        let folder = Path::new(name).parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.into_iter().for_each(|folder| ground.host.substrate.create_dir(folder).unwrap());
        ground.host.substrate.link(Path::new("m"), Path::new(name)).unwrap();
    }
    ground.file_system.pass(Duration::from_secs(1));
    ground.run();
    assert_eq!(unread(&ground.state()), [("a/b".into(), false)].into());
}

/// Regression: a file was gone for another host, which forgot it, and found it again under another name, with another
/// number. A host that still knew the first number took in its log under that, found nothing there, and dropped the
/// content of the log.
#[test]
fn a_file_that_another_host_has_given_a_new_number_is_shared() {
    let ground = Ground::new();
    for (path, seed) in [("one", 1), ("two", 2)] {
        ground.write(path, seed, 3);
    }
    ground.run();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    let number = files.iter().find(|mark| mark.path == Path::new("one")).unwrap().number;
    let mut others = Marks::load(&state).unwrap();
    others.forget(&state, number).unwrap();
    ground.host.substrate.rename(Path::new("one"), Path::new("renamed")).unwrap();
    ground.write("three", 1, 3);
    scan_all(&state, &mut others);
    for number in others.iter().map(|mark| mark.number).collect::<Vec<_>>() {
        files.reload(&state, number).unwrap();
    }
    assert_eq!(files.first_number(FileNo(3)), number, "the two numbers of the file");
    assert_eq!(USUAL.pass(&state, &mut files).unwrap().shared.now, 3 * K);
    assert_eq!(files.first_number(FileNo(3)), FileNo(3));
}

/// Regression: two hosts that saw a file at the same moment gave it two numbers. The log under the higher one was
/// believed, though it was older, and the file's content was not known until it was written to.
#[test]
fn of_logs_under_two_numbers_of_a_file_the_newer_one_is_right() {
    let ground = Ground::new();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    ground.write("one", 1, 4);
    scan_all(&state, &mut files);
    let [log] = &state.logs().unwrap()[..] else { panic!("one log") };
    let mut old = Vec::new();
    let read = state.read_log(log, |note| -> Result<(), PassError> {
        old.push(note);
        Ok(())
    });
    read.unwrap();
    let first = files.iter().next().unwrap().clone();
    let second = Mark { number: FileNo(first.number.0 + 1), ..first };
    let name = format!("files/{}", second.number);
    second.write(&ground.host.substrate, ground.create(&name), state.identity().uuid).unwrap();
    let mut old = old.into_iter();
    state.write_log(LogKind::Log, second.number, log.order(), &mut || Ok(old.next())).unwrap();
    ground.write("one", 2, 4);
    ground.write("two", 2, 4);
    let mut files = Marks::load(&state).unwrap();
    scan_all(&state, &mut files);
    assert_eq!(state.logs().unwrap().len(), 3);
    assert_eq!(USUAL.pass(&state, &mut files).unwrap().shared.now, 4 * K);
}

/// A host that does not know the higher numbers gives out a forgotten one. Regression: another host that still took it
/// for the number of the earlier file forgot the mark of the new one.
#[test]
fn a_number_that_has_become_another_files_is_not_forgotten() {
    let ground = Ground::new();
    let state = ground.state();
    let mut files = Marks::load(&state).unwrap();
    ground.write("one", 1, 4);
    ground.write("two", 2, 4);
    scan_all(&state, &mut files);
    let mut late = Marks::load(&state).unwrap();
    let mark = files.get(FileNo(1)).unwrap().clone();
    files.forget(&state, FileNo(1)).unwrap();
    ground.write("three", 3, 4);
    let stat = ground.host.substrate.open(Path::new("three"), Access::Read);
    let stat = ground.host.substrate.stat(&stat.unwrap()).unwrap();
    let given = Marks::default().number(&state, &stat.handle, Path::new("three"), &mark.membership).unwrap();
    assert_eq!(given, FileNo(1));
    late.forget(&state, FileNo(1)).unwrap();
    assert!(late.of(&mark.handle).is_none());
    for files in [late, Marks::load(&state).unwrap()] {
        assert_eq!(files.of(&stat.handle).map(|mark| mark.number), Some(FileNo(1)));
    }
}
