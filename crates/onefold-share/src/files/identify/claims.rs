//! Claims about files, as numbers: files with one number are believed equal.

use std::hash::{DefaultHasher, Hash, Hasher};

use onefold_guest::filesystem::Timestamp;
use onefold_substrate::Refusal;

use super::IdentifyError;
use crate::domain::Domain;
use crate::files::tier::Tier;
use crate::format::guest::{KeptClaim, KeptFile, PhasedPieces};

/// Key of the numbers of contents. Hosts may have different keys: neither the equality of files nor the choice of the
/// source depends on it.
pub(super) type ClaimKey = [u8; 16];

/// Images that may share with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Circle<'a> {
    domain: &'a Domain,
    /// Whether their blocks are overwritten in place (`nodatacow`). Btrfs does not share between such files and others.
    is_in_place: bool,
}

impl<'a> Circle<'a> {
    /// Returns the circle of an image, given why the file system says that its blocks cannot be shared.
    pub(super) fn of(domain: &'a Domain, refusal: Option<Refusal>) -> Result<Circle<'a>, IdentifyError> {
        match refusal {
            // An immutable image can still be a source.
            None | Some(Refusal::Immutable) => Ok(Circle { domain, is_in_place: false }),
            Some(Refusal::NoCopyOnWrite) => Ok(Circle { domain, is_in_place: true }),
            Some(other) => Err(IdentifyError::Refused(other)),
        }
    }
}

/// Makes numbers of claims about the files of an image.
#[derive(Clone, Copy)]
pub(super) struct Claims<'a> {
    pub(super) key: &'a ClaimKey,
    pub(super) circle: Circle<'a>,
    /// The tiers by which files are believed equal.
    pub(super) tiers: &'a [Tier],
    /// The digest of the whole file, if files with other digests are not equal to it.
    pub(super) whole: Option<[u8; 16]>,
}

