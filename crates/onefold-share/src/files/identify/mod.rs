//! Step 1 of the paper: which files an image has, by its package databases, and where they lie.
//!
//! Nothing is mounted. No content of a packaged file is read, and three blocks at most of any other. All that a guest
//! says is a claim: what is wrong costs a comparison or savings. What one image may claim is bounded by what it takes
//! up.

mod claims;
mod common_volume;
mod databases;
mod disk;
mod error;
mod extents;
mod kept;
mod known;
mod open;
mod packaged;
mod pieces;
mod shared;
mod since;
mod systems;
#[cfg(test)]
mod tests;
mod unpackaged;
mod watched;
mod whole;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use onefold_block::BLOCK_BYTES_U64;
use onefold_disk::{CachedDisk, Disk};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{FileKind, FileStat};
use onefold_guest::guest::Guest;
use onefold_guest::packages::{self, Digest, PackageDatabase};
use onefold_guest::tree::{GuestFile, PathId, PathSet};
use onefold_substrate::{FileStat as HostStat, Substrate};

use self::claims::{Circle, ClaimKey, Claims};
use self::databases::DatabaseStamps;
pub(super) use self::databases::databases_of;
pub(super) use self::disk::SubstrateDisk;
pub(super) use self::error::IdentifyError;
pub(super) use self::kept::Examination;
use self::kept::{Recorder, kept_bytes_max};
use self::known::KnownFiles;
use self::open::{disk_of, open_listed};
pub(super) use self::packaged::{Packaged, PackagedVisit, each_packaged};
use self::pieces::Pieces;
use self::shared::SharedBlocks;
pub use self::since::{Since, Template, TemplateError};
use self::systems::{System, each_system};
use self::unpackaged::{probes, unpackaged};
use self::watched::{GuestReads, PacedDisk, WatchedDisk, read_bytes_max};
use self::whole::digest_of;
use super::Reading;
use super::join::Candidates;
use super::packages::PackageNames;
use super::report::Examined;
use super::tier::{Label, Tier};
use crate::format::guest::{KeptClaim, KeptFile, KeptGuest, PhasedPieces};
use crate::pace::ReadPace;
use crate::scan::ListedFile;
use crate::state::StateError;

/// Digests of one system that are looked at.
const DIGESTS_MAX: usize = 1_000_000;
/// Bytes of candidates of one image: so many times what it takes up, and some more. Files of a guest may share blocks,
/// and a hostile guest has a million files that share one long list of extents.
const BYTES_FOR_LENGTH_MAX: u64 = 4;
const BYTES_MIN: u64 = 64 << 20;

/// Takes candidates of images, one image after the other.
pub(super) struct Identifying<'a> {
    pub(super) candidates: Candidates,
    pub(super) packages: PackageNames,
    pub(super) examined: Examined,
    /// By what files are believed equal.
    pub(super) tiers: &'a [Tier],
    /// What is read of candidates.
    pub(super) reading: Reading,
    /// Part of each content: nobody outside of this run can find two claims with one number.
    pub(super) key: ClaimKey,
    /// What came earlier is left out.
    pub(super) since: Option<&'a Since>,
    /// Images that were not made from the template, by their ranks.
    pub(super) strangers: BTreeSet<u32>,
    /// For the cache of a disk.
    pub(super) cache_bytes: usize,
    /// How many bytes of what a guest says are taken down for later runs; 0 for none.
    pub(super) kept_bytes_max: usize,
    /// Asked at each path, file and extent, and ends the work with an error.
    pub(super) go_on: &'a dyn Fn() -> Result<(), StateError>,
    /// Asked at each read of an image.
    pub(super) read_pace: ReadPace<'a>,
}

