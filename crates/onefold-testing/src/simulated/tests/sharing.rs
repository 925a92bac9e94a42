//! Tests of comparing and sharing, cloning and maps; and that mistakes there are found.

use onefold_substrate::{Files, MappedExtent, Refusal, Sharing};

use super::super::checks::AllowedChanges;
use super::super::files::FileNo;
use super::super::world::{Actor, World};
use super::*;

/// Returns the outcome of an attempt to share, as text.
fn outcome(result: Result<ComparisonResult, ShareError>) -> String {
    match result {
        Ok(compared) => format!("{compared:?}"),
        Err(ShareError::Io(error)) => format!("{:?}", error.kind()),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn equal_ranges_are_shared_and_others_are_not_touched() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let one = file(&host, "a", &[1, 2, 3, 4]);
    let two = file(&host, "b", &[9, 1, 2, 3]);
    let free = || host.substrate.room().unwrap().free;
    let before = free();
    assert_eq!(host.substrate.share(at(&one, 0), at(&two, 1), 3 * B).unwrap(), ComparisonResult::Shared);
    assert_eq!(free(), before + 3 * B);
    assert_eq!(host.substrate.share(at(&one, 0), at(&two, 1), 3 * B).unwrap(), ComparisonResult::Shared, "again");
    assert_eq!(free(), before + 3 * B);
    assert_eq!(host.substrate.share(at(&one, 2), at(&two, 2), 2 * B).unwrap(), ComparisonResult::Differ);
    assert_eq!((content(&host, &one), content(&host, &two)), (vec![1, 2, 3, 4], vec![9, 1, 2, 3]));
    host.substrate.write_at(&two, B, &bytes(&[7, 7])).unwrap();
    assert_eq!((content(&host, &one), content(&host, &two)), (vec![1, 2, 3, 4], vec![9, 7, 7, 3]));
    assert_eq!(free(), before + B);
    system.check().unwrap();
}

#[test]
fn sharing_with_a_hole_frees_zeros() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let (zeros, hole) = (file(&host, "a", &[0, 0]), file(&host, "b", &[]));
    host.substrate.set_len(&hole, 2 * B).unwrap();
    assert_eq!(host.substrate.share(at(&hole, 0), at(&zeros, 0), 2 * B).unwrap(), ComparisonResult::Shared);
    assert_eq!(host.substrate.stat(&zeros).unwrap().allocated, 0);
    system.check().unwrap();
}

#[test]
fn ranges_that_break_the_rules_are_refused() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let one = file(&host, "a", &[1; 8]);
    let two = file(&host, "b", &[1; 8]);
    host.substrate.write_at(&two, 8 * B, b"tail").unwrap();
    let reading = host.substrate.open(Path::new("b"), Access::Read).unwrap();
    let share = |source, from, into, to, length| {
        let (source, into) = (At { file: source, offset: from }, At { file: into, offset: to });
        (outcome(host.substrate.share(source, into, length)), host.substrate.clone_range(source, into, length).is_ok())
    };
    let invalid = ("InvalidInput".to_string(), false);
    for (from, to, length) in [
        (1, 0, B),
        (0, 512, B),
        (0, 0, B + 1),
        (0, 0, 0),
        (4 * B, 0, 5 * B),
        (0, 8 * B, B),
        (u64::MAX - B + 1, 0, 2 * B),
    ] {
        assert_eq!(share(&one, from, &two, to, length), invalid, "{from} {to} {length}");
    }
    assert_eq!(share(&one, 0, &one, 3 * B, 4 * B), invalid, "they overlap");
    assert_eq!(share(&one, 0, &one, 0, B), invalid, "they are one");
    assert_eq!(share(&one, 0, &one, 4 * B, 4 * B), ("Shared".to_string(), true));
    assert_eq!(share(&one, 0, &reading, 0, B), ("Refused(NotPermitted)".to_string(), false));
    let most = host.substrate.abilities().share_bytes_max;
    for file in [&one, &two] {
        host.substrate.set_len(file, 2 * most).unwrap();
    }
    assert_eq!(share(&one, 0, &two, 0, most + B), invalid, "longer than one call takes");
    system.check().unwrap();
}

