//! What is claimed of a file, as numbers: files with one number are believed equal.

use std::hash::{DefaultHasher, Hash, Hasher};

use onefold_guest::filesystem::{FileStat, FileSystem, Timestamp};
use onefold_guest::packages::Digest;
use onefold_guest::tree::GuestFile;
use onefold_substrate::Refusal;

use super::IdentifyError;
use super::pieces::Pieces;
use super::unpackaged::probes;
use crate::domain::Domain;
use crate::files::tier::Tier;

/// Shorter files are not believed equal by path and length alone.
const NAMED_BYTES_MIN: u64 = 64 << 10;

/// Key of the numbers of contents. Hosts may have different ones: which files are equal, and which of them is the
/// source, does not depend on it.
pub(super) type ClaimKey = [u8; 16];

/// What is claimed of a file.
#[derive(Clone, Copy)]
pub(super) enum Claim {
    /// A package database records its digest.
    Digest(Digest),
    /// It has a path, by its number, and belongs to no package.
    Path(u64),
}

/// Images that may share with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Circle<'a> {
    domain: &'a Domain,
    /// Their blocks are overwritten in place (`nodatacow`). Btrfs does not share between such files and others.
    is_in_place: bool,
}

impl<'a> Circle<'a> {
    /// Returns the circle of an image, by why the file system says that its blocks cannot be shared.
    pub(super) fn of(domain: &'a Domain, refusal: Option<Refusal>) -> Result<Circle<'a>, IdentifyError> {
        match refusal {
            // An immutable image is a source all the same.
            None | Some(Refusal::Immutable) => Ok(Circle { domain, is_in_place: false }),
            Some(Refusal::NoCopyOnWrite) => Ok(Circle { domain, is_in_place: true }),
            Some(other) => Err(IdentifyError::Refused(other)),
        }
    }
}

/// A file of a guest, and what its file system says of it.
pub(super) struct Described<'a> {
    pub(super) system: &'a dyn FileSystem,
    pub(super) file: GuestFile,
    pub(super) stat: &'a FileStat,
    /// Where it lies on the disk.
    pub(super) pieces: &'a Pieces,
}

/// Makes numbers of claims about the files of an image.
#[derive(Clone, Copy)]
pub(super) struct Claims<'a> {
    pub(super) key: &'a ClaimKey,
    pub(super) circle: Circle<'a>,
    /// By what files are believed equal.
    pub(super) tiers: &'a [Tier],
    /// The digest of the whole file, where files with others are not equal to it.
    pub(super) whole: Option<[u8; 16]>,
}

impl Claims<'_> {
    /// Returns what a file is believed to equal, in each tier that is wanted.
    pub(super) fn contents(&self, claim: Claim, file: &Described<'_>) -> Vec<(Tier, u64)> {
        let size = file.stat.size_bytes;
        let mut contents = Vec::new();
        if let Claim::Digest(digest) = claim
            && self.wants(Tier::Digest)
        {
            // Copies of one file have one record of a package, too: tier 2 would find nothing more.
            contents.push(self.content(Tier::Digest, &(digest, size)));
            return contents;
        }
        if file.pieces.phases().next().is_none() {
            return contents;
        }
        if self.wants(Tier::Copied) {
            contents.push(self.copied(file));
        }
        if let Claim::Path(path) = claim {
            self.add_named(&mut contents, path, file);
        }
        contents
    }

    /// Returns what a file of an image is believed to equal that was copied as a whole with others: a file with the same
    /// record, at the same place of the disk.
    fn copied(&self, file: &Described<'_>) -> (Tier, u64) {
        let FileStat { generation, modified, changed, created, size_bytes, .. } = file.stat;
        let times = [Some(*modified), Some(*changed), *created].map(|time| time.map(words));
        let map: Vec<_> = file.pieces.phases().collect();
        self.content(Tier::Copied, &(file.file.file, generation, times, size_bytes, map))
    }

    /// Adds what a file of no package is believed to equal by its path. Its first, middle and last blocks are part of it.
    fn add_named(&self, contents: &mut Vec<(Tier, u64)>, path: u64, file: &Described<'_>) {
        let size = file.stat.size_bytes;
        let is_dated = self.wants(Tier::Dated);
        let is_named = self.wants(Tier::Named) && size >= NAMED_BYTES_MIN;
        let probes = (is_dated || is_named).then(|| probes(file.system, file.file, size)).flatten();
        let Some(probes) = probes else { return };
        if is_dated {
            contents.push(self.content(Tier::Dated, &(path, size, words(file.stat.modified), probes)));
        }
        if is_named {
            contents.push(self.content(Tier::Named, &(path, size, probes)));
        }
    }

    fn wants(&self, tier: Tier) -> bool {
        self.tiers.contains(&tier)
    }

    fn content(&self, tier: Tier, claim: &impl Hash) -> (Tier, u64) {
        (tier, content_of(self.key, self.circle, tier, &(self.whole, claim)))
    }
}

