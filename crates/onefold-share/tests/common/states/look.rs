//! The states of all blocks by a look at the place of every block, beside those that are counted and explained.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_share::block_state::{BlockState, CountOptions, StateBytes, States, VolumeUse, count};
use onefold_share::explain::explain;
use onefold_substrate::{Access, Substrate};

use super::{BLOCKS, Block, CONTENTS, K, TEMPLATE, VOLUME, Walk};

impl<S: Substrate> Walk<'_, S> {
    /// Returns the place of each block of an image.
    pub(super) fn places(&self) -> BTreeMap<Block, u64> {
        let mut places = BTreeMap::new();
        for image in self.contents.keys() {
            let file = self.substrate.open(Path::new(image), Access::Read).unwrap();
            for block in 0..BLOCKS {
                let place = place(self.substrate, &file, block * K).unwrap_or_else(|| panic!("{image} {block}"));
                places.insert((image.clone(), block), place);
            }
        }
        places
    }

    /// Returns the state of each block, by its place and those of all others; and what is counted of the volume.
    pub(super) fn look(&self) -> (BTreeMap<Block, BlockState>, Option<VolumeUse>) {
        let places = self.places();
        let volume = self.has_attributes.then(|| self.substrate.open(Path::new(VOLUME), Access::Read).unwrap());
        let of_volume: BTreeSet<u64> = volume
            .iter()
            .flat_map(|volume| (0..CONTENTS).filter_map(|content| place(self.substrate, volume, content * K)))
            .collect();
        let state = |(block, at): (&Block, &u64)| {
            let of_template = places.get(&(TEMPLATE.to_owned(), block.1));
            let is_template = block.0 != TEMPLATE && of_template == Some(at);
            let others = places.iter().filter(|(other, place)| *other != block && *place == at).count();
            let state = match (is_template, of_volume.contains(at), others) {
                (true, ..) => BlockState::Template,
                (_, true, _) => BlockState::Common,
                (.., 1..) => BlockState::Shared,
                _ => BlockState::Own,
            };
            (block.clone(), state)
        };
        let states: BTreeMap<Block, BlockState> = places.iter().map(state).collect();
        (states.clone(), self.hold_against(&states))
    }

    /// Holds what is counted, and what is explained of one block, against states. Returns what is counted of the
    /// volume.
    fn hold_against(&self, states: &BTreeMap<Block, BlockState>) -> Option<VolumeUse> {
        let since = (!self.has_attributes).then_some(Path::new(TEMPLATE));
        let options = CountOptions { since, temporary_folder: Path::new("/var/tmp"), memory_bytes: 1 << 10 };
        let mut expected = BTreeMap::<PathBuf, StateBytes>::new();
        for ((image, _), state) in states {
            let bytes = expected.entry(image.into()).or_default();
            *match state {
                BlockState::Template => &mut bytes.template,
                BlockState::Own => &mut bytes.own,
                BlockState::Common => &mut bytes.common,
                BlockState::Shared => &mut bytes.shared,
            } += K;
        }
        let counted = || self.state(|state, _| count(state, &options).unwrap());
        let of_images = |counted: &States| -> BTreeMap<PathBuf, StateBytes> {
            counted.images.iter().map(|image| (image.path.clone(), image.bytes)).collect()
        };
        let mut found = counted();
        // A file system frees the blocks of a removed file in the background.
        for _ in 0..200 {
            if of_images(&found) == expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            (self.settle)();
            found = counted();
        }
        assert_eq!(of_images(&found), expected);
        for image in found.images.iter().filter(|image| image.path != Path::new(TEMPLATE)) {
            assert_eq!(image.template.as_deref(), Some(Path::new(TEMPLATE)), "{image:?}");
        }
        let at = usize::try_from(self.random.below(states.len() as u64)).unwrap();
        let ((image, block), expected) = states.iter().nth(at).unwrap();
        let explained = self.state(|state, _| {
            explain(self.substrate, Some(state), Path::new(image), block * K + 1, since).unwrap().state
        });
        assert_eq!(explained, Some(*expected), "block {block} of {image}");
        found.volumes.into_iter().next()
    }
}

/// Returns the place of a block that was written.
pub(super) fn place<S: Substrate>(substrate: &S, file: &S::File, offset: u64) -> Option<u64> {
    let extents = substrate.extents(file, offset).unwrap();
    let extent = extents.into_iter().find(|extent| extent.end() > offset)?;
    let place = extent.place.filter(|_| extent.offset <= offset && !extent.is_unwritten)?;
    Some(place + (offset - extent.offset))
}
