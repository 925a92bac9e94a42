//! Compares the target with the image before anything is written to a place: units that lie there already are neither
//! fetched nor written. So an installation over an earlier version takes what has changed, and one that was killed goes
//! on where it was, without notes beside the target.
//!
//! A unit is found only in its own place. Its bytes, as the device returns them, must have its name. No sector belongs
//! to two units, so nothing that the installation writes changes a unit that was found.
//!
//! The ends are read before they are wiped, and found units get their bytes there from memory. After a kill the ends
//! are wiped, and their units are fetched again.
//!
//! Places that cannot be read are written: that often mends a bad sector. After some failures nothing more is compared,
//! because a failing disk may take long for each.

use std::sync::atomic::{AtomicU32, Ordering};

use onefold_block::zero::is_zero;

use super::InstallError;
use super::ends::Ends;
use super::headers::ImageHeaders;
use super::target::Target;
use super::window::{Window, parts};
use crate::format::chunk_header::ChunkHeader;
use crate::format::manifest::Manifest;
use crate::image_source::WantedUnits;
use crate::placed::check;

/// Number of units that are looked at to decide whether a comparison is worth reading the target. If a share of `f` of
/// all units is there, none of these is with a chance of (1 - f)^64. So at most 0.6 % of an image is fetched for
/// nothing on average, at the worst share of 1.5 %.
const SAMPLES: usize = 64;
/// Number of failed reads after which nothing more is compared.
const FAILURES_MAX: u32 = 16;
/// Zeros that are read at once.
const ZEROS_READ: usize = 256 << 10;

/// Fails if the user has interrupted the work.
pub(super) type Poll<'p> = dyn Fn() -> Result<(), InstallError> + 'p;

/// The comparison of a target with an image, shared by all threads.
pub(super) struct Comparison<'a> {
    headers: &'a ImageHeaders<'a>,
    manifest: &'a Manifest,
    target: &'a dyn Target,
    ends: &'a Ends,
    failures: AtomicU32,
}

impl<'a> Comparison<'a> {
    /// Returns the comparison of a target whose ends were remembered.
    pub(super) fn new(
        headers: &'a ImageHeaders<'a>,
        manifest: &'a Manifest,
        target: &'a dyn Target,
        ends: &'a Ends,
    ) -> Comparison<'a> {
        Comparison { headers, manifest, target, ends, failures: AtomicU32::new(0) }
    }

    /// Returns whether the target seems to have units of the image: one of some units from all of the disk is in its
    /// place. An image of zeros alone is always compared.
    ///
    /// # Errors
    /// When a header is invalid, and the first of `poll`, which is called before each unit.
    pub(super) fn is_worthwhile(&self, poll: &Poll<'_>) -> Result<bool, InstallError> {
        if self.manifest.totals.data_bytes == 0 {
            return Ok(true);
        }
        let chunks = &self.manifest.chunks;
        let kept: Vec<_> = chunks.iter().filter(|name| self.headers.kept.contains_key(*name)).collect();
        let step = kept.len().div_ceil(SAMPLES).max(1);
        let of_chunk = SAMPLES.div_ceil(kept.len().max(1));
        for name in kept.into_iter().step_by(step) {
            let headers = self.headers.of(std::slice::from_ref(name))?;
            let header = headers.get(0)?;
            check(name, &header, self.manifest.size_bytes)?;
            let step = header.units.len().div_ceil(of_chunk).max(1);
            for unit in header.units.chunks(step).map(|units| &units[units.len() / 2]) {
                poll()?;
                let units = std::slice::from_ref(unit);
                let window = self.read(Window::new(units, self.manifest.size_bytes));
                if window.is_some_and(|window| self.is_found(&window, 0)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the units of a chunk that are not in their places, with the number of bytes that are. The parts of found
    /// units that belong to the ends are kept for them.
    ///
    /// # Errors
    /// The first of `poll`, which is called before each window.
    pub(super) fn lacking(
        &self,
        header: &ChunkHeader,
        window_bytes: u64,
        poll: &Poll<'_>,
    ) -> Result<(WantedUnits, u64), InstallError> {
        let mut is_wanted = Vec::with_capacity(header.units.len());
        let mut found_bytes = 0;
        for units in parts(&header.units, window_bytes) {
            poll()?;
            let window = self.read(Window::new(units, self.manifest.size_bytes));
            for (index, unit) in units.iter().enumerate() {
                let found = window.as_ref().filter(|window| self.is_found(window, index));
                is_wanted.push(found.is_none());
                if let Some(window) = found {
                    found_bytes += u64::from(unit.plain_bytes);
                    window.runs_of(index).for_each(|run| {
                        self.ends.keep(run.offset, run.bytes);
                    });
                }
            }
        }
        Ok((WantedUnits::Some(is_wanted), found_bytes))
    }

    /// Returns how many of the first bytes of a range of the target read as zeros now, in steps of 256 KiB. The rest is
    /// not read.
    pub(super) fn zeros(&self, offset: u64, length_bytes: u64) -> u64 {
        let mut buffer = vec![0; usize::try_from(length_bytes).unwrap_or(usize::MAX).min(ZEROS_READ)];
        let mut done = 0;
        while done < length_bytes && self.is_going_on() {
            let length = usize::try_from(length_bytes - done).unwrap_or(usize::MAX).min(buffer.len());
            let into = &mut buffer[..length];
            if self.target.read(offset + done, into).is_err() {
                self.failures.fetch_add(1, Ordering::Relaxed);
                break;
            }
            if !is_zero(into) {
                break;
            }
            done += length as u64;
        }
        done
    }

    /// Fills a window from the target; `None` if that fails.
    fn read<'w>(&self, mut window: Window<'w>) -> Option<Window<'w>> {
        if !self.is_going_on() {
            return None;
        }
        let read = window.read(|offset, into| self.ends.read_former(self.target, offset, into));
        if read.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        read.ok().map(|()| window)
    }

    /// Returns whether few reads have failed so far.
    pub(super) fn is_going_on(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < FAILURES_MAX
    }

    fn is_found(&self, window: &Window<'_>, unit: usize) -> bool {
        let mut plain = Vec::new();
        window.collect(unit, &mut plain);
        self.headers.source.key().name(&plain) == window.units[unit].name
    }
}
