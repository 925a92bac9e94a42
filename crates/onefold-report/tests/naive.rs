//! Every figure of a report against an independent naive counter, on small random images.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
#[path = "common/naive.rs"]
mod naive;

use common::{analyzed, image, options, random_images};
use onefold_report::{Analysis, BlockSize, Image, Shifts};

const SEEDS: std::ops::Range<u64> = 0..12;

fn named(images: &[Vec<u8>]) -> Vec<Image> {
    images.iter().enumerate().map(|(at, bytes)| image(&format!("image-{at}"), bytes)).collect()
}

/// Runs `check` on random sets of images and their analysis.
fn for_random_sets(check: impl Fn(&[Vec<u8>], &Analysis)) {
    for seed in SEEDS {
        println!("seed {seed}");
        let images = random_images(seed, 1 + usize::try_from(seed % 5).unwrap(), 900);
        let in_memory = analyzed(&named(&images), &options());
        assert_eq!(in_memory.effort.spilled_bytes, 0);
        check(&images, &in_memory);
        // The same with next to no memory: nearly all rows go through files.
        let spilled = analyzed(&named(&images), &onefold_report::Options { memory_bytes: 8 << 10, ..options() });
        assert!(spilled.effort.spilled_bytes > 0 || in_memory.total.distinct_bytes < 1 << 20);
        assert_eq!(Analysis { effort: in_memory.effort.clone(), ..spilled }, in_memory);
    }
}

#[test]
fn each_image_and_the_total_are_as_counted_and_add_up() {
    for_random_sets(|images, analysis| {
        let places = naive::places(images, 4096);
        let mut apparent_bytes = 0;
        for (at, found) in analysis.images.iter().enumerate() {
            let expected = naive::image_numbers(images, at);
            assert_eq!(found.apparent_bytes, expected.apparent * 4096);
            assert_eq!(found.zero_bytes, (expected.apparent - expected.nonzero) * 4096);
            assert_eq!(found.repeated_within_bytes, (expected.nonzero - expected.distinct) * 4096);
            assert_eq!(found.distinct_bytes, expected.distinct * 4096);
            assert_eq!(found.only_here_bytes, expected.only_here * 4096);
            assert_eq!(found.shared_with_others_bytes, (expected.distinct - expected.only_here) * 4096);
            assert_eq!(found.new_bytes, expected.new * 4096);
            assert_eq!(found.map_bytes, naive::map_nodes(&images[at]) * 4096);
            assert_eq!(found.freed_bytes, found.only_here_bytes + found.map_bytes);
            // Fixed metadata is 194 of the 32,768 blocks of a group.
            let fixed_bytes = (expected.only_here * 4096 * 194).div_ceil(32_768 - 194);
            assert_eq!(found.marginal_bytes, found.freed_bytes + fixed_bytes);
            apparent_bytes += found.apparent_bytes;
        }
        let total = &analysis.total;
        assert_eq!(total.apparent_bytes, apparent_bytes);
        assert_eq!(total.distinct_bytes, places.len() as u64 * 4096);
        assert_eq!(total.apparent_bytes, total.zero_bytes + total.distinct_bytes + total.saved_bytes);
        assert_eq!(total.zero_bytes + naive::nonzero(&places) * 4096, apparent_bytes);
    });
}

fn check_sizes(images: &[Vec<u8>], found: &[BlockSize]) {
    assert_eq!(found.len(), 9);
    for (level, found) in found.iter().enumerate() {
        let size = 4096 << level;
        let places = naive::places(images, size);
        assert_eq!(found.block_bytes, size as u64);
        assert_eq!(found.nonzero_bytes, naive::nonzero(&places) * size as u64, "{size}");
        assert_eq!(found.distinct_bytes, (places.len() * size) as u64, "{size}");
        assert_eq!(found.saved_bytes, found.nonzero_bytes - found.distinct_bytes);
        assert_eq!(found.linked_clone_bytes, naive::at_offsets(&places) * size as u64, "{size}");
        assert_eq!(found.repeats_max, places.values().map(|places| places.len() as u64).max().unwrap_or(0));
        for point in &found.repeats {
            assert_eq!(point.blocks, naive::at_most(&places, point.times), "{size}, {}", point.times);
        }
        assert_eq!(found.repeats.last().map_or(0, |point| point.blocks), places.len() as u64);
    }
}