/// An image that is examined.
struct Image<'a> {
    rank: u32,
    circle: Circle<'a>,
    disk: &'a dyn Disk,
    /// How many bytes its files may still claim.
    bytes_left: u64,
    /// How many bytes of its files may still be read as a whole.
    read_left: u64,
    /// What of it shares with others on the host.
    shared: SharedBlocks,
    pieces: Pieces,
    /// What is kept of it for later runs.
    recorder: Recorder,
    /// What is known of its files from an earlier run.
    known: Option<KnownFiles>,
}

/// A file that belongs to a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OwnedFile {
    file: GuestFile,
    /// MD5 digest by the package database.
    digest: [u8; 16],
    /// The number of its package.
    package: u32,
    /// Whether that is one of the later ones.
    is_later: bool,
}

impl Identifying<'_> {
    /// Adds the candidates of an image; `rank` is the place of its number among those of all images, `kept` what an
    /// earlier run of this kind kept of it. Returns what was examined.
    ///
    /// # Errors
    /// As [`IdentifyError`] says. All but the last two are of this image alone.
    pub(super) fn add_image<S: Substrate>(
        &mut self,
        substrate: &S,
        listed: &ListedFile,
        rank: u32,
        kept: Option<KeptGuest>,
    ) -> Result<Examination, IdentifyError> {
        let (file, stat) = open_listed(substrate, listed)?;
        let circle = Circle::of(&listed.domain, substrate.refusal(&file).map_err(IdentifyError::File)?)?;
        let disk = disk_of(substrate, listed, &file, stat.length)?;
        let reads = GuestReads::new(self.read_pace, read_bytes_max(&stat));
        let paced = PacedDisk::new(&*disk, &reads);
        let cached = CachedDisk::new(&paced, self.cache_bytes);
        let bytes_left = claimed_bytes_max(&stat);
        let go_on = || (self.go_on)().map_err(IdentifyError::Stopped);
        let shared = SharedBlocks::load(substrate, &file, &go_on)?;
        let (pieces, known) = (Pieces::default(), None);
        let recorder = Recorder::new(kept_bytes_max(&stat, self.kept_bytes_max));
        let mut image =
            Image { rank, circle, disk: &paced, bytes_left, read_left: bytes_left, shared, pieces, recorder, known };
        let (before, refused_before) = (self.examined, self.packages.refused());
        let added = self.add_guest(&mut image, &WatchedDisk::new(&cached, &reads), kept);
        reads.check()?;
        let (has_packages, databases) = added?;
        // Readers skip what they cannot read. The next run may be able to.
        let recorder = if reads.have_failed() { Recorder::new(0) } else { image.recorder };
        Ok(Examination { stat, before, refused_before, has_packages, databases, recorder })
    }

    /// Adds the candidates of the guest on a disk. Returns whether it has packages, and the number of its databases.
    fn add_guest(
        &mut self,
        image: &mut Image<'_>,
        disk: &dyn Disk,
        kept: Option<KeptGuest>,
    ) -> Result<(bool, u64), IdentifyError> {
        let guest = Guest::open(disk)?;
        image.known = kept.map(|kept| self.known_files(&guest, &kept)).transpose()?.flatten();
        let (mut has_packages, mut databases) = (false, DatabaseStamps::default());
        each_system(&guest, &mut |system| {
            // Before the databases are read: a change meanwhile is seen by the next run.
            databases.add(&system.tree);
            if let Some(known) = &image.known {
                let packaged = known.owned(system.at);
                return self.add_system(image, system, &packaged);
            }
            // Files of no package are found whatever the database is.
            let (database, unread) = match packages::open(&system.tree) {
                Ok(database) => (database, None),
                Err(error) => (None, Some(error)),
            };
            has_packages |= database.is_some();
            let packaged = self.packaged_files(image, system, database.as_deref())?;
            self.add_system(image, system, &packaged)?;
            unread.map_or(Ok(()), |error| Err(error.into()))
        })?;
        if let Some(known) = &image.known {
            has_packages = known.has_packages;
            self.examined.packages = self.examined.packages.saturating_add(known.packages);
            self.examined.unchanged_databases += 1;
        }
        self.examined.images_with_packages += u64::from(has_packages);
        Ok((has_packages, databases.number()))
    }

    /// Adds the candidates of a system: the files of its packages, which are in order, and those of no package.
    fn add_system(
        &mut self,
        image: &mut Image<'_>,
        system: &System<'_>,
        packaged: &[OwnedFile],
    ) -> Result<(), IdentifyError> {
        if self.tiers.iter().any(|tier| matches!(tier, Tier::Digest | Tier::Copied)) {
            for OwnedFile { file, digest, package, .. } in packaged.iter().filter(|owned| owned.is_later) {
                if !self.add_file(image, system, *file, KeptClaim::Digest(*digest), *package)? {
                    return Ok(());
                }
            }
        }
        if self.tiers.iter().all(|tier| *tier == Tier::Digest) {
            return Ok(());
        }
        let files: Vec<GuestFile> = packaged.iter().map(|owned| owned.file).collect();
        let unpackaged = unpackaged(&system.tree, &files, DIGESTS_MAX, self.go_on).map_err(IdentifyError::Stopped)?;
        for (file, path) in unpackaged {
            let claim = KeptClaim::Path { path, probes: None };
            if !self.add_file(image, system, file, claim, PackageNames::OTHERS)? {
                break;
            }
        }
        Ok(())
    }

    /// Adds a file with what is claimed of it. Returns false where the image claims more than it may.
    fn add_file(
        &mut self,
        image: &mut Image<'_>,
        system: &System<'_>,
        file: GuestFile,
        claim: KeptClaim,
        package: u32,
    ) -> Result<bool, IdentifyError> {
        (self.go_on)().map_err(IdentifyError::Stopped)?;
        let Some(reader) = system.reader(file.system) else { return Ok(true) };
        let of_tree = system.tree.system(file.system);
        let stat = match of_tree.damage().skip(of_tree.stat(file.file)) {
            Ok(Some(stat)) if stat.kind == FileKind::Regular => stat,
            Ok(_) | Err(GuestError::NotFound) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        self.examined.files += 1;
        if matches!(claim, KeptClaim::Path { .. }) && self.since.is_some_and(|since| !since.has_file(&stat)) {
            self.examined.older_files += 1;
            return Ok(true);
        }
        image.pieces.clear();
        let mut described = described(system, file, claim, &stat);
        if stat.size_bytes == 0 {
            self.examined.empty_files += 1;
            image.recorder.push(described, package, &image.pieces.by_phase);
            return Ok(true);
        }
        let is_bounded = self.add_extents(image, of_tree, reader, file, stat.size_bytes)?;
        self.examined.misaligned_bytes = self.examined.misaligned_bytes.saturating_add(image.pieces.ragged_bytes);
        let key = self.key;
        let mut claims = Claims { key: &key, circle: image.circle, tiers: self.tiers, whole: None };
        if self.reading != Reading::Probes {
            let left = image.read_left.checked_sub(stat.size_bytes);
            let digest = match left {
                Some(_) => digest_of(of_tree, file, stat.size_bytes, self.go_on).map_err(IdentifyError::Stopped)?,
                None => None,
            };
            image.read_left = left.unwrap_or(image.read_left);
            if digest.is_some() {
                self.examined.digested_bytes = self.examined.digested_bytes.saturating_add(stat.size_bytes);
            }
            if self.reading == Reading::WholeFiles {
                // A file that cannot be read is equal to no other.
                let Some(digest) = digest else { return Ok(is_bounded) };
                claims.whole = Some(digest);
            }
        }
        let known = image.known.as_ref().and_then(|known| known.probes(&described));
        if let KeptClaim::Path { probes: number, .. } = &mut described.claim
            && image.pieces.phases().next().is_some()
            && claims.want_probes(stat.size_bytes)
        {
            *number = match known {
                Some(known) => Some(known),
                None => probes(of_tree, file, stat.size_bytes),
            };
        }
        self.add_rows(image.rank, &claims, package, (&described, &image.pieces.by_phase), &image.shared)?;
        image.recorder.push(described, package, &image.pieces.by_phase);
        self.examined.surplus_files += u64::from(!is_bounded);
        Ok(is_bounded)
    }

    /// Adds the rows of a file of the image with this rank.
    fn add_rows(
        &mut self,
        rank: u32,
        claims: &Claims<'_>,
        package: u32,
        (file, pieces): (&KeptFile, &PhasedPieces),
        shared: &SharedBlocks,
    ) -> Result<(), IdentifyError> {
        let blocks = file.size_bytes.div_ceil(BLOCK_BYTES_U64);
        for (tier, content) in claims.contents(file, pieces) {
            for (phase, pieces) in pieces.phases() {
                let label = Label { tier, package };
                let is_shared = shared.have_most_of(pieces);
                let added = self.candidates.add(rank, content, label, (phase, blocks), pieces, is_shared);
                if !added.map_err(IdentifyError::Temporary)? {
                    self.examined.surplus_files += 1;
                }
            }
        }
        Ok(())
    }

    /// Returns the files of all packages of a system that have a digest, in the order of the file systems; none where
    /// it has no database.
    fn packaged_files(
        &mut self,
        image: &Image<'_>,
        system: &System<'_>,
        database: Option<&dyn PackageDatabase>,
    ) -> Result<Vec<OwnedFile>, IdentifyError> {
        let Some(database) = database else { return Ok(Vec::new()) };
        let later = self.since.map(|since| since.later_packages(database));
        if later.as_ref().is_some_and(|later| later.is_stranger) {
            self.strangers.insert(image.rank);
        }
        let mut paths = PathSet::new();
        let mut listed: Vec<(PathId, [u8; 16], u32, bool)> = Vec::new();
        let are_all_packaged = self.tiers.iter().all(|tier| *tier == Tier::Digest);
        for (at, package) in database.packages().iter().enumerate() {
            let is_later = later.as_ref().is_none_or(|later| later.has(at));
            self.examined.packages += 1;
            self.examined.older_packages += u64::from(!is_later);
            if !is_later && are_all_packaged {
                continue;
            }
            let number = self.packages.number(package);
            let mut gone_on = Ok(());
            database.each_path(at, &mut |owned| {
                gone_on = (self.go_on)();
                if gone_on.is_err() || listed.len() >= DIGESTS_MAX {
                    return ControlFlow::Break(());
                }
                if let Some(Digest::Md5(digest)) = owned.digest
                    && let Some(path) = paths.add(owned.path)
                {
                    listed.push((path, digest, number, is_later));
                }
                ControlFlow::Continue(())
            });
            gone_on.map_err(IdentifyError::Stopped)?;
        }
        paths.resolve(&system.tree, database.problems());
        let with_file =
            |(path, digest, package, is_later)| Some(OwnedFile { file: paths.file(path)?, digest, package, is_later });
        let mut files: Vec<_> = listed.into_iter().filter_map(with_file).collect();
        // Several packages may have a file, and paths through links lead to it.
        files.sort_unstable();
        files.dedup_by_key(|owned| owned.file);
        Ok(files)
    }
}

/// Returns what is claimed of a file of a system, with what its file system records of it.
fn described(system: &System<'_>, file: GuestFile, claim: KeptClaim, stat: &FileStat) -> KeptFile {
    let FileStat { generation, size_bytes, modified, changed, created, .. } = *stat;
    let (tree, system, file) = (system.at, file.system.0, file.file.0);
    KeptFile { package: None, claim, tree, system, file, generation, size_bytes, modified, changed, created }
}

/// Returns how many bytes the files of an image may claim. A sparse image is as long as its owner likes: what it takes
/// up counts, if that is less.
fn claimed_bytes_max(stat: &HostStat) -> u64 {
    stat.length.min(stat.allocated).saturating_mul(BYTES_FOR_LENGTH_MAX).saturating_add(BYTES_MIN)
}