#[test]
fn files_are_refused_for_what_they_are() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let files = [file(&host, "a", &[1]), file(&host, "b", &[1])];
    let set = |of: usize, refusal| {
        let mut world = system.world_mut();
        let no = world.find_file(Path::new(["a", "b"][of])).unwrap();
        world.files.get_mut(no).refusal = refusal;
    };
    let share = |from: usize, to: usize| outcome(host.substrate.share(at(&files[from], 0), at(&files[to], 0), B));
    for (refusal, as_source, as_destination) in [
        (Refusal::Immutable, "Shared", "Refused(Immutable)"),
        (Refusal::Swap, "Refused(Swap)", "Refused(Swap)"),
        (Refusal::NoCopyOnWrite, "Refused(NoCopyOnWrite)", "Refused(NoCopyOnWrite)"),
    ] {
        set(0, Some(refusal));
        assert_eq!((share(0, 1).as_str(), share(1, 0).as_str()), (as_source, as_destination));
    }
    set(1, Some(Refusal::NoCopyOnWrite));
    assert_eq!(share(0, 1), "Shared", "both are overwritten in place");
}

#[test]
fn a_clone_refers_to_what_it_was_cloned_from() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let (one, two) = (file(&host, "a", &[1, 2, 3]), file(&host, "b", &[7, 8, 9]));
    let free = host.substrate.room().unwrap().free;
    host.substrate.clone_range(at(&one, 1), at(&two, 0), 2 * B).unwrap();
    assert_eq!((content(&host, &two), host.substrate.room().unwrap().free), (vec![2, 3, 9], free + 2 * B));
    system.check().unwrap();
}

#[test]
fn a_map_tells_where_data_is_and_with_whom_it_is_shared() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let one = file(&host, "a", &[1, 2, 3, 4, 5]);
    host.substrate.punch(&one, B, B).unwrap();
    let two = file(&host, "b", &[4]);
    assert_eq!(host.substrate.share(at(&two, 0), at(&one, 3), B).unwrap(), ComparisonResult::Shared);
    let extents = host.substrate.extents(&one, 0).unwrap();
    let seen: Vec<_> = extents.iter().map(|extent| (extent.offset / B, extent.length / B, extent.is_shared)).collect();
    assert_eq!(seen, [(0, 1, false), (2, 1, false), (3, 1, true), (4, 1, false)]);
    assert_eq!(extents[2].place, host.substrate.extents(&two, 0).unwrap()[0].place);
    let behind = host.substrate.extents(&one, extents[2].end()).unwrap();
    assert_eq!(behind, extents[3..]);
    assert_eq!(host.substrate.extents(&one, 5 * B).unwrap(), Vec::<MappedExtent>::new());
    host.substrate.write_at(&two, 0, &bytes(&[8])).unwrap();
    assert!(!host.substrate.extents(&one, 3 * B).unwrap()[0].is_shared, "the other one is gone");
}

#[test]
fn what_was_set_aside_is_told_from_what_was_written() {
    let system = empty(1);
    system.write_image(HostNo(0), "images/one", 0, &bytes(&[0, 0, 1])).unwrap();
    let mut world = system.world_mut();
    let (no, unwritten) = (world.find_file(Path::new("images/one")).unwrap(), world.unwritten.clone());
    world.write_block(Actor::Writer(HostNo(0)), no, 1, Some(unwritten)).unwrap();
    drop(world);
    let host = system.mount(HostNo(0));
    let image = host.substrate.open(Path::new("images/one"), Access::Read).unwrap();
    let extents = host.substrate.extents(&image, 0).unwrap();
    assert_eq!(extents.iter().map(|extent| extent.is_unwritten).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(content(&host, &image), [0, 0, 1]);
}

#[test]
fn files_of_one_write_lie_in_one_extent() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let one = file(&host, "a", &[1; 40]);
    assert_eq!(host.substrate.extents(&one, 0).unwrap().len(), 1);
}

