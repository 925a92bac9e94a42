//! Records of images between two runs: an image that has not changed is not examined again.
//!
//! The claims of a guest about its files are kept in the state folder (`guests/NUMBER`), with the stamp that the image
//! had before. Claims are kept as the guest makes them, and become numbers with the key of each run. Only whole
//! searches are kept: the result of a search with `--since`, or of an experimental reading, depends on more than the
//! image.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use onefold_block::Timestamp;
use onefold_substrate::Substrate;

use super::identify::{Examination, Identification, IdentifyError};
use super::report::ExaminationReport;
use super::tier::Tier;
use super::{FilesOptions, ReadScope};
use crate::format::FileNo;
use crate::format::guest::{GuestHead, KeptGuest};
use crate::format::stamp::Stamp;
use crate::scan::{Age, ListedFile};
use crate::selection::Selection;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// The version of what this program finds in images. To be raised with each change of the guests' readers, or of what
/// is claimed of files, that changes what an image is found to have: records of other versions are not used.
const EXAMINATION_VERSION: u32 = 3;

/// How a run keeps records for later runs.
pub(super) struct KeepOptions {
    /// The tiers of the search, a bit for each number of a tier.
    tiers: u8,
    /// Number that stands for the way this program examines images, and makes numbers of paths and probes. It differs
    /// between versions that do so differently.
    hashing: u64,
    /// When the run began, by the clock that gives files their times.
    now: Timestamp,
    /// Whether the run is a dry run. A dry run uses kept records, and writes none.
    is_dry_run: bool,
    /// Maximum length of an image's record, in bytes.
    bytes_max: usize,
}

/// What an earlier run kept of an image that may be examined ahead of its turn.
pub(super) enum EarlierGuest {
    /// All that this run needs.
    Unchanged,
    /// What may be known still, if anything.
    Changed(Option<KeptGuest>),
}

/// A record has this part of the memory of a run. Its bytes take some times their length while they are read or made.
const PART_OF_MEMORY: usize = 16;

impl KeepOptions {
    /// Returns how a run keeps the claims of guests; `None` if it does not.
    ///
    /// # Errors
    /// Errors of the state folder.
    pub(super) fn of<S: Substrate>(
        state: &State<'_, S>,
        options: &FilesOptions<'_>,
    ) -> Result<Option<KeepOptions>, StateError> {
        if options.since.is_some() || options.reading != ReadScope::Probes {
            return Ok(None);
        }
        let tiers = options.tiers.iter().fold(0, |bits, tier| bits | 1 << tier.number());
        let (hashing, now) = (hashing_of(EXAMINATION_VERSION), state.now()?);
        let bytes_max = options.pass.memory_bytes / PART_OF_MEMORY;
        Ok(Some(KeepOptions { tiers, hashing, now, is_dry_run: options.pass.is_dry_run, bytes_max }))
    }

    /// Returns the maximum length of a record that is written, in bytes.
    pub(super) fn bytes_written_max(&self) -> usize {
        if self.is_dry_run { 0 } else { self.bytes_max }
    }

    /// Returns the maximum length of a record that is read, in bytes.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns when the run began, by the clock that gives files their times.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the tiers and the version that decide which records are used.
    pub(super) fn search(&self) -> (u8, u64) {
        (self.tiers, self.hashing)
    }

    /// Returns whether this search may use the record of an image that has this stamp. Reads only the head of the
    /// record.
    ///
    /// # Errors
    /// Errors of the state folder.
    pub(super) fn has_record<S: Substrate>(
        &self,
        state: &State<'_, S>,
        number: FileNo,
        stamp: &Stamp,
    ) -> Result<bool, StateError> {
        let mut has_record = false;
        let look = |head: &GuestHead| {
            has_record = self.is_alike(head) && head.stamp.as_ref() == Some(stamp);
            false
        };
        state.kept_guest(number, look, 0)?;
        Ok(has_record)
    }

    /// Returns what an earlier run of this kind kept of an image, where the image has another stamp now. Its head alone
    /// is read where it has this one.
    ///
    /// # Errors
    /// Those of the state folder.
    pub(super) fn kept_before<S: Substrate>(
        &self,
        state: &State<'_, S>,
        number: FileNo,
        stamp: &Stamp,
    ) -> Result<EarlierGuest, StateError> {
        let mut is_unchanged = false;
        let wanted = |head: &GuestHead| {
            is_unchanged = self.is_alike(head) && head.stamp.as_ref() == Some(stamp);
            self.is_alike(head) && !is_unchanged
        };
        let kept = state.kept_guest(number, wanted, self.bytes_max)?;
        Ok(if is_unchanged { EarlierGuest::Unchanged } else { EarlierGuest::Changed(kept) })
    }

