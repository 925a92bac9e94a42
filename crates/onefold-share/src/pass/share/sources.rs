//! Sources of sharing: arena files, images, and a file that is one hole.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, FileHandle, ShareError, Substrate, is_gone};

use super::Sharer;
use super::mapped_file::MappedFile;
use crate::extents::{Extents, ScatteredExtents};
use crate::format::FileNo;
use crate::pass::PassError;
use crate::pass::runs::{FilePlace, Outcome, Source};

/// Maximum number of arena maps that are kept at once: 6 MiB each if every slot is an extent of its own.
const ARENAS_MAX: usize = 8;
/// Maximum number of images that are open as sources at once.
const FILES_MAX: usize = 16;

/// Sources of sharing.
pub(super) struct Sources<S: Substrate> {
    /// A file that is one hole.
    zeros: S::File,
    pub(super) arenas: BTreeMap<u32, MappedFile<S>>,
    /// Images, or the outcome of runs from files that this pass may not use as sources.
    pub(super) files: BTreeMap<FileNo, Result<SourceFile<S>, Outcome>>,
    /// Maps of images that were sources of earlier targets, and may be sources again.
    maps: BTreeMap<FileHandle, ScatteredExtents>,
}

/// An image that others share with.
pub(super) struct SourceFile<S: Substrate> {
    pub(super) file: Rc<S::File>,
    /// Places of its blocks. Targets ask for them in any order.
    pub(super) map: ScatteredExtents,
    /// Its handle, which identifies it whatever its number is.
    pub(super) handle: FileHandle,
    /// Number of its whole blocks.
    pub(super) blocks: u64,
}

impl<S: Substrate> Sources<S> {
    pub(super) fn new(zeros: S::File) -> Sources<S> {
        Sources { zeros, arenas: BTreeMap::new(), files: BTreeMap::new(), maps: BTreeMap::new() }
    }

    /// Returns the file that is one hole.
    pub(super) fn zeros(&self) -> &S::File {
        &self.zeros
    }

    /// Returns the file of a source, and the offset in it, in bytes. The source has to be loaded.
    pub(super) fn place(&self, source: Source) -> (&S::File, u64) {
        match source {
            Source::Zeros => (&self.zeros, 0),
            Source::Slot(slot) => (&self.arenas[&slot.arena()].file, slot.index() * BLOCK_BYTES_U64),
            Source::File(FilePlace { file, block }) => {
                let file = self.file(file).expect("it was loaded with the run");
                (&file.file, block.0 * BLOCK_BYTES_U64)
            }
        }
    }

    /// Returns an image that was loaded as a source.
    pub(super) fn file(&self, number: FileNo) -> Option<&SourceFile<S>> {
        self.files.get(&number)?.as_ref().ok()
    }

    /// Returns the image of a source and the offset in it, in bytes, if the source is in an image.
    pub(super) fn image(&mut self, source: Source) -> Option<(&mut SourceFile<S>, u64)> {
        let Source::File(FilePlace { file, block }) = source else { return None };
        let file = self.files.get_mut(&file)?.as_mut().ok()?;
        Some((file, block.0 * BLOCK_BYTES_U64))
    }

    /// Closes all images: each is opened again for the next target. Their maps are kept, except that of the last
    /// target.
    pub(super) fn close_files(&mut self, target: &FileHandle) {
        let files = std::mem::take(&mut self.files).into_values().flatten();
        self.maps.extend(files.map(|SourceFile { handle, map, .. }| (handle, map)));
        self.maps.remove(target);
        while self.maps.len() > FILES_MAX {
            self.maps.pop_first();
        }
    }

    /// Takes note that a range of a file, in bytes, lies elsewhere now, or has others that refer to it. Where it is no
    /// source of the target that is on, nothing is remembered of it.
    pub(super) fn renew_map(&mut self, substrate: &S, handle: &FileHandle, from: u64, end: u64) {
        self.maps.remove(handle);
        let files = self.files.values_mut().filter_map(|file| file.as_mut().ok());
        for SourceFile { file, map, .. } in files.filter(|file| file.handle == *handle) {
            map.renew(substrate, file, from, end);
        }
    }
}

impl<S: Substrate> Sharer<'_, '_, '_, S> {
    pub(super) fn load_arena(&mut self, number: u32) -> Result<(), PassError> {
        if self.sources.arenas.contains_key(&number) {
            return Ok(());
        }
        if self.sources.arenas.len() == ARENAS_MAX {
            // Gathered runs may refer to the files that are closed.
            self.share_gathered()?;
            self.sources.arenas.clear();
        }
        if let Some(file) = self.state.open_arena(number, Access::Read)? {
            let map = Extents::load(self.state.substrate(), &file)?;
            self.sources.arenas.insert(number, MappedFile { file: Rc::new(file), map });
        }
        Ok(())
    }

    /// Opens an image as a source. Returns the outcome of runs from it, if it cannot be a source.
    pub(super) fn load_file(&mut self, number: FileNo) -> Result<Result<(), Outcome>, PassError> {
        if !self.sources.files.contains_key(&number) {
            if self.sources.files.len() == FILES_MAX {
                self.sources.files.pop_first();
            }
            let opened = self.open_source(number)?;
            self.sources.files.insert(number, opened);
        }
        Ok(self.sources.files[&number].as_ref().map(drop).map_err(|outcome| *outcome))
    }

    fn open_source(&mut self, number: FileNo) -> Result<Result<SourceFile<S>, Outcome>, PassError> {
        // For a file with two numbers, the path of the first one decides about the selection: that path is opened.
        let number = self.images.first_number(number)?;
        // It may have been opted out since it was first asked for.
        self.images.look_again(number);
        if !self.images.is_admitted(number)? {
            return Ok(Err(Outcome::Barred));
        }
        let substrate = self.state.substrate();
        let opened = self.images.open(number, Access::Read).and_then(|file| {
            let stat = substrate.stat(&file)?;
            let map = self.sources.maps.remove(&stat.handle).unwrap_or_default();
            Ok(SourceFile { file: Rc::new(file), map, handle: stat.handle, blocks: stat.length / BLOCK_BYTES_U64 })
        });
        Ok(opened.map_err(|why: io::Error| {
            if is_gone(&why) {
                return Outcome::Barred;
            }
            self.trouble.note(self.images.path(number), ShareError::Io(why));
            Outcome::Refused
        }))
    }
}
