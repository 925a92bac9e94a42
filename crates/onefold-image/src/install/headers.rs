//! The headers of an image's chunks. An installation needs them twice: it examines all of them before it touches the
//! target, and then follows each. Those that fit in memory are read once, and in few reads.

use std::collections::HashMap;

use onefold_disk::OnProgress;

use super::{InstallError, check_interrupt};
use crate::UnitName;
use crate::archive::{ArchiveError, Headers, WantedUnit};
use crate::format::manifest::Manifest;
use crate::image_source::ImageSource;

/// Chunks whose headers are read at once. They lie in their packs in runs of their own.
const BATCH_CHUNKS: usize = 256;

/// The headers of an image.
pub(super) struct ImageHeaders<'a> {
    pub(super) source: &'a dyn ImageSource,
    /// Plain bytes of headers.
    kept: HashMap<UnitName, Box<[u8]>>,
}

impl<'a> ImageHeaders<'a> {
    /// Reads the first headers of an image, up to about `bytes_max` bytes of memory. As much again holds stored bytes
    /// meanwhile.
    ///
    /// # Errors
    /// When one is lost or damaged, the store fails, or the user has interrupted the work.
    pub(super) fn read(
        source: &'a dyn ImageSource,
        manifest: &Manifest,
        bytes_max: u64,
        progress: OnProgress<'_>,
    ) -> Result<ImageHeaders<'a>, InstallError> {
        let (mut kept, mut bytes) = (HashMap::new(), 0);
        for names in manifest.chunks.chunks(BATCH_CHUNKS) {
            if bytes >= bytes_max {
                break;
            }
            check_interrupt(progress, manifest)?;
            let wanted: Vec<WantedUnit> =
                names.iter().map(|name| WantedUnit { name: *name, plain_bytes: None }).collect();
            source.read(&wanted, bytes_max, &mut |index, plain| {
                if bytes < bytes_max {
                    bytes += plain.len() as u64;
                    kept.insert(names[index], plain.into());
                }
            })?;
        }
        Ok(ImageHeaders { source, kept })
    }

    /// Returns the headers of chunks, from memory if they are there.
    ///
    /// # Errors
    /// When one is lost or damaged, or the store fails.
    pub(super) fn of(&self, names: &[UnitName]) -> Result<Headers, ArchiveError> {
        let kept: Option<Vec<Vec<u8>>> = names.iter().map(|name| Some(self.kept.get(name)?.to_vec())).collect();
        match kept {
            Some(plain) => Ok(Headers::of(names, plain)),
            None => self.source.headers(names),
        }
    }
}