    /// Adds the candidates of an image, from what is kept of it where it has not changed.
    ///
    /// # Errors
    /// See [`IdentifyError`]. No record is kept of an image that cannot be examined.
    pub(super) fn add<S: Substrate>(
        &self,
        state: &State<'_, S>,
        identifying: &mut Identification<'_>,
        listed: &ListedFile,
        rank: u32,
    ) -> Result<(), IdentifyError> {
        let kept = self.kept(state, listed.number).map_err(IdentifyError::Stopped)?;
        if let Some(guest) = &kept
            && guest.head.stamp == Some(Stamp::of(&listed.stat))
            && identifying.add_kept(state.substrate(), listed, rank, guest)?
        {
            return Ok(());
        }
        let examined = identifying.add_image(state.substrate(), listed, rank, kept);
        self.note(state, identifying, listed.number, examined)
    }

    /// Returns the record that an earlier run of this kind kept of an image.
    ///
    /// # Errors
    /// Errors of the state folder.
    pub(super) fn kept<S: Substrate>(
        &self,
        state: &State<'_, S>,
        number: FileNo,
    ) -> Result<Option<KeptGuest>, StateError> {
        state.kept_guest(number, |head| self.is_alike(head), self.bytes_max)
    }

    /// Keeps the result of an examination as the record of its image.
    ///
    /// # Errors
    /// That of the examination, and those of the state folder. No record is kept of an image that cannot be examined.
    pub(super) fn note<S: Substrate>(
        &self,
        state: &State<'_, S>,
        identifying: &Identification<'_>,
        number: FileNo,
        examined: Result<Examination, IdentifyError>,
    ) -> Result<(), IdentifyError> {
        if self.is_dry_run {
            return examined.map(drop);
        }
        match examined {
            Ok(examination) => self.keep(state, identifying, number, examination),
            Err(error) => state.forget_guest(number).map_err(IdentifyError::Stopped).and(Err(error)),
        }
    }

    fn is_alike(&self, head: &GuestHead) -> bool {
        (head.tiers, head.hashing) == (self.tiers, self.hashing)
    }

    /// Writes the record of an image.
    fn keep<S: Substrate>(
        &self,
        state: &State<'_, S>,
        identifying: &Identification<'_>,
        number: FileNo,
        examination: Examination,
    ) -> Result<(), IdentifyError> {
        let stamp = Stamp::of(&examination.stat);
        // A change in the same tick of the clock would not show.
        let is_settled = Age::of(&stamp, self.now) == Age::Settled;
        let kept = match examination.kept(&identifying.examined, &identifying.packages) {
            Some(mut guest) => {
                guest.head.stamp = is_settled.then_some(stamp);
                (guest.head.tiers, guest.head.hashing) = (self.tiers, self.hashing);
                state.keep_guest(number, &guest)
            }
            None => state.forget_guest(number),
        };
        kept.map_err(IdentifyError::Stopped)
    }

    /// Drops the records of images that are gone: those whose number belongs to no file any more, and those of the
    /// selection that were not found.
    ///
    /// # Errors
    /// Errors of the state folder.
    pub(super) fn sweep<S: Substrate>(
        &self,
        state: &State<'_, S>,
        marks: &Marks,
        selection: &Selection<'_>,
        listed: &[ListedFile],
    ) -> Result<(), StateError> {
        if self.is_dry_run {
            return Ok(());
        }
        let found: BTreeSet<FileNo> = listed.iter().map(|file| file.number).collect();
        let is_gone = |number: &FileNo| match marks.get(*number) {
            Some(mark) => !found.contains(number) && (mark.is_forgotten() || marks.is_selected(*number, selection)),
            None => true,
        };
        state.kept_guests()?.into_iter().filter(is_gone).try_for_each(|number| state.forget_guest(number))
    }
}

/// Returns the packages in the record of an image that has not changed since; `None` if not all of them are known.
///
/// # Errors
/// Errors of the state folder.
pub(super) fn known_packages<S: Substrate>(
    state: &State<'_, S>,
    listed: &ListedFile,
    bytes_max: usize,
) -> Result<Option<KeptGuest>, StateError> {
    let (hashing, stamp) = (hashing_of(EXAMINATION_VERSION), Stamp::of(&listed.stat));
    let has_packaged = |tiers: u8| [Tier::Digest, Tier::Copied].iter().any(|tier| tiers & 1 << tier.number() != 0);
    let wanted = |head: &GuestHead| {
        let is_whole = ExaminationReport::of_counts(&head.counts).surplus_files == 0;
        head.hashing == hashing && head.stamp == Some(stamp) && has_packaged(head.tiers) && is_whole
    };
    state.kept_guest(listed.number, wanted, bytes_max)
}

/// Returns the number of a version of the examination, by the hash that makes numbers of paths and probes.
fn hashing_of(version: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (version, &b"/var/lib/dpkg/status"[..]).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_other_tiers_and_of_other_versions_are_not_used() {
        let hashing = hashing_of(EXAMINATION_VERSION);
        let keeping = KeepOptions { tiers: 0b10, hashing, now: Timestamp::default(), is_dry_run: false, bytes_max: 0 };
        let is_alike = |tiers, hashing| keeping.is_alike(&GuestHead { tiers, hashing, ..GuestHead::default() });
        assert!(is_alike(0b10, hashing));
        assert!(!is_alike(0b110, hashing));
        assert!(!is_alike(0b10, hashing_of(EXAMINATION_VERSION + 1)));
    }
}
