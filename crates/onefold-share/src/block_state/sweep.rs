//! Goes over extents in the order of their places, and counts which files refer to each place.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use onefold_sort::Row;

use super::rows::{CountedFile, Kind, PlacedExtent};

/// Maximum number of extents over one place. Further ones are counted as unplaced. They take 32 MiB.
const OPEN_MAX: usize = 1 << 18;

/// Lengths that the sweep has passed, by the references to their places. An extent is counted by the difference between
/// the lengths at its end and at its begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SweptLengths {
    /// Places of a common volume.
    common: u64,
    /// Places without a volume, and with two or more parts of images.
    shared: u64,
    /// Places without a volume, and with one part of an image and an arena slot.
    with_slot: u64,
    /// Places with one part of an image, and no other known reference.
    alone: u64,
    /// Places with a part of an image, whatever else is there.
    used: u64,
    /// Places with anything: part of an image, of a volume or of the arena.
    taken: u64,
}

impl SweptLengths {
    fn since(self, begin: SweptLengths) -> SweptLengths {
        SweptLengths {
            common: self.common - begin.common,
            shared: self.shared - begin.shared,
            with_slot: self.with_slot - begin.with_slot,
            alone: self.alone - begin.alone,
            used: self.used - begin.used,
            taken: self.taken - begin.taken,
        }
    }
}

/// An extent that the sweep has not passed yet.
#[derive(Debug)]
struct OpenExtent {
    extent: PlacedExtent,
    begin: SweptLengths,
}

impl Ord for OpenExtent {
    fn cmp(&self, other: &OpenExtent) -> Ordering {
        self.extent.end().cmp(&other.extent.end())
    }
}

impl PartialOrd for OpenExtent {
    fn partial_cmp(&self, other: &OpenExtent) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OpenExtent {
    fn eq(&self, other: &OpenExtent) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for OpenExtent {}

/// The sweep. Its cost is that of a sort, however many extents overlap.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Extents over the current place, the one that ends first on top.
    open: BinaryHeap<Reverse<OpenExtent>>,
    /// Number of these that are parts of images, of volumes and of arena files.
    images: u64,
    volumes: u64,
    slots: u64,
    at: u64,
    passed: SweptLengths,
    /// Whether the file system stops reporting a block as shared when the other references are gone.
    tells_last_reference: bool,
    open_max: usize,
}

impl Sweep {
    pub(super) fn new(tells_last_reference: bool) -> Sweep {
        Sweep {
            open: BinaryHeap::new(),
            images: 0,
            volumes: 0,
            slots: 0,
            at: 0,
            passed: SweptLengths::default(),
            tells_last_reference,
            open_max: OPEN_MAX,
        }
    }

    /// Adds the next extent.
    pub(super) fn add(&mut self, row: Row, files: &mut [CountedFile]) {
        let extent = PlacedExtent::of_row(row);
        self.pass(extent.place, files);
        if self.open.len() >= self.open_max {
            if let (Kind::Image, Some(file)) = (extent.kind, files.get_mut(extent.file)) {
                file.bytes.unplaced = file.bytes.unplaced.saturating_add(extent.length);
            }
            return;
        }
        *self.count_of(extent.kind) += 1;
        self.open.push(Reverse(OpenExtent { extent, begin: self.passed }));
    }

    /// Counts the rest after the last extent. Returns the length of all places, each counted once.
    pub(super) fn finish(mut self, files: &mut [CountedFile]) -> u64 {
        self.pass(u64::MAX, files);
        self.passed.taken
    }

    fn count_of(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Image | Kind::OfTemplate => &mut self.images,
            Kind::Volume => &mut self.volumes,
            Kind::Arena => &mut self.slots,
        }
    }

    /// Advances to a place, and counts the extents that end before it.
    fn pass(&mut self, place: u64, files: &mut [CountedFile]) {
        while self.open.peek().is_some_and(|Reverse(first)| first.extent.end() <= place) {
            let Some(Reverse(OpenExtent { extent, begin })) = self.open.pop() else { break };
            self.move_to(extent.end());
            *self.count_of(extent.kind) -= 1;
            if let Some(file) = files.get_mut(extent.file) {
                self.count(file, &extent, self.passed.since(begin));
            }
        }
        self.move_to(place);
    }

    fn move_to(&mut self, place: u64) {
        let length = place.saturating_sub(self.at);
        self.at = self.at.max(place);
        let SweptLengths { common, shared, with_slot, alone, used, taken } = &mut self.passed;
        if self.volumes + self.images + self.slots > 0 {
            *taken += length;
        }
        let counter = match (self.volumes, self.images, self.slots) {
            (0, 0, _) => return,
            (1.., ..) => common,
            (_, 2.., _) => shared,
            (.., 1..) => with_slot,
            _ => alone,
        };
        // The sum is at most the last place.
        *counter += length;
        *used += if self.images > 0 { length } else { 0 };
    }

