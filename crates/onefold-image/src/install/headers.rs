//! The headers of an image's chunks. An installation needs them twice: it examines all of them before it touches the
//! target, and then follows each. Those that fit in memory are read once, and in few reads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_disk::OnProgress;
use parking_lot::Mutex;

use super::threads::on_threads;
use super::{InstallError, check_interrupt};
use crate::UnitName;
use crate::archive::{ArchiveError, Headers};
use crate::format::manifest::Manifest;
use crate::image_source::ImageSource;

/// Number of chunks whose headers are read at once. A writer puts that many headers side by side into a pack. The user
/// can interrupt the work between two batches, and headers in packs of many captures take a request each.
const BATCH_CHUNKS: usize = 64;
/// Memory that a kept header takes beside its bytes: an entry of a hash table, which is there twice while it grows, and
/// the overhead of an allocation.
const HEADER_COST_BYTES: u64 = 128;

/// The headers of an image.
pub(super) struct ImageHeaders<'a> {
    pub(super) source: &'a dyn ImageSource,
    /// Plain bytes of headers.
    pub(super) kept: HashMap<UnitName, Box<[u8]>>,
}

impl<'a> ImageHeaders<'a> {
    /// Reads the first headers of an image in several threads, until they take `bytes_max` bytes of memory. The threads
    /// need the same amount again for stored bytes.
    ///
    /// # Errors
    /// When one is lost or damaged, the store fails, or the user has interrupted the work.
    pub(super) fn read(
        source: &'a dyn ImageSource,
        manifest: &Manifest,
        bytes_max: u64,
        threads: usize,
        progress: OnProgress<'_>,
    ) -> Result<ImageHeaders<'a>, InstallError> {
        let (kept, bytes) = (Mutex::new(HashMap::new()), AtomicU64::new(0));
        let batches: Vec<&[UnitName]> = manifest.chunks.chunks(BATCH_CHUNKS).collect();
        on_threads(threads, batches.len(), &|at, _| {
            if bytes.load(Ordering::Relaxed) >= bytes_max {
                return Ok(());
            }
            check_interrupt(progress, manifest)?;
            let names = batches[at];
            source.read_headers(names, bytes_max / threads as u64, &mut |index, plain| {
                let cost_bytes = plain.len() as u64 + HEADER_COST_BYTES;
                if bytes.fetch_add(cost_bytes, Ordering::Relaxed) + cost_bytes <= bytes_max {
                    kept.lock().insert(names[index], plain.into());
                }
            })?;
            Ok(())
        })?;
        Ok(ImageHeaders { source, kept: kept.into_inner() })
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
