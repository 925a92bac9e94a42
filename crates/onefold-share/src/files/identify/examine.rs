//! The examination of one image: the files of its guest, the claims about each, and their places.
//!
//! It needs only the disk, so that threads can make some examinations ahead of others (`ahead`).

use std::ops::ControlFlow;

use onefold_disk::{CacheMemory, CachedDisk, Disk};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{FileKind, FileStat};
use onefold_guest::guest::Guest;
use onefold_guest::packages::{self, Digest, PackageDatabase, PackageState};
use onefold_guest::tree::{GuestFile, PathId, PathSet};
use onefold_substrate::FileStat as HostStat;

use super::IdentifyError;
use super::claims::want_probes;
use super::databases::DatabaseStamps;
use super::known::KnownFiles;
use super::limits::{DIGESTS_MAX, claimed_bytes_max, read_bytes_max};
use super::owned::OwnedFile;
use super::pieces::Pieces;
use super::search::{Search, StopCheck};
use super::systems::{System, each_system};
use super::unpackaged::{probes, unpackaged};
use super::watched::{GuestReads, PacedDisk, WatchedDisk};
use super::whole::digest_of;
use crate::files::ReadScope;
use crate::files::packages::PackageNames;
use crate::files::report::ExaminationReport;
use crate::format::guest::{KeptClaim, KeptFile, KeptGuest, PhasedPieces};

/// Receives the findings of an examination, in order.
pub(super) trait Findings {
    /// Takes the name of the next package. Files name their package by its index in this list.
    ///
    /// # Errors
    /// Errors of the receiver. They end the examination, as do those of a file.
    fn package(&mut self, name: String) -> Result<(), IdentifyError>;

    /// Takes a file with its pieces, which it may consume. `whole` is the digest of its content, if files with other
    /// digests are not equal to it.
    ///
    /// # Errors
    /// Errors of the receiver.
    fn file(&mut self, file: KeptFile, whole: Option<[u8; 16]>, pieces: &mut PhasedPieces)
    -> Result<(), IdentifyError>;
}

/// Result of an examination beside its findings.
pub(super) struct ExaminationEnd {
    /// Sums over the examined part, even if that is not all.
    pub(super) sums: ExaminationReport,
    /// Whether the image was not made from the template.
    pub(super) is_stranger: bool,
    /// Facts about the guest, or why it was not examined completely.
    pub(super) facts: Result<GuestFacts, IdentifyError>,
}

/// Facts about an examined guest.
pub(super) struct GuestFacts {
    pub(super) has_packages: bool,
    /// A number for its volumes and the stamps of its package databases.
    pub(super) databases: u64,
    /// Whether some part of the image could not be read, which may pass.
    pub(super) has_unread: bool,
}

/// An examination of an image.
pub(super) struct Examiner<'e> {
    search: &'e Search<'e>,
    disk: &'e dyn Disk,
    go_on: StopCheck<'e>,
    findings: &'e mut dyn Findings,
    /// Bytes that its files may still claim.
    pub(super) bytes_left: u64,
    /// Bytes of its files that may still be read as a whole.
    read_left: u64,
    pub(super) pieces: Pieces,
    pub(super) sums: ExaminationReport,
    is_stranger: bool,
    /// Number of packages named so far.
    packages: u32,
    /// Facts about its files from an earlier run.
    known: Option<KnownFiles>,
}

/// The record of a path in a package database.
struct OwnedDigest {
    digest: [u8; 16],
    package: u32,
    is_later: bool,
    is_content: bool,
}

/// Examines the guest on the disk of an image; `kept` is the record that an earlier run of this kind kept of it.
pub(super) fn examine(
    disk: &dyn Disk,
    stat: &HostStat,
    kept: Option<KeptGuest>,
    search: &Search<'_>,
    memory: &mut CacheMemory,
    go_on: StopCheck<'_>,
    findings: &mut dyn Findings,
) -> ExaminationEnd {
    let reads = GuestReads::new(search.read_pace, read_bytes_max(stat));
    let paced = PacedDisk::new(disk, &reads);
    let cached = CachedDisk::with_memory(&paced, search.cache_bytes, std::mem::take(memory));
    let mut examiner = Examiner::new(search, &paced, stat, go_on, findings);
    let examined = examiner.guest(&WatchedDisk::new(&cached, &reads), kept);
    let Examiner { sums, is_stranger, .. } = examiner;
    *memory = cached.into_memory();
    // Readers skip unreadable parts. The next run may be able to read them.
    let facts = reads.check().and(examined).map(|(has_packages, databases)| GuestFacts {
        has_packages,
        databases,
        has_unread: reads.have_failed(),
    });
    ExaminationEnd { sums, is_stranger, facts }
}