    /// Counts a file's extent at its end.
    fn count(&self, file: &mut CountedFile, extent: &PlacedExtent, passed: SweptLengths) {
        match extent.kind {
            Kind::Image => {
                // Shared with unknown files: a snapshot, or a copy that was never read.
                let is_shared = extent.is_told_shared && self.tells_last_reference;
                let bytes = &mut file.bytes;
                let alone = if is_shared { &mut bytes.shared } else { &mut bytes.own };
                *alone = alone.saturating_add(passed.alone);
                bytes.own = bytes.own.saturating_add(passed.with_slot);
                bytes.common = bytes.common.saturating_add(passed.common);
                bytes.shared = bytes.shared.saturating_add(passed.shared);
            }
            Kind::Volume => file.used = file.used.saturating_add(passed.used),
            Kind::OfTemplate | Kind::Arena => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use onefold_block::random::SeededRandom;

    use super::super::StateBytes;
    use super::*;

    const PLACES: u64 = 64;

    fn files(kinds: &[Kind]) -> Vec<CountedFile> {
        let file = |kind: &Kind| CountedFile {
            path: PathBuf::new(),
            kind: *kind,
            length: 0,
            template: None,
            bytes: StateBytes::default(),
            held: 0,
            used: 0,
            is_whole: true,
        };
        kinds.iter().map(file).collect()
    }

    fn swept(mut extents: Vec<PlacedExtent>, kinds: &[Kind], tells: bool, open_max: usize) -> (Vec<CountedFile>, u64) {
        let mut files = files(kinds);
        extents.sort_by_key(|extent| extent.place);
        let mut sweep = Sweep { open_max, ..Sweep::new(tells) };
        extents.into_iter().for_each(|extent| sweep.add(extent.row(), &mut files));
        let taken = sweep.finish(&mut files);
        (files, taken)
    }

    /// The counts of each file, computed place by place.
    fn expected(extents: &[PlacedExtent], kinds: &[Kind], tells: bool) -> Vec<CountedFile> {
        let mut files = files(kinds);
        for place in 0..PLACES {
            let here = |kinds: &[Kind]| {
                let over = extents.iter().filter(|extent| (extent.place..extent.end()).contains(&place));
                over.filter(|extent| kinds.contains(&extent.kind)).count()
            };
            let images = here(&[Kind::Image, Kind::OfTemplate]);
            for extent in extents.iter().filter(|extent| (extent.place..extent.end()).contains(&place)) {
                let file = &mut files[extent.file];
                let counter = match extent.kind {
                    Kind::Volume if images > 0 => &mut file.used,
                    Kind::Image if here(&[Kind::Volume]) > 0 => &mut file.bytes.common,
                    Kind::Image if images > 1 => &mut file.bytes.shared,
                    Kind::Image if here(&[Kind::Arena]) == 0 && tells && extent.is_told_shared => {
                        &mut file.bytes.shared
                    }
                    Kind::Image => &mut file.bytes.own,
                    _ => continue,
                };
                *counter += 1;
            }
        }
        files
    }

    #[test]
    fn a_sweep_counts_what_a_look_at_each_place_does() {
        let kinds = [Kind::Image, Kind::Image, Kind::Image, Kind::Volume, Kind::Volume, Kind::Arena];
        for seed in 0..300 {
            let random = SeededRandom::new(seed);
            let draw = |below: u64| random.next_u64() % below;
            let extents: Vec<PlacedExtent> = (0..draw(20))
                .map(|_| {
                    let file = usize::try_from(draw(kinds.len() as u64)).unwrap();
                    let place = draw(PLACES);
                    let of_template = kinds[file] == Kind::Image && draw(4) == 0;
                    PlacedExtent {
                        place,
                        length: draw(PLACES - place) + 1,
                        file,
                        kind: if of_template { Kind::OfTemplate } else { kinds[file] },
                        is_told_shared: draw(2) == 0,
                    }
                })
                .collect();
            let tells = draw(2) == 0;
            let facts = |file: &CountedFile| (file.bytes, file.used);
            let (files, taken) = swept(extents.clone(), &kinds, tells, 100);
            let found: Vec<_> = files.iter().map(facts).collect();
            let wanted: Vec<_> = expected(&extents, &kinds, tells).iter().map(facts).collect();
            assert_eq!(found, wanted, "seed {seed}: {extents:?}");
            let is_taken = |place: &u64| extents.iter().any(|extent| (extent.place..extent.end()).contains(place));
            assert_eq!(taken, (0..PLACES).filter(is_taken).count() as u64, "seed {seed}: {extents:?}");
        }
    }

    #[test]
    fn rows_keep_what_an_extent_is() {
        for kind in [Kind::Image, Kind::OfTemplate, Kind::Volume, Kind::Arena] {
            let extent = PlacedExtent { place: u64::MAX, length: 7, file: 1 << 32, kind, is_told_shared: true };
            assert_eq!(PlacedExtent::of_row(extent.row()), extent);
            let other = PlacedExtent { is_told_shared: false, file: 0, ..extent };
            assert_eq!(PlacedExtent::of_row(other.row()), other);
        }
    }

    /// A map with wrong lengths and places overflows nothing.
    #[test]
    fn extents_past_the_last_place_are_counted_as_far_as_places_go() {
        let extent = |place, length| PlacedExtent { place, length, file: 0, kind: Kind::Image, is_told_shared: false };
        let (files, taken) =
            swept(vec![extent(u64::MAX - 5, u64::MAX), extent(0, u64::MAX)], &[Kind::Image], true, 100);
        assert_eq!(taken, u64::MAX);
        assert_eq!((files[0].bytes.shared, files[0].bytes.own), (10, u64::MAX - 5));
    }

    #[test]
    fn extents_over_one_place_are_bounded() {
        let extent = PlacedExtent { place: 10, length: 5, file: 0, kind: Kind::Image, is_told_shared: false };
        let (files, taken) = swept(vec![extent; 9], &[Kind::Image], true, 4);
        assert_eq!(taken, 5);
        assert_eq!((files[0].bytes.shared, files[0].bytes.unplaced), (20, 25));
    }
}
