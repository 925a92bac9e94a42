//! The contents of a common volume as candidates: the source of all images that have them.

use onefold_disk::{CachedDisk, Disk};
use onefold_guest::guest::Guest;
use onefold_guest::tree::Links;
use onefold_substrate::Substrate;

use super::claims::Circle;
use super::disk::SubstrateDisk;
use super::examine::Examiner;
use super::image_rows::ImageRows;
use super::kept::Recorder;
use super::limits::read_bytes_max;
use super::open::open_listed;
use super::shared::SharedBlocks;
use super::systems::each_system;
use super::watched::{GuestReads, PacedDisk, WatchedDisk};
use super::{Identification, IdentifyError};
use crate::files::tier::Tier;
use crate::format::guest::KeptClaim;
use crate::scan::ListedFile;

/// A content of a common volume.
pub(in crate::files) struct VolumeContent<'a> {
    pub(in crate::files) digest: [u8; 16],
    pub(in crate::files) length: u64,
    /// The path of its file in the volume.
    pub(in crate::files) path: &'a str,
}

impl Identification<'_> {
    /// Adds the contents of a common volume, which is the source of each of them; `rank` is the place of its number
    /// among those of all images. Its record is a claim, as those of guests are.
    ///
    /// # Errors
    /// See [`IdentifyError`].
    pub(in crate::files) fn add_volume<S: Substrate>(
        &mut self,
        substrate: &S,
        listed: &ListedFile,
        rank: u32,
        contents: &[VolumeContent<'_>],
    ) -> Result<(), IdentifyError> {
        if !self.search.tiers.contains(&Tier::Digest) {
            return Ok(());
        }
        let (file, stat) = open_listed(substrate, listed)?;
        let circle = Circle::of(&listed.domain, substrate.refusal(&file).map_err(IdentifyError::File)?)?;
        let reader = substrate.borrowed_reader(&file).ok_or(IdentifyError::Unreadable)?;
        let disk = SubstrateDisk::new(reader, stat.length);
        let reads = GuestReads::new(self.search.read_pace, read_bytes_max(&stat));
        let paced = PacedDisk::new(&disk, &reads);
        let cached = CachedDisk::new(&paced, self.search.cache_bytes);
        self.candidates.prefer(rank);
        let (shared, recorder) = (SharedBlocks::default(), Recorder::new(0));
        let (search, go_on) = (self.search, self.go_on);
        let mut rows = ImageRows { identifying: self, rank, circle, shared, recorder, packages: Vec::new() };
        let mut examiner = Examiner::new(&search, &paced, &stat, go_on, &mut rows);
        let added = add_contents(&mut examiner, &WatchedDisk::new(&cached, &reads), contents);
        let sums = examiner.sums;
        self.examined.add(&sums);
        reads.check().and(added)
    }
}

/// Adds the contents that the file system on a disk has.
fn add_contents(
    examiner: &mut Examiner<'_>,
    disk: &dyn Disk,
    contents: &[VolumeContent<'_>],
) -> Result<(), IdentifyError> {
    let guest = Guest::open(disk)?;
    each_system(&guest, &mut |system| {
        for content in contents {
            let Ok(found) = system.tree.find(content.path.as_bytes(), Links::Keep) else { continue };
            let is_whole = system.tree.stat(found.file).is_ok_and(|stat| stat.size_bytes == content.length);
            let claim = KeptClaim::Digest(content.digest);
            if is_whole && !examiner.file(system, found.file, claim, None)? {
                return Ok(());
            }
        }
        Ok(())
    })
}