#[test]
fn each_block_size_is_as_counted() {
    for_random_sets(|images, analysis| {
        check_sizes(images, &analysis.block_sizes);
        let base = &analysis.block_sizes[0];
        let map_bytes: u64 = analysis.images.iter().map(|image| image.map_bytes).sum();
        let fixed_bytes = (base.distinct_bytes * 194).div_ceil(32_768 - 194);
        assert_eq!(base.metadata_bytes, fixed_bytes + map_bytes);
        assert_eq!(analysis.ways.pool_bytes, base.distinct_bytes + base.metadata_bytes);
        assert_eq!(analysis.ways.linked_clone_bytes, base.linked_clone_bytes);
    });
}

#[test]
fn shifted_images_are_as_images_with_zeros_before_them() {
    for seed in 0..3 {
        let images = random_images(seed, 3, 400);
        let analysis = analyzed(&named(&images), &onefold_report::Options { shifts: Shifts::All, ..options() });
        check_sizes(&images, &analysis.block_sizes);
        assert_eq!(analysis.shifts.len(), 7);
        for (step, shift) in (1..).zip(&analysis.shifts) {
            assert_eq!(shift.shift_bytes, 512 * step as u64);
            let moved: Vec<Vec<u8>> =
                images.iter().map(|image| [vec![0; 512 * step], image.clone()].concat()).collect();
            check_sizes(&moved, &shift.block_sizes);
        }
    }
}

