//! Converts counts of blocks to the report in bytes.

use onefold_block::BLOCK_BYTES_U64;
use onefold_guest::Partition;

use crate::advice::advise;
use crate::analysis::{
    Analysis, BlockSize, Effort, GroupReport, Growth, ImageReport, MisalignedPartition, Realignment, RepeatsPoint,
    Runs, RunsOfLength, Shift, Similarity, SkippedImage, TopBlockReport, Total, Ways,
};
use crate::cost;
use crate::count::{Counts, ImageCount, VariantCount};
use crate::image::Image;
use crate::reading::{CompleteImage, ReadResult};
use crate::runs::RunCount;
use crate::scan::SHIFT_VARIANTS;
use crate::sizes::{SIZES, block_bytes};

/// All results of an analysis, as counts.
pub(crate) struct Findings<'a> {
    pub(crate) images: &'a [Image],
    /// Result of reading each image.
    pub(crate) read: &'a [ReadResult],
    pub(crate) groups: &'a [String],
    pub(crate) counts: &'a Counts,
    pub(crate) runs: &'a RunCount,
    pub(crate) spilled_bytes: u64,
}

/// Returns the report on these results.
pub(crate) fn assemble(findings: &Findings<'_>) -> Analysis {
    let images: Vec<ImageReport> = findings.whole().map(|(at, whole)| findings.image(at, whole)).collect();
    let map_nodes = findings.whole().map(|(_, whole)| whole.scanned.map_nodes).sum();
    let block_sizes = sizes_of(&findings.counts.variants[..usize::from(SIZES)], map_nodes);
    let total = total(&images, findings.counts);
    let ways = findings.ways(&total, map_nodes);
    let shifted = findings.counts.variants.chunks(usize::from(SHIFT_VARIANTS)).enumerate().skip(1);
    Analysis {
        growth: growth(&images),
        similarity: findings.similarity(),
        left_out: findings.left_out(),
        shifts: shifted
            .map(|(steps, variants)| Shift {
                shift_bytes: 512 * steps as u64,
                block_sizes: sizes_of(&variants[..usize::from(SIZES)], map_nodes),
            })
            .collect(),
        realignment: findings.realignment(&total),
        top_blocks: findings.top_blocks(),
        groups: findings.groups(),
        runs: runs(findings.runs),
        effort: Effort {
            read_bytes: findings.whole().map(|(_, whole)| whole.scanned.read_bytes).sum(),
            spilled_bytes: findings.spilled_bytes,
        },
        total,
        images,
        block_sizes,
        ways,
        files: None,
    }
}

fn bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_BYTES_U64)
}

impl Findings<'_> {
    /// Returns the images that count, each with its index among all images.
    fn whole(&self) -> impl Iterator<Item = (usize, &CompleteImage)> {
        self.read.iter().enumerate().filter_map(|(at, read)| Some((at, read.as_ref().ok()?)))
    }

    fn image(&self, at: usize, whole: &CompleteImage) -> ImageReport {
        let image = &self.images[at];
        let count: &ImageCount = &self.counts.images[at];
        let apparent_bytes = bytes(whole.scanned.size_bytes.div_ceil(BLOCK_BYTES_U64));
        let only_here_bytes = bytes(count.only_here);
        let map_bytes = cost::map_bytes(whole.scanned.map_nodes);
        ImageReport {
            name: image.name.clone(),
            group: image.group.map(|group| self.groups[group].clone()),
            changed_meanwhile: whole.has_changed,
            apparent_bytes,
            allocated_bytes: image.allocated_bytes,
            // If a file grows while it is read, only blocks within its initial length count.
            zero_bytes: apparent_bytes.saturating_sub(bytes(count.references)),
            repeated_within_bytes: bytes(count.references - count.distinct),
            distinct_bytes: bytes(count.distinct),
            shared_with_others_bytes: bytes(count.distinct - count.only_here),
            only_here_bytes,
            new_bytes: bytes(count.new),
            map_bytes,
            marginal_bytes: only_here_bytes + map_bytes + cost::fixed_bytes(count.only_here),
            freed_bytes: only_here_bytes + map_bytes,
        }
    }

    fn left_out(&self) -> Vec<SkippedImage> {
        let failed = self.images.iter().zip(self.read).filter_map(|(image, read)| Some((image, read.as_ref().err()?)));
        failed.map(|(image, why)| SkippedImage { name: image.name.clone(), why: why.clone() }).collect()
    }

    fn top_blocks(&self) -> Vec<TopBlockReport> {
        let report = |top: &crate::top::TopBlock| TopBlockReport {
            times: top.references,
            repeated_bytes: bytes(top.references - 1),
            image: self.images[top.image].name.clone(),
            offset_bytes: bytes(top.index),
        };
        self.counts.top.iter().map(report).collect()
    }

    fn groups(&self) -> Vec<GroupReport> {
        let images_of = |group| self.whole().filter(|&(at, _)| self.images[at].group == Some(group)).count() as u64;
        let reports = self.groups.iter().zip(&self.counts.groups).enumerate();
        reports
            .map(|(group, (name, count))| GroupReport {
                name: name.clone(),
                images: images_of(group),
                nonzero_bytes: bytes(count.references),
                distinct_bytes: bytes(count.distinct),
            })
            .collect()
    }

    /// Returns the similarity of the compared images that count.
    fn similarity(&self) -> Similarity {
        let overlaps = &self.counts.overlaps;
        // Results refer to images by their index among those that count.
        let mut place = vec![None; self.read.len()];
        self.whole().enumerate().for_each(|(index, (at, _))| place[at] = Some(index));
        let order: Vec<usize> = overlaps.order().into_iter().filter(|&at| place[at].is_some()).collect();
        let table = |cell: &dyn Fn(usize, usize) -> u64| -> Vec<Vec<u64>> {
            order.iter().map(|&one| order.iter().map(|&other| cell(one, other)).collect()).collect()
        };
        Similarity {
            common_bytes: table(&|one, other| bytes(overlaps.common(one, other))),
            likeness: order
                .iter()
                .map(|&one| order.iter().map(|&other| overlaps.likeness(one, other)).collect())
                .collect(),
            order: order.iter().filter_map(|&at| place[at]).collect(),
        }
    }

    fn realignment(&self, total: &Total) -> Realignment {
        Realignment {
            misaligned: self.whole().flat_map(|(at, whole)| self.misaligned(at, whole)).collect(),
            nonzero_bytes: bytes(self.counts.realigned_references),
            distinct_bytes: bytes(self.counts.realigned_distinct),
            gained_bytes: total.distinct_bytes.saturating_sub(bytes(self.counts.realigned_distinct)),
        }
    }

    fn misaligned(&self, at: usize, whole: &CompleteImage) -> Vec<MisalignedPartition> {
        let report = |partition: &Partition| MisalignedPartition::new(&self.images[at].name, partition);
        whole.misaligned.iter().map(report).collect()
    }

    fn ways(&self, total: &Total, map_nodes: u64) -> Ways {
        let base = &self.counts.variants[0];
        let pool_fixed_bytes = cost::fixed_bytes(base.distinct);
        let pool_map_bytes = cost::map_bytes(map_nodes);
        let kept = self.whole().filter(|&(at, _)| !self.images[at].is_plain);
        let other_formats: u64 = kept.map(|(at, _)| self.images[at].allocated_bytes).sum();
        let mut ways = Ways {
            now_bytes: total.allocated_bytes,
            pool_bytes: total.distinct_bytes + pool_fixed_bytes + pool_map_bytes,
            pool_fixed_bytes,
            pool_map_bytes,
            sharing_bytes: bytes(self.counts.plain_distinct)
                + cost::index_bytes(self.counts.plain_distinct)
                + other_formats,
            linked_clone_bytes: bytes(base.distinct_at_offset),
            recommendation: String::new(),
        };
        ways.recommendation = advise(&ways);
        ways
    }
}

