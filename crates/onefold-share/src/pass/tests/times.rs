//! Unreliable times: of clocks that are ahead, and of files whose space was reserved.

use onefold_block::Timestamp;
use onefold_substrate::Sharing;

use super::*;

/// Another host's clock is an hour ahead, and so are the times of its writes: two changes in one tick of that clock
/// have the same time.
#[test]
fn a_change_in_the_tick_of_a_clock_that_is_ahead_is_seen() {
    let ground = Ground::new();
    let other = HostNo(1);
    ground.file_system.set_clock_ahead(other, Duration::from_secs(3600));
    let mut bytes = vec![0; 4 * 4096];
    SeededRandom::new(5).fill(&mut bytes).unwrap();
    ground.file_system.write_image(other, "one", 0, &bytes).unwrap();
    let scanned = || {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap()).read_bytes
    };
    assert_eq!(scanned(), 4 * K);
    ground.file_system.write_image(other, "one", 0, &bytes[4096..8192]).unwrap();
    assert_eq!(scanned(), 4 * K, "it was written to after it was read");
    // No process writes to it any more, and it is not read again and again.
    for _ in 0..3 {
        ground.file_system.pass(Duration::from_secs(60));
        assert_eq!(scanned(), 0);
    }
    // A change while this clock comes by that time would have had that time.
    ground.file_system.pass(Duration::from_secs(3600));
    assert_eq!((scanned(), scanned()), (4 * K, 0));
}

/// A time of the content may be ahead for ever: the time of the last change shows writes.
#[test]
fn a_file_whose_time_was_set_ahead_is_read_once() {
    let ground = Ground::new();
    ground.write("one", 5, 4);
    let ahead = Timestamp { seconds: 1 << 40, nanoseconds: 0 };
    let set = || {
        let file = ground.host.substrate.open(Path::new("one"), Access::Write).unwrap();
        ground.host.substrate.set_modified(&file, ahead).unwrap();
    };
    let scanned = || {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap()).read_bytes
    };
    set();
    ground.file_system.pass(Duration::from_secs(1));
    assert_eq!((scanned(), scanned()), (4 * K, 0));
    ground.write("one", 6, 4);
    set();
    ground.file_system.pass(Duration::from_secs(1));
    assert_eq!((scanned(), scanned()), (4 * K, 0));
    // It was written a moment ago, so it may be written to in the same tick.
    ground.write("one", 7, 4);
    set();
    assert_eq!(
        (
            scanned(),
            {
                ground.file_system.pass(Duration::from_secs(1));
                scanned()
            },
            scanned()
        ),
        (4 * K, 4 * K, 0)
    );
}

/// An administrator has preallocated an image completely: its zeros stay blocks.
#[test]
fn the_zeros_of_a_file_without_holes_stay() {
    let ground = Ground::new();
    let data = |seed| {
        let mut bytes = vec![0; 4 * 4096];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        bytes
    };
    let write = |path: &str, offset: u64, bytes: &[u8]| {
        let substrate = &ground.host.substrate;
        let file =
            substrate.open(Path::new(path), Access::Write).or_else(|_| substrate.create(Path::new(path))).unwrap();
        substrate.write_at(&file, offset, bytes).unwrap();
        ground.file_system.pass(Duration::from_secs(1));
    };
    // Both hold four blocks of data, four of zeros, and the same data again; one of them has a hole behind.
    for path in ["full", "sparse"] {
        write(path, 0, &data(1));
        write(path, 4 * K, &[0; 4 * 4096]);
        write(path, 8 * K, &data(2));
    }
    write("sparse", 20 * K, &data(3)[..4096]);
    let zeros = |path: &str| {
        let file = ground.host.substrate.open(Path::new(path), Access::Read).unwrap();
        let mut map = crate::extents::Extents::new();
        (4..8).filter(|block| !map.at(&ground.host.substrate, &file, block * K).unwrap().is_hole).count()
    };
    let passed = ground.run();
    assert_eq!((passed.shared.zeros, zeros("full"), zeros("sparse")), (4 * K, 4, 0), "{passed:?}");
    // Zeros that the guest writes later stay, too, even if everything is read anew.
    write("full", K, &[0; 4096]);
    let passed = ground.run();
    assert_eq!((passed.shared.zeros, zeros("full")), (0, 4), "{passed:?}");
    let state = ground.state();
    Marks::load(&state).unwrap().forget_scans(&state).unwrap();
    drop(state);
    assert_eq!((ground.run().shared.zeros, zeros("full")), (0, 4));
}

/// Room that was set aside in an image with holes stays set aside; zeros that were written there become holes.
#[test]
fn unwritten_room_of_a_file_with_holes_stays() {
    let ground = Ground::new();
    let host = ground.host.no;
    for path in ["one", "two"] {
        ground.write(path, 1, 4);
        // Then a hole, unwritten blocks, written zeros, and data.
        ground.file_system.set_aside(host, path, 8, 4).unwrap();
        ground.file_system.write_image(host, path, 12 * K, &[0; 4 * 4096]).unwrap();
        ground.file_system.write_image(host, path, 16 * K, &[7; 4096]).unwrap();
        ground.file_system.pass(Duration::from_secs(1));
    }
    let unwritten = |path: &str| {
        let file = ground.host.substrate.open(Path::new(path), Access::Read).unwrap();
        let extents = ground.host.substrate.extents(&file, 0).unwrap();
        extents.into_iter().filter(|extent| extent.is_unwritten).collect::<Vec<_>>()
    };
    let before = [unwritten("one"), unwritten("two")];
    assert!(before.iter().all(|extents| matches!(extents[..], [extent] if extent.length == 4 * K)), "{before:?}");
    let passed = ground.run();
    assert_eq!((passed.shared.zeros, passed.shared.now), (2 * 4 * K, (2 * 4 + 5) * K), "{passed:?}");
    assert_eq!([unwritten("one"), unwritten("two")], before);
    assert_eq!(ground.run().shared.zeros, 0);
    assert_eq!([unwritten("one"), unwritten("two")], before);
}
