//! The contents of a common volume as candidates: the source of all images that have them.

use onefold_disk::{CachedDisk, Disk};
use onefold_guest::guest::Guest;
use onefold_guest::tree::Links;
use onefold_substrate::Substrate;

use super::disk::SubstrateDisk;
use super::kept::Recorder;
use super::open::open_listed;
use super::pieces::Pieces;
use super::shared::SharedBlocks;
use super::systems::each_system;
use super::watched::{GuestReads, PacedDisk, WatchedDisk, read_bytes_max};
use super::{Circle, IdentifyError, Identifying, Image, claimed_bytes_max};
use crate::files::common::Contents;
use crate::files::packages::PackageNames;
use crate::files::tier::Tier;
use crate::format::guest::KeptClaim;
use crate::scan::ListedFile;

impl Identifying<'_> {
    /// Adds the contents of a common volume, which is the source of each of them; `rank` is the place of its number
    /// among those of all images. Its record is a claim as those of guests.
    ///
    /// # Errors
    /// As [`IdentifyError`] says.
    pub(in crate::files) fn add_volume<S: Substrate>(
        &mut self,
        substrate: &S,
        listed: &ListedFile,
        rank: u32,
        contents: &Contents,
    ) -> Result<(), IdentifyError> {
        if !self.tiers.contains(&Tier::Digest) {
            return Ok(());
        }
        let (file, stat) = open_listed(substrate, listed)?;
        let circle = Circle::of(&listed.domain, substrate.refusal(&file).map_err(IdentifyError::File)?)?;
        let reader = substrate.borrowed_reader(&file).ok_or(IdentifyError::Unreadable)?;
        let disk = SubstrateDisk::new(reader, stat.length);
        let reads = GuestReads::new(self.read_pace, read_bytes_max(&stat));
        let paced = PacedDisk::new(&disk, &reads);
        let cached = CachedDisk::new(&paced, self.cache_bytes);
        self.candidates.prefer(rank);
        let bytes_left = claimed_bytes_max(&stat);
        let (shared, pieces, recorder) = (SharedBlocks::default(), Pieces::default(), Recorder::new(0));
        let mut image = Image {
            rank,
            circle,
            disk: &paced,
            bytes_left,
            read_left: bytes_left,
            shared,
            pieces,
            recorder,
            known: None,
        };
        let added = self.add_contents(&mut image, &WatchedDisk::new(&cached, &reads), contents);
        reads.check().and(added)
    }

    /// Adds those of the contents that the file system on a disk has.
    fn add_contents(
        &mut self,
        image: &mut Image<'_>,
        disk: &dyn Disk,
        contents: &Contents,
    ) -> Result<(), IdentifyError> {
        let guest = Guest::open(disk)?;
        each_system(&guest, &mut |system| {
            for ((digest, length), content) in contents.iter() {
                let Some(path) = content.paths.first() else { continue };
                let Ok(found) = system.tree.find(path.as_bytes(), Links::Keep) else { continue };
                let is_whole = system.tree.stat(found.file).is_ok_and(|stat| stat.size_bytes == *length);
                let claim = KeptClaim::Digest(*digest);
                if is_whole && !self.add_file(image, system, found.file, claim, PackageNames::OTHERS)? {
                    return Ok(());
                }
            }
            Ok(())
        })
    }
}