/// Makes a mistake in an image beside another one. Returns whether the checks after the step, and those of everything,
/// find it.
fn found(wrong: impl FnOnce(&mut World, FileNo, FileNo)) -> (bool, bool) {
    let system = empty(1);
    system.write_image(HostNo(0), "images/one", 0, &bytes(&[1, 2, 3])).unwrap();
    system.write_image(HostNo(0), "images/two", 0, &bytes(&[1, 9])).unwrap();
    system.check().unwrap();
    let mut world = system.world_mut();
    let [one, two] = ["images/one", "images/two"].map(|path| world.find_file(Path::new(path)).unwrap());
    wrong(&mut world, one, two);
    world.verify(AllowedChanges::Sharing);
    (world.violation.take().is_some(), world.check_all().is_err())
}

#[test]
fn whatever_goes_wrong_is_found_after_the_step_and_in_full() {
    let engine = Actor::Engine(HostNo(0));
    let both = (true, true);
    assert_eq!(found(|_, _, _| {}), (false, false));
    assert_eq!(found(|world, image, _| world.write(engine, image, 5, b"x").unwrap()), both);
    assert_eq!(found(|world, image, _| world.set_length(engine, image, 2 * B).unwrap()), both);
    assert_eq!(found(|world, image, _| world.punch(engine, image, 0, B).unwrap()), both);
    assert_eq!(found(|world, _, _| world.remove(engine, Path::new("images/one")).unwrap()), both);
    let (from, to) = (Path::new("images/one"), Path::new("images/two"));
    assert_eq!(found(|world, _, _| world.rename(engine, from, to).unwrap()), both);
    let takes_the_wrong_block = |world: &mut World, image, other| {
        let block = world.files.get(other).block(1);
        world.remap(image, 0, block);
    };
    assert_eq!(found(takes_the_wrong_block), both);
    let counts_twice = |world: &mut World, image, other| {
        let block = world.files.get(image).block(0).unwrap();
        world.blocks.raise(block);
        world.remap(other, 0, Some(block));
    };
    assert_eq!(found(counts_twice), both);
    // A change that no step reports is found only by the full check.
    let counts_without_a_place = |world: &mut World, image, _| {
        let block = world.files.get(image).block(0).unwrap();
        world.blocks.raise(block);
    };
    assert_eq!(found(counts_without_a_place), (false, true));
    let changes_unseen = |world: &mut World, image, other| {
        let block = world.files.get(image).block(2).unwrap();
        let content = world.content_at(other, 1).cloned().unwrap();
        world.blocks.set_content(block, content);
    };
    assert_eq!(found(changes_unseen), (false, true));
    assert_eq!(found(|world, image, _| world.files.get_mut(image).length += 1), (false, true));
}

#[test]
fn a_call_that_was_to_share_only_is_found_when_it_changes_a_file_that_is_no_image() {
    let system = empty(1);
    let host = system.mount(HostNo(0));
    let one = file(&host, "a", &[1, 2]);
    {
        let mut world = system.world_mut();
        world.write(Actor::Engine(HostNo(0)), one.no, 0, &bytes(&[2])).unwrap();
        world.verify(AllowedChanges::Sharing);
    }
    assert!(system.violation().is_some_and(|problem| problem.contains("sharing changed")));
}

#[test]
#[should_panic(expected = "differs from its reference copy")]
fn a_call_outside_of_any_schedule_panics_when_it_breaks_an_invariant() {
    let system = empty(1);
    system.write_image(HostNo(1), "images/one", 0, &bytes(&[1])).unwrap();
    let host = system.mount(HostNo(0));
    let image = host.substrate.open(Path::new("images/one"), Access::Write).unwrap();
    drop(host.substrate.write_at(&image, 0, b"x"));
}
