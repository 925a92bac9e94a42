//! Counts the references to shared blocks: compares the maps of all known files with that of the arena.

use std::collections::BTreeMap;
use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, MappedExtent, Substrate};

use crate::extents::{Extents, each_extent};
use crate::format::Slot;
use crate::format::mark::Mark;
use crate::places::Places;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// Maximum number of arena files for counting: 16 MiB of counts, and 300 MiB of extents if each slot is an extent of
/// its own.
const ARENAS_MAX: usize = 16;

/// Numbers of shared blocks, by how often known files refer to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Slots that hold a block, by the number of blocks of files at its place.
    pub slots: BTreeMap<u32, u64>,
    /// Files that could not be mapped, and are not counted.
    pub unmapped: u64,
    /// Known files that are not where the last scan found them, and are not counted.
    pub absent: u64,
}

/// Counts references. `None` if there are too many shared blocks to count them in passing.
///
/// # Errors
/// Errors of the device.
pub fn count<S: Substrate>(state: &State<'_, S>, files: &Marks) -> Result<Option<References>, StateError> {
    let substrate = state.substrate();
    let arenas = state.arenas()?;
    if arenas.len() > ARENAS_MAX {
        return Ok(None);
    }
    let mut counts: BTreeMap<u64, Box<[u32]>> = BTreeMap::new();
    let in_file = usize::try_from(Slot::IN_FILE).expect("2^18");
    let mut extents = Vec::new();
    let mut references = References::default();
    for number in arenas {
        let Some(file) = state.open_arena(number, Access::Read)? else { continue };
        let Ok(map) = Extents::load(substrate, &file) else {
            references.unmapped += 1;
            continue;
        };
        counts.insert(u64::from(number), vec![0; in_file].into());
        // Offsets among all arena files.
        let first = u64::from(number) * Slot::IN_FILE * BLOCK_BYTES_U64;
        let written = map.iter().filter(|extent| !extent.is_unwritten);
        let moved = written.map(|extent| MappedExtent { offset: first + extent.offset, ..*extent });
        extents.extend(moved.filter_map(|extent| Some((extent.place?, extent))));
    }
    let slots: Vec<MappedExtent> = extents.iter().map(|(_, extent)| *extent).collect();
    let places = Places::new(extents);
    for mark in files.of_files() {
        let counted = each_extent_of(substrate, mark, |extent| {
            for (_, at) in places.within(extent) {
                let slot = at / BLOCK_BYTES_U64;
                let index = usize::try_from(slot % Slot::IN_FILE).expect("below 2^18");
                if let Some(count) = counts.get_mut(&(slot / Slot::IN_FILE)).and_then(|file| file.get_mut(index)) {
                    *count = count.saturating_add(1);
                }
            }
        });
        match counted {
            Ok(true) => {}
            Ok(false) => references.absent += 1,
            Err(error) if onefold_substrate::is_gone(&error) => references.absent += 1,
            Err(_) => references.unmapped += 1,
        }
    }
    for slot in slots.iter().flat_map(|extent| extent.offset / BLOCK_BYTES_U64..extent.end().div_ceil(BLOCK_BYTES_U64))
    {
        let index = usize::try_from(slot % Slot::IN_FILE).expect("below 2^18");
        let count = counts.get(&(slot / Slot::IN_FILE)).and_then(|file| file.get(index)).copied().unwrap_or(0);
        *references.slots.entry(count).or_default() += 1;
    }
    Ok(Some(references))
}

/// Calls `each` with the extents of a file, if it is where its mark says. Returns whether it is.
fn each_extent_of<S: Substrate>(substrate: &S, mark: &Mark, mut each: impl FnMut(&MappedExtent)) -> io::Result<bool> {
    let file = substrate.open(&mark.path, Access::Read)?;
    if substrate.stat(&file)?.handle != mark.handle {
        return Ok(false);
    }
    each_extent(substrate, &file, |extent| -> io::Result<()> {
        each(extent);
        Ok(())
    })?;
    Ok(true)
}
