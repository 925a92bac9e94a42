//! Kept maps stay within their bound, whichever step keeps them.

use super::*;
use crate::clone::{CloneOptions, ExistingFilePolicy, clone};
use crate::scan::MAP_BYTES_MIN;
use crate::state::maps::MAPS_BYTES_MAX;

const BLOCKS: u64 = MAP_BYTES_MIN / K + 8;

impl Ground {
    /// Returns which files have a kept map.
    fn kept(&self) -> Vec<String> {
        let names = self.names("maps").into_iter();
        let mut names: Vec<String> = names.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        names
    }

    /// Has the map of another file take the room of all maps but for so many bytes.
    fn leave_room(&self, bytes: u64) {
        let path = Path::new(FOLDER).join("maps/99");
        let substrate = &self.host.substrate;
        let file = substrate.open(&path, Access::Write).or_else(|_| substrate.create(&path)).unwrap();
        let kept = self.kept().into_iter().filter(|name| name != "99");
        let others: u64 = kept.map(|name| self.length(&Path::new(FOLDER).join("maps").join(name))).sum();
        substrate.set_len(&file, MAPS_BYTES_MAX - others - bytes).unwrap();
    }

    fn length(&self, path: &Path) -> u64 {
        let substrate = &self.host.substrate;
        substrate.stat(&substrate.open(path, Access::Read).unwrap()).unwrap().length
    }
}

/// A scan, sharing and a clone keep maps. Regression: the latter two did not look at the other maps, so that a thousand
/// clones could keep maps of 4 GiB.
#[test]
fn all_kept_maps_together_have_a_bound() {
    let ground = Ground::new();
    ground.write("one", 1, BLOCKS);
    ground.write("two", 1, BLOCKS);
    let scan = || {
        let state = ground.state();
        scan_all(&state, &mut Marks::load(&state).unwrap());
    };
    scan();
    assert_eq!(ground.kept(), ["1", "2"]);
    // Sharing cuts every second block of an image out of its extent, and its map grows.
    let blocks = usize::try_from(BLOCKS).unwrap();
    let mut bytes = vec![0; blocks * 4096];
    SeededRandom::new(2).fill(&mut bytes).unwrap();
    let file = ground.host.substrate.create(Path::new("three")).unwrap();
    for block in (0..BLOCKS).step_by(2) {
        let at = usize::try_from(block).unwrap() * 4096;
        ground.host.substrate.write_at(&file, block * K, &bytes[at..at + 4096]).unwrap();
    }
    drop(file);
    ground.write("four", 2, BLOCKS);
    scan();
    assert_eq!(ground.kept(), ["1", "2", "3", "4"]);
    ground.leave_room(0);
    ground.run();
    let kept = ground.kept();
    assert!(!kept.contains(&"4".to_owned()) && kept.contains(&"99".to_owned()), "{kept:?}");
    let total = |kept: &[String]| -> u64 {
        kept.iter().map(|name| ground.length(&Path::new(FOLDER).join("maps").join(name))).sum()
    };
    assert!(total(&kept) <= MAPS_BYTES_MAX, "{kept:?}");

    // A clone has the map of its source.
    let random = SeededRandom::new(3);
    let cloned = |target: &str| {
        let options = CloneOptions {
            existing: ExistingFilePolicy::Keep,
            temporary_folder: Path::new("/var/tmp"),
            memory_bytes: 1 << 16,
            clock: &ManualClock::starting_at(1000),
            random: &random,
        };
        ground.file_system.pass(Duration::from_secs(60));
        let made = clone(&ground.host.substrate, Some(&ground.state()), Path::new("one"), Path::new(target), &options);
        let made = made.unwrap();
        assert!(made.unrecorded.is_none(), "{made:?}");
        ground.kept()
    };
    ground.leave_room(1);
    let before = ground.kept();
    let after = cloned("five");
    assert_eq!(after, before);
    ground.leave_room(1 << 20);
    assert_eq!(cloned("six").len(), before.len() + 1);
}

/// A map that another host has dropped makes room once a scan begins.
#[test]
fn a_scan_looks_at_all_kept_maps_again() {
    let ground = Ground::new();
    ground.write("zero", 9, 1);
    ground.run();
    ground.leave_room(1);
    let state = ground.state();
    ground.write("one", 1, BLOCKS);
    scan_all(&state, &mut Marks::load(&state).unwrap());
    assert_eq!(ground.kept(), ["99"]);
    ground.host.substrate.remove(&Path::new(FOLDER).join("maps/99")).unwrap();
    ground.write("two", 2, BLOCKS);
    scan_all(&state, &mut Marks::load(&state).unwrap());
    assert_eq!(ground.kept().len(), 1, "{:?}", ground.kept());
}