/// Returns a disk that begins with a table of these partitions, in sectors.
fn partitioned(content: &[u8], partitions: &[(u32, u32)]) -> Vec<u8> {
    let mut disk = content.to_vec();
    disk[..512].fill(0);
    for (slot, (first, count)) in partitions.iter().enumerate() {
        let at = 446 + 16 * slot;
        disk[at + 4] = 0x83;
        disk[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

#[test]
fn realigned_partitions_are_cut_into_blocks_from_their_own_start() {
    for seed in SEEDS {
        // What an aligned partition holds is also in one that begins at sector 63.
        let guest: Vec<u8> = random_images(seed, 1, 500)[0].iter().copied().chain([7; 40 << 10]).collect();
        let within = |sectors: usize, tail: &[u8]| [&vec![0; 512 * sectors], &guest[..], tail].concat();
        let count = u32::try_from(guest.len() / 512).unwrap();
        let aligned = partitioned(&within(64, &[5; 5000]), &[(64, count)]);
        let odd = partitioned(&within(63, &[5; 9000]), &[(63, count - 3), (63 + count - 1, 4)]);
        let analysis = analyzed(&named(&[aligned.clone(), odd.clone()]), &options());

        // Each part becomes an image of its own: partitions do not share blocks with what is around them.
        let sector = |number: u32| (number as usize) * 512;
        let mut parts = vec![aligned];
        let ends = [0, 63, 63 + count - 3, 63 + count - 1, 63 + count + 3].map(sector);
        parts.extend(ends.windows(2).map(|pair| odd[pair[0]..pair[1]].to_vec()));
        parts.push(odd[ends[4]..].to_vec());
        let places = naive::places(&parts, 4096);
        let found = &analysis.realignment;
        assert_eq!(found.distinct_bytes, places.len() as u64 * 4096, "seed {seed}");
        assert_eq!(found.nonzero_bytes, naive::nonzero(&places) * 4096);
        assert_eq!(found.gained_bytes, analysis.total.distinct_bytes.saturating_sub(found.distinct_bytes));
        let starts: Vec<u64> = found.misaligned.iter().map(|partition| partition.start_bytes / 512).collect();
        assert_eq!(
            starts,
            [63, u64::from(63 + count - 1)].iter().copied().filter(|start| start % 8 != 0).collect::<Vec<_>>()
        );
    }
    for_random_sets(|_, analysis| {
        assert!(analysis.realignment.misaligned.is_empty());
        assert_eq!(analysis.realignment.distinct_bytes, analysis.total.distinct_bytes);
    });
}

#[test]
fn the_most_repeated_blocks_are_found_where_they_are_first() {
    for_random_sets(|images, analysis| {
        let places = naive::places(images, 4096);
        let mut expected: Vec<(usize, (usize, u64))> =
            places.values().filter(|places| places.len() > 1).map(|places| (places.len(), places[0])).collect();
        expected.sort_by_key(|&(times, place)| (std::cmp::Reverse(times), place));
        expected.truncate(10);
        assert_eq!(analysis.top_blocks.len(), expected.len());
        for (found, (times, (image, index))) in analysis.top_blocks.iter().zip(expected) {
            assert_eq!(found.times, times as u64);
            assert_eq!(found.repeated_bytes, (times as u64 - 1) * 4096);
            assert_eq!((found.image.as_str(), found.offset_bytes), (&*format!("image-{image}"), index * 4096));
        }
    });
}

#[test]
fn storage_grows_as_it_does_with_fewer_images() {
    for_random_sets(|images, analysis| {
        for (at, growth) in analysis.growth.iter().enumerate() {
            let places = naive::places(&images[..=at], 4096);
            assert_eq!(growth.distinct_bytes, places.len() as u64 * 4096);
            assert_eq!(growth.nonzero_bytes, naive::nonzero(&places) * 4096);
        }
    });
}

#[test]
fn images_are_compared_pair_by_pair() {
    for_random_sets(|images, analysis| {
        let places = naive::places(images, 4096);
        let similarity = &analysis.similarity;
        let mut order = similarity.order.clone();
        for (row, &one) in similarity.order.iter().enumerate() {
            for (column, &other) in similarity.order.iter().enumerate() {
                let (common, any) = naive::common_and_any(&places, one, other);
                assert_eq!(similarity.common_bytes[row][column], common * 4096);
                let likeness = if any == 0 { 1.0 } else { common as f64 / any as f64 };
                assert!((similarity.likeness[row][column] - likeness).abs() < 1e-9);
            }
        }
        order.sort_unstable();
        assert_eq!(order, (0..images.len()).collect::<Vec<_>>());
    });
}

#[test]
fn groups_are_counted_by_themselves() {
    for seed in SEEDS {
        let images = random_images(seed, 5, 500);
        let mut analysed = named(&images);
        let group_of = |at: usize| [Some(0), Some(1), None, Some(0), Some(2)][at];
        for (at, image) in analysed.iter_mut().enumerate() {
            image.group = group_of(at);
        }
        let groups: Vec<String> = ["a", "b", "c", "empty"].map(str::to_owned).to_vec();
        let analysis = analyzed(&analysed, &onefold_report::Options { groups, ..options() });
        assert_eq!(analysis.groups.len(), 4);
        for (group, found) in analysis.groups.iter().enumerate() {
            let members: Vec<Vec<u8>> =
                (0..5).filter(|&at| group_of(at) == Some(group)).map(|at| images[at].clone()).collect();
            let places = naive::places(&members, 4096);
            assert_eq!(found.images, members.len() as u64);
            assert_eq!(found.nonzero_bytes, naive::nonzero(&places) * 4096);
            assert_eq!(found.distinct_bytes, places.len() as u64 * 4096);
        }
        assert_eq!(analysis.images[2].group, None);
        assert_eq!(analysis.images[3].group.as_deref(), Some("a"));
    }
}

#[test]
fn runs_of_shared_blocks_are_as_long_as_counted() {
    for_random_sets(|images, analysis| {
        let mut lengths = naive::runs(&naive::places(images, 4096));
        lengths.sort_unstable();
        let blocks: u64 = lengths.iter().sum();
        assert_eq!(analysis.runs.runs, lengths.len() as u64);
        assert_eq!(analysis.runs.shared_bytes, blocks * 4096);
        assert_eq!(analysis.runs.shared_bytes, analysis.total.saved_bytes);
        assert_eq!(analysis.runs.mean_bytes, (blocks * 4096).checked_div(lengths.len() as u64).unwrap_or(0));
        for class in &analysis.runs.lengths {
            let at_most = class.at_most_bytes / 4096;
            let more_than = if at_most == 1 { 0 } else { at_most / 2 };
            let within: Vec<u64> =
                lengths.iter().copied().filter(|&length| length > more_than && length <= at_most).collect();
            assert_eq!((class.runs, class.shared_bytes), (within.len() as u64, within.iter().sum::<u64>() * 4096));
        }
    });
}

#[test]
fn sharing_in_place_counts_plain_files_only() {
    for seed in SEEDS {
        let images = random_images(seed, 4, 500);
        let mut analysed = named(&images);
        analysed[1].is_plain = false;
        let analysis = analyzed(&analysed, &options());
        let plain: Vec<Vec<u8>> = [0, 2, 3].map(|at| images[at].clone()).to_vec();
        let distinct = naive::places(&plain, 4096).len() as u64;
        assert_eq!(analysis.ways.sharing_bytes, distinct * (4096 + 23) + images[1].len() as u64);
        assert_eq!(analysis.ways.now_bytes, images.iter().map(|image| image.len() as u64).sum::<u64>());
    }
}
