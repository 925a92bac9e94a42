//! Converts owners and counts to results for users.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use onefold_block::BLOCK_BYTES_U64;

use super::analysis::{
    BlockPlace, BytesUse, ClassBytes, FilesAnalysis, GroupName, GroupShare, ImageFiles, MisalignedBytes,
    MisalignedCause, OTHERS, PartShare, ShareBytes, TopBlockFiles,
};
use super::counts::{OwnedPlace, OwnedPlaces, OwnerCount, OwnerCounts};
use super::survey::{ImageSurvey, Survey};

/// An image that was read completely.
pub(crate) struct SurveyedImage<'s> {
    /// Its index among all images.
    pub(crate) at: usize,
    pub(crate) name: &'s str,
    pub(crate) survey: &'s ImageSurvey,
    pub(crate) has_changed: bool,
    pub(crate) zero_bytes: u64,
}

/// One of the most repeated blocks.
pub(crate) struct TopPlaces<'s> {
    pub(crate) times: u64,
    pub(crate) places: &'s OwnedPlaces,
}

/// Shares of parts and of their parts, by name.
type Parts<'s> = BTreeMap<&'s str, BTreeMap<&'s str, ShareBytes>>;
type Groups<'s> = BTreeMap<GroupName, Parts<'s>>;
type Causes = BTreeMap<MisalignedCause, u64>;

impl Survey<'_> {
    /// Returns the owners of the blocks of these images. `top` are the most repeated blocks.
    pub(crate) fn analysis(
        &self,
        images: &[SurveyedImage<'_>],
        counts: &OwnerCounts,
        top: &[TopPlaces<'_>],
    ) -> FilesAnalysis {
        let (mut groups, mut causes, mut zero_bytes) = (Groups::new(), Causes::new(), 0_u64);
        let mut report = |image: &SurveyedImage<'_>| {
            let (mut own_groups, mut own_causes) = (Groups::new(), Causes::new());
            for (owner, count) in image.survey.owners.iter().zip(counts.of_image(image.at)) {
                let Some(use_) = self.uses.get(owner.use_) else { continue };
                let share = share_of(count);
                for groups in [&mut own_groups, &mut groups] {
                    let parts = groups.entry(use_.group).or_default();
                    add(parts.entry(&use_.part).or_default().entry(&use_.sub).or_default(), &share);
                }
                if let Some(cause) = owner.cause.filter(|_| use_.group != GroupName::Stale) {
                    *own_causes.entry(cause).or_default() += share.bytes;
                    *causes.entry(cause).or_default() += share.bytes;
                }
            }
            zero_bytes = zero_bytes.saturating_add(image.zero_bytes);
            ImageFiles {
                name: image.name.to_owned(),
                is_in_use: image.survey.has_writer || image.has_changed,
                doubts: image.survey.doubts.clone(),
                has_damage: image.survey.has_damage,
                bytes: bytes_use(own_groups, image.zero_bytes),
                misaligned: misaligned(&own_causes),
            }
        };
        let reports = images.iter().map(&mut report).collect();
        let name_of = |at: usize| {
            let place = images.binary_search_by_key(&at, |image| image.at).ok()?;
            images.get(place)
        };
        FilesAnalysis {
            total: bytes_use(groups, zero_bytes),
            images: reports,
            versions: self.versions.several(&|at| name_of(at).map(|image| image.name.to_owned())),
            top_blocks: top
                .iter()
                .map(|block| TopBlockFiles {
                    times: block.times,
                    repeated_bytes: bytes(block.times.saturating_sub(1)),
                    places: block
                        .places
                        .list()
                        .iter()
                        .filter_map(|place| self.place(name_of(place.0)?, place))
                        .collect(),
                })
                .collect(),
            misaligned: misaligned(&causes),
        }
    }

    fn place(&self, image: &SurveyedImage<'_>, &(_, index, owner): &OwnedPlace) -> Option<BlockPlace> {
        let use_ = self.uses.get(image.survey.owners.get(usize::from(owner))?.use_)?;
        let parts = [&use_.part, &use_.sub].into_iter().filter(|part| !part.is_empty());
        Some(BlockPlace {
            image: image.name.to_owned(),
            offset_bytes: bytes(index),
            group: use_.group,
            parts: parts.cloned().collect(),
            path: None,
        })
    }
}