fn total(images: &[ImageReport], counts: &Counts) -> Total {
    let sum = |of: &dyn Fn(&ImageReport) -> u64| images.iter().map(of).fold(0, u64::saturating_add);
    let base = &counts.variants[0];
    Total {
        apparent_bytes: sum(&|image| image.apparent_bytes),
        allocated_bytes: sum(&|image| image.allocated_bytes),
        zero_bytes: sum(&|image| image.zero_bytes),
        distinct_bytes: bytes(base.distinct),
        saved_bytes: bytes(base.references - base.distinct),
    }
}

fn sizes_of(variants: &[VariantCount], map_nodes: u64) -> Vec<BlockSize> {
    let report = |(level, count): (u8, &VariantCount)| {
        let block_bytes = block_bytes(level);
        let bytes = |blocks: u64| blocks.saturating_mul(block_bytes);
        BlockSize {
            block_bytes,
            nonzero_bytes: bytes(count.references),
            distinct_bytes: bytes(count.distinct),
            saved_bytes: bytes(count.references - count.distinct),
            // A map of larger blocks has proportionally fewer nodes.
            metadata_bytes: cost::fixed_bytes(count.distinct) + (cost::map_bytes(map_nodes) >> level),
            linked_clone_bytes: bytes(count.distinct_at_offset),
            repeats_max: count.repeats.max(),
            repeats: count
                .repeats
                .at_most()
                .into_iter()
                .map(|(times, blocks)| RepeatsPoint { times, blocks })
                .collect(),
        }
    };
    (0..).zip(variants).map(report).collect()
}

fn growth(images: &[ImageReport]) -> Vec<Growth> {
    let (mut nonzero_bytes, mut distinct_bytes) = (0, 0);
    let step = |image: &ImageReport| {
        nonzero_bytes += image.repeated_within_bytes + image.distinct_bytes;
        distinct_bytes += image.new_bytes;
        Growth { name: image.name.clone(), nonzero_bytes, distinct_bytes }
    };
    images.iter().map(step).collect()
}

fn runs(count: &RunCount) -> Runs {
    let lengths = (0_u32..).zip(&count.classes);
    Runs {
        runs: count.runs,
        shared_bytes: bytes(count.blocks),
        mean_bytes: bytes(count.blocks).checked_div(count.runs).unwrap_or(0),
        lengths: lengths
            .map(|(class, &(runs, blocks))| RunsOfLength {
                at_most_bytes: bytes(1_u64.checked_shl(class).unwrap_or(u64::MAX)),
                runs,
                shared_bytes: bytes(blocks),
            })
            .collect(),
    }
}