impl<'e> Examiner<'e> {
    /// Returns an examiner that has examined nothing. The places of files are those on `disk`.
    pub(super) fn new(
        search: &'e Search<'e>,
        disk: &'e dyn Disk,
        stat: &HostStat,
        go_on: StopCheck<'e>,
        findings: &'e mut dyn Findings,
    ) -> Examiner<'e> {
        let bytes_left = claimed_bytes_max(stat);
        Examiner {
            search,
            disk,
            go_on,
            findings,
            bytes_left,
            read_left: bytes_left,
            pieces: Pieces::default(),
            sums: ExaminationReport::default(),
            is_stranger: false,
            packages: 0,
            known: None,
        }
    }

    /// Returns the disk on which files have their places.
    pub(super) fn disk(&self) -> &'e dyn Disk {
        self.disk
    }

    /// Returns the callback that is asked at each path, file and extent.
    pub(super) fn go_on(&self) -> StopCheck<'e> {
        self.go_on
    }

    /// Examines the guest on a disk. Returns whether it has packages, and the number of its databases.
    fn guest(&mut self, disk: &dyn Disk, kept: Option<KeptGuest>) -> Result<(bool, u64), IdentifyError> {
        let guest = Guest::open(disk)?;
        if let Some(kept) = kept
            && let Some(known) = KnownFiles::still(&guest, &kept, self.search, self.go_on)?
        {
            kept.packages.into_iter().try_for_each(|name| self.package(name).map(drop))?;
            self.known = Some(known);
        }
        let (mut has_packages, mut databases) = (false, DatabaseStamps::default());
        each_system(&guest, &mut |system| {
            // Before the databases are read: the next run then sees a change meanwhile.
            databases.add(&system.tree);
            if let Some(known) = &self.known {
                let packaged = known.owned(system.at);
                return self.system(system, &packaged);
            }
            // Files of no package are found whatever the database is.
            let (database, unread) = match packages::open(&system.tree) {
                Ok(database) => (database, None),
                Err(error) => (None, Some(error)),
            };
            has_packages |= database.is_some();
            let packaged = self.packaged(system, database.as_deref())?;
            self.system(system, &packaged)?;
            unread.map_or(Ok(()), |error| Err(error.into()))
        })?;
        if let Some(known) = &self.known {
            has_packages = known.has_packages;
            self.sums.packages = self.sums.packages.saturating_add(known.packages);
            self.sums.unchanged_databases += 1;
        }
        self.sums.images_with_packages += u64::from(has_packages);
        Ok((has_packages, databases.number()))
    }

    /// Names a package. Returns its index in the list of the image.
    fn package(&mut self, name: String) -> Result<u32, IdentifyError> {
        let place = self.packages;
        self.findings.package(name)?;
        self.packages = place.saturating_add(1);
        Ok(place)
    }

    /// Examines the files of a system: those of its packages, which are in order, and those of no package.
    fn system(&mut self, system: &System<'_>, packaged: &[OwnedFile]) -> Result<(), IdentifyError> {
        if self.search.wants_packaged() {
            for OwnedFile { file, digest, package, is_content, .. } in packaged.iter().filter(|owned| owned.is_later) {
                let claim = if *is_content { KeptClaim::Content(*digest) } else { KeptClaim::Digest(*digest) };
                if !self.file(system, *file, claim, *package)? {
                    return Ok(());
                }
            }
        }
        if self.search.wants_packaged_alone() {
            return Ok(());
        }
        let files: Vec<GuestFile> = packaged.iter().map(|owned| owned.file).collect();
        let unpackaged = unpackaged(&system.tree, &files, DIGESTS_MAX, self.go_on).map_err(IdentifyError::Stopped)?;
        for (file, path) in unpackaged {
            if !self.file(system, file, KeptClaim::Path { path, probes: None }, None)? {
                break;
            }
        }
        Ok(())
    }

    /// Examines a file, and passes it on with its pieces. Returns false if the image claims more than it may.
    pub(super) fn file(
        &mut self,
        system: &System<'_>,
        file: GuestFile,
        claim: KeptClaim,
        package: Option<u32>,
    ) -> Result<bool, IdentifyError> {
        (self.go_on)().map_err(IdentifyError::Stopped)?;
        let Some(reader) = system.reader(file.system) else { return Ok(true) };
        let of_tree = system.tree.system(file.system);
        let stat = match of_tree.damage().skip(of_tree.stat(file.file)) {
            Ok(Some(stat)) if stat.kind == FileKind::Regular => stat,
            Ok(_) | Err(GuestError::NotFound) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        self.sums.files += 1;
        let is_named = matches!(claim, KeptClaim::Path { .. });
        if is_named && self.search.since.is_some_and(|since| !since.has_file(&stat)) {
            self.sums.older_files += 1;
            return Ok(true);
        }
        self.pieces.clear();
        let mut described = described(system, file, claim, package, &stat);
        if stat.size_bytes == 0 {
            self.sums.empty_files += 1;
            self.findings.file(described, None, &mut self.pieces.by_phase)?;
            return Ok(true);
        }
        let is_bounded = self.add_extents(of_tree, reader, file, stat.size_bytes)?;
        self.sums.misaligned_bytes = self.sums.misaligned_bytes.saturating_add(self.pieces.ragged_bytes);
        let digest = self.read_whole(system, file, stat.size_bytes)?;
        let is_whole = self.search.reading == ReadScope::WholeFiles;
        if is_whole && digest.is_none() {
            // An unreadable file is equal to no other.
            return Ok(is_bounded);
        }
        let known = self.known.as_ref().and_then(|known| known.probes(&described));
        if let KeptClaim::Path { probes: number, .. } = &mut described.claim
            && self.pieces.phases().next().is_some()
            && want_probes(self.search.tiers)
        {
            *number = known.or_else(|| probes(of_tree, file, stat.size_bytes));
        }
        self.findings.file(described, digest.filter(|_| is_whole), &mut self.pieces.by_phase)?;
        self.sums.surplus_files += u64::from(!is_bounded);
        Ok(is_bounded)
    }

    /// Returns the digest of a file that is read as a whole for an experiment, as long as the image's bound on reads
    /// allows it.
    fn read_whole(
        &mut self,
        system: &System<'_>,
        file: GuestFile,
        size_bytes: u64,
    ) -> Result<Option<[u8; 16]>, IdentifyError> {
        let left = self.read_left.checked_sub(size_bytes).filter(|_| self.search.reading != ReadScope::Probes);
        let Some(left) = left else { return Ok(None) };
        self.read_left = left;
        let of_tree = system.tree.system(file.system);
        let digest = digest_of(of_tree, file, size_bytes, self.go_on).map_err(IdentifyError::Stopped)?;
        if digest.is_some() {
            self.sums.digested_bytes = self.sums.digested_bytes.saturating_add(size_bytes);
        }
        Ok(digest)
    }

    /// Returns the files with a digest of all packages of a system, in the order of the file systems; none if it has no
    /// database.
    fn packaged(
        &mut self,
        system: &System<'_>,
        database: Option<&dyn PackageDatabase>,
    ) -> Result<Vec<OwnedFile>, IdentifyError> {
        let Some(database) = database else { return Ok(Vec::new()) };
        let later = self.search.since.map(|since| since.later_packages(database));
        self.is_stranger |= later.as_ref().is_some_and(|later| later.is_stranger);
        let mut paths = PathSet::new();
        let mut listed: Vec<(PathId, OwnedDigest)> = Vec::new();
        for (at, package) in database.packages().iter().enumerate() {
            let is_later = later.as_ref().is_none_or(|later| later.has(at));
            self.sums.packages += 1;
            self.sums.older_packages += u64::from(!is_later);
            if !is_later && self.search.wants_packaged_alone() {
                continue;
            }
            let place = self.package(PackageNames::name_of(package))?;
            let is_installed = package.state == PackageState::Installed;
            let mut gone_on = Ok(());
            database.each_path(at, &mut |owned| {
                gone_on = (self.go_on)();
                if gone_on.is_err() || listed.len() >= DIGESTS_MAX {
                    return ControlFlow::Break(());
                }
                if let Some(Digest::Md5(digest)) = owned.digest
                    && let Some(path) = paths.add(owned.path)
                {
                    let is_content = is_installed && !owned.is_configuration;
                    listed.push((path, OwnedDigest { digest, package: place, is_later, is_content }));
                }
                ControlFlow::Continue(())
            });
            gone_on.map_err(IdentifyError::Stopped)?;
        }
        paths.resolve(&system.tree, database.problems());
        let with_file = |(path, OwnedDigest { digest, package, is_later, is_content })| {
            Some(OwnedFile { file: paths.file(path)?, digest, package: Some(package), is_later, is_content })
        };
        let mut files: Vec<_> = listed.into_iter().filter_map(with_file).collect();
        // Several packages may have a file, and paths through links lead to it.
        files.sort_unstable();
        files.dedup_by_key(|owned| owned.file);
        Ok(files)
    }
}

/// Returns the claims about a file of a system, with the record of the file system.
fn described(
    system: &System<'_>,
    file: GuestFile,
    claim: KeptClaim,
    package: Option<u32>,
    stat: &FileStat,
) -> KeptFile {
    let FileStat { generation, size_bytes, modified, changed, created, .. } = *stat;
    let (tree, system, file) = (system.at, file.system.0, file.file.0);
    KeptFile { package, claim, tree, system, file, generation, size_bytes, modified, changed, created }
}