fn bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_BYTES_U64)
}

fn share_of(count: &OwnerCount) -> ShareBytes {
    ShareBytes {
        bytes: bytes(count.shared + count.only_here + count.repeated),
        shared_with_others_bytes: bytes(count.shared),
        only_here_bytes: bytes(count.only_here),
        repeated_within_bytes: bytes(count.repeated),
    }
}

fn add(to: &mut ShareBytes, share: &ShareBytes) {
    to.bytes = to.bytes.saturating_add(share.bytes);
    to.shared_with_others_bytes = to.shared_with_others_bytes.saturating_add(share.shared_with_others_bytes);
    to.only_here_bytes = to.only_here_bytes.saturating_add(share.only_here_bytes);
    to.repeated_within_bytes = to.repeated_within_bytes.saturating_add(share.repeated_within_bytes);
}

fn sum<'s>(shares: impl Iterator<Item = &'s ShareBytes>) -> ShareBytes {
    let mut sum = ShareBytes::default();
    shares.for_each(|share| add(&mut sum, share));
    sum
}

/// Returns the groups in the form of results. Omits empty ones.
fn bytes_use(groups: Groups<'_>, zero_bytes: u64) -> BytesUse {
    let group = |(name, parts): (GroupName, Parts<'_>)| {
        let parts = sorted(parts.into_iter().map(|(name, parts)| part(name, parts)));
        GroupShare { name, share: sum(parts.iter().map(|part| &part.share)), parts }
    };
    let groups: Vec<GroupShare> = groups.into_iter().map(group).filter(|group| group.share.bytes > 0).collect();
    let of = |names: &[GroupName]| {
        let all = groups.iter().filter(|group| names.contains(&group.name));
        all.fold(0_u64, |sum, group| sum.saturating_add(group.share.bytes))
    };
    let classes = ClassBytes {
        file_data_bytes: of(&[GroupName::Packages, GroupName::Files]),
        metadata_bytes: of(&[GroupName::Metadata]),
        swap_bytes: of(&[GroupName::Swap]),
        gap_bytes: of(&[GroupName::Gaps]),
        stale_bytes: of(&[GroupName::Stale]),
        zero_bytes,
        not_read_bytes: of(&[GroupName::NotRead]),
    };
    BytesUse { classes, groups }
}

fn part(name: &str, parts: BTreeMap<&str, ShareBytes>) -> PartShare {
    let share = sum(parts.values());
    // A single part without a name is the whole group.
    let is_whole = parts.len() == 1 && parts.contains_key("");
    let leaf = |(name, share): (&str, ShareBytes)| PartShare {
        name: if name.is_empty() { OTHERS } else { name }.to_owned(),
        share,
        parts: Vec::new(),
    };
    let parts = if is_whole { Vec::new() } else { sorted(parts.into_iter().map(leaf)) };
    PartShare { name: name.to_owned(), share, parts }
}

/// Returns the parts that are not empty, the largest first.
fn sorted(parts: impl Iterator<Item = PartShare>) -> Vec<PartShare> {
    let mut parts: Vec<PartShare> = parts.filter(|part| part.share.bytes > 0).collect();
    parts.sort_by_key(|part| Reverse(part.share.bytes));
    parts
}

fn misaligned(causes: &Causes) -> Vec<MisalignedBytes> {
    let causes = causes.iter().filter(|(_, bytes)| **bytes > 0);
    causes.map(|(cause, bytes)| MisalignedBytes { cause: *cause, bytes: *bytes, gained_bytes: None }).collect()
}