fn words(time: Timestamp) -> (i64, u32) {
    (time.seconds, time.nanoseconds)
}

/// Returns a number for a content: equal ones are believed equal. Others may have the same number, too: that costs a
/// comparison. Files of different circles never have one content, but by chance.
pub(super) fn content_of(key: &ClaimKey, circle: Circle<'_>, tier: Tier, claim: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, circle, tier, claim).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use onefold_guest::filesystem::FileKind;
    use onefold_guest::memory::MemoryFileSystem;
    use onefold_guest::tree::{Links, Tree};

    use super::*;

    /// Returns the number of a file in tier 2, after a change to what is known of it.
    fn copied(place: u64, change: impl FnOnce(&mut FileStat)) -> u64 {
        let mut system = MemoryFileSystem::default();
        system.write("/file", "content");
        let tree = Tree::new(&system);
        let file = tree.find(b"/file", Links::Keep).unwrap().file;
        let mut stat = system.stat(file.file).unwrap();
        assert_eq!(stat.kind, FileKind::Regular);
        change(&mut stat);
        let mut pieces = Pieces::default();
        pieces.add(place, 0, 4096, stat.size_bytes);
        let domain = Domain::Owner(1);
        let circle = Circle::of(&domain, None).unwrap();
        let claims = Claims { key: &[1; 16], circle, tiers: &[Tier::Copied], whole: None };
        let whole = Claims { whole: Some([3; 16]), ..claims };
        assert_ne!(
            whole.contents(Claim::Path(7), &Described { system: &system, file, stat: &stat, pieces: &pieces }),
            claims.contents(Claim::Path(7), &Described { system: &system, file, stat: &stat, pieces: &pieces })
        );
        let described = Described { system: &system, file, stat: &stat, pieces: &pieces };
        let contents = claims.contents(Claim::Path(7), &described);
        assert_eq!(claims.contents(Claim::Path(8), &described), contents, "a path is no part of it");
        let [(Tier::Copied, content)] = contents[..] else { panic!("{contents:?}") };
        content
    }

    #[test]
    fn a_copied_file_has_the_record_and_the_place_of_the_other() {
        let same = copied(8192, |_| {});
        assert_eq!(copied(8192, |stat| stat.accessed.seconds += 1), same);
        assert_ne!(copied(12288, |_| {}), same);
        let later = |time: &mut Timestamp| time.nanoseconds += 1;
        assert_ne!(copied(8192, |stat| later(&mut stat.modified)), same);
        assert_ne!(copied(8192, |stat| later(&mut stat.changed)), same);
        assert_ne!(copied(8192, |stat| stat.created = Some(Timestamp { seconds: 9, nanoseconds: 0 })), same);
        assert_ne!(copied(8192, |stat| stat.generation += 1), same);
        assert_ne!(copied(8192, |stat| stat.size_bytes += 1), same);
    }
}