impl Claims<'_> {
    /// Returns the numbers of a file's content, in each wanted tier.
    pub(super) fn contents(&self, file: &KeptFile, pieces: &PhasedPieces) -> Vec<(Tier, u64)> {
        let mut contents = Vec::new();
        if let KeptClaim::Digest(digest) | KeptClaim::Content(digest) = file.claim
            && self.wants(Tier::Digest)
        {
            // Copies of one file have one record of a package, too: tier 2 would find nothing more.
            contents.push(self.content(Tier::Digest, &(digest, file.size_bytes)));
            return contents;
        }
        if pieces.phases().next().is_none() {
            return contents;
        }
        if self.wants(Tier::Copied) {
            contents.push(self.copied(file, pieces));
        }
        if let KeptClaim::Path { path, probes: Some(probes) } = file.claim {
            self.add_named(&mut contents, path, probes, file);
        }
        contents
    }

    /// Returns the number of a file that was copied as a whole with others: a file with the same record, at the same
    /// place of the disk.
    fn copied(&self, file: &KeptFile, pieces: &PhasedPieces) -> (Tier, u64) {
        let KeptFile { generation, modified, changed, created, size_bytes, .. } = file;
        let times = [Some(*modified), Some(*changed), *created].map(|time| time.map(words));
        let map: Vec<_> = pieces.phases().collect();
        self.content(Tier::Copied, &(file.file, generation, times, size_bytes, map))
    }

    /// Adds the numbers by which a file of no package equals others by path. The number depends on its first, middle
    /// and last blocks, too.
    fn add_named(&self, contents: &mut Vec<(Tier, u64)>, path: u64, probes: u64, file: &KeptFile) {
        let size = file.size_bytes;
        if self.wants(Tier::Dated) {
            contents.push(self.content(Tier::Dated, &(path, size, words(file.modified), probes)));
        }
        if self.wants(Tier::Named) {
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

/// Returns whether one of the tiers claims by the first, middle and last blocks of files of no package.
pub(super) fn want_probes(tiers: &[Tier]) -> bool {
    tiers.iter().any(|tier| matches!(tier, Tier::Dated | Tier::Named))
}

fn words(time: Timestamp) -> (i64, u32) {
    (time.seconds, time.nanoseconds)
}

/// Returns a number for a content: equal contents have one number and are believed equal. Another content may have the
/// same number, which costs a comparison. Files of different circles have one number only by chance.
pub(super) fn content_of(key: &ClaimKey, circle: Circle<'_>, tier: Tier, claim: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, circle, tier, claim).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::guest::Piece;

    /// Returns the number of a file in tier 2 at a block of the disk, after a change to what is known of it.
    fn copied(block: u64, change: impl FnOnce(&mut KeptFile)) -> u64 {
        let time = Timestamp { seconds: 5, nanoseconds: 6 };
        let mut file = KeptFile {
            package: None,
            claim: KeptClaim::Path { path: 7, probes: Some(8) },
            tree: 0,
            system: 0,
            file: 3,
            generation: 0,
            size_bytes: 7,
            modified: time,
            changed: time,
            created: None,
        };
        change(&mut file);
        let mut pieces = PhasedPieces::default();
        pieces.0[0].push(Piece { content: 0, block, count: 1 });
        let domain = Domain::Owner(1);
        let circle = Circle::of(&domain, None).unwrap();
        let claims = Claims { key: &[1; 16], circle, tiers: &[Tier::Copied], whole: None };
        let whole = Claims { whole: Some([3; 16]), ..claims };
        assert_ne!(whole.contents(&file, &pieces), claims.contents(&file, &pieces));
        let contents = claims.contents(&file, &pieces);
        let renamed = KeptFile { claim: KeptClaim::Path { path: 8, probes: None }, ..file };
        assert_eq!(claims.contents(&renamed, &pieces), contents, "a path is no part of it");
        let [(Tier::Copied, content)] = contents[..] else { panic!("{contents:?}") };
        content
    }

    #[test]
    fn a_copied_file_has_the_record_and_the_place_of_the_other() {
        let same = copied(2, |_| {});
        assert_eq!(copied(2, |file| (file.tree, file.system) = (1, 1)), same);
        assert_ne!(copied(3, |_| {}), same);
        let later = |time: &mut Timestamp| time.nanoseconds += 1;
        assert_ne!(copied(2, |file| later(&mut file.modified)), same);
        assert_ne!(copied(2, |file| later(&mut file.changed)), same);
        assert_ne!(copied(2, |file| file.created = Some(Timestamp { seconds: 9, nanoseconds: 0 })), same);
        assert_ne!(copied(2, |file| file.generation += 1), same);
        assert_ne!(copied(2, |file| file.size_bytes += 1), same);
        assert_ne!(copied(2, |file| file.file += 1), same);
    }

    #[test]
    fn files_of_no_package_are_believed_equal_by_path_length_and_probes_however_short_they_are() {
        let time = Timestamp { seconds: 5, nanoseconds: 6 };
        let file = KeptFile {
            package: None,
            claim: KeptClaim::Path { path: 7, probes: Some(8) },
            tree: 0,
            system: 0,
            file: 3,
            generation: 0,
            size_bytes: 1,
            modified: time,
            changed: time,
            created: None,
        };
        let mut pieces = PhasedPieces::default();
        pieces.0[0].push(Piece { content: 0, block: 2, count: 1 });
        let domain = Domain::Owner(1);
        let circle = Circle::of(&domain, None).unwrap();
        let contents = |file: &KeptFile, tiers: &[Tier]| {
            Claims { key: &[1; 16], circle, tiers, whole: None }.contents(file, &pieces)
        };
        let named = contents(&file, &[Tier::Named]);
        assert!(matches!(named[..], [(Tier::Named, _)]), "{named:?}");
        let later = Timestamp { seconds: 6, ..time };
        assert_eq!(contents(&KeptFile { modified: later, file: 4, ..file.clone() }, &[Tier::Named]), named);
        assert_ne!(contents(&KeptFile { size_bytes: 2, ..file.clone() }, &[Tier::Named]), named);
        for (path, probes) in [(7, 9), (8, 8)] {
            let claim = KeptClaim::Path { path, probes: Some(probes) };
            assert_ne!(contents(&KeptFile { claim, ..file.clone() }, &[Tier::Named]), named);
        }
        let unread = KeptFile { claim: KeptClaim::Path { path: 7, probes: None }, ..file.clone() };
        assert_eq!(contents(&unread, &[Tier::Named, Tier::Dated]), []);
        assert_eq!(contents(&file, &[Tier::Dated, Tier::Named]).len(), 2);
        assert!(
            want_probes(&[Tier::Digest, Tier::Named]) && want_probes(&[Tier::Dated]) && !want_probes(&[Tier::Copied])
        );
    }
}
