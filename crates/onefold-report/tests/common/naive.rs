//! An independent counter: maps from the bytes themselves to their places, and loops over them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Places of each content that is not zero, for one block size.
pub(crate) type ContentPlaces = BTreeMap<Vec<u8>, Vec<(usize, u64)>>;

/// Returns the block at `index`, filled up with zeros behind the end.
pub(crate) fn block(image: &[u8], index: usize, size: usize) -> Vec<u8> {
    let start = (index * size).min(image.len());
    let mut block = image[start..(start + size).min(image.len())].to_vec();
    block.resize(size, 0);
    block
}

pub(crate) fn places(images: &[Vec<u8>], size: usize) -> ContentPlaces {
    let mut places = ContentPlaces::new();
    for (at, image) in images.iter().enumerate() {
        for index in 0..image.len().div_ceil(size) {
            let block = block(image, index, size);
            if block.iter().any(|&byte| byte != 0) {
                places.entry(block).or_default().push((at, index as u64));
            }
        }
    }
    places
}

/// The numbers of one image, in blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageNumbers {
    pub(crate) apparent: u64,
    pub(crate) nonzero: u64,
    pub(crate) distinct: u64,
    pub(crate) only_here: u64,
    pub(crate) new: u64,
}

pub(crate) fn image_numbers(images: &[Vec<u8>], at: usize) -> ImageNumbers {
    let contents = |image: &Vec<u8>| -> Vec<Vec<u8>> {
        let blocks = (0..image.len().div_ceil(4096)).map(|index| block(image, index, 4096));
        blocks.filter(|block| block.iter().any(|&byte| byte != 0)).collect()
    };
    let own = contents(&images[at]);
    let own_set: HashSet<&Vec<u8>> = own.iter().collect();
    let set_of = |range: &mut dyn Iterator<Item = usize>| -> HashSet<Vec<u8>> {
        range.filter(|&other| other != at).flat_map(|other| contents(&images[other])).collect()
    };
    let others = set_of(&mut (0..images.len()));
    let before = set_of(&mut (0..at));
    ImageNumbers {
        apparent: images[at].len().div_ceil(4096) as u64,
        nonzero: own.len() as u64,
        distinct: own_set.len() as u64,
        only_here: own_set.iter().filter(|block| !others.contains(**block)).count() as u64,
        new: own_set.iter().filter(|block| !before.contains(**block)).count() as u64,
    }
}

pub(crate) fn nonzero(places: &ContentPlaces) -> u64 {
    places.values().map(|places| places.len() as u64).sum()
}

/// Different pairs of content and offset.
pub(crate) fn at_offsets(places: &ContentPlaces) -> u64 {
    places.values().map(|places| places.iter().map(|place| place.1).collect::<BTreeSet<_>>().len() as u64).sum()
}

/// Contents that are in at most `times` places.
pub(crate) fn at_most(places: &ContentPlaces, times: u64) -> u64 {
    places.values().filter(|places| places.len() as u64 <= times).count() as u64
}

/// Contents that two images have in common, and those that one of them has.
pub(crate) fn common_and_any(places: &ContentPlaces, one: usize, other: usize) -> (u64, u64) {
    let has = |places: &[(usize, u64)], image| places.iter().any(|place| place.0 == image);
    let count = |test: &dyn Fn(bool, bool) -> bool| {
        places.values().filter(|places| test(has(places, one), has(places, other))).count() as u64
    };
    (count(&|a, b| a && b), count(&|a, b| a || b))
}

/// Lengths of the runs of shared blocks, in blocks: each block that is not the first of its content, with its next.
pub(crate) fn runs(places: &ContentPlaces) -> Vec<u64> {
    let mut first_of: HashMap<(usize, u64), (usize, u64)> = HashMap::new();
    for places in places.values() {
        let first = places.iter().min().unwrap();
        for place in places.iter().filter(|place| *place != first) {
            first_of.insert(*place, *first);
        }
    }
    let continues = |place: (usize, u64)| {
        let before = (place.0, place.1.wrapping_sub(1));
        let (Some(first), Some(first_before)) = (first_of.get(&place), first_of.get(&before)) else { return false };
        first.0 == first_before.0 && first.1 == first_before.1 + 1
    };
    let starts = first_of.keys().filter(|&&place| !continues(place));
    starts.map(|&(image, index)| (1..).find(|length| !continues((image, index + length))).unwrap()).collect()
}

/// Map nodes of an image as the pool's format has them.
pub(crate) fn map_nodes(image: &[u8]) -> u64 {
    let blocks: Vec<u64> = (0..image.len().div_ceil(4096))
        .filter(|&index| block(image, index, 4096).iter().any(|&byte| byte != 0))
        .map(|index| index as u64)
        .collect();
    let highest = blocks.last().copied().unwrap_or(0);
    if highest < 12 {
        return 0;
    }
    let (mut span, mut count) = (1, 0);
    loop {
        span *= 508;
        count += blocks.iter().map(|index| index / span).collect::<BTreeSet<_>>().len() as u64;
        if highest < span {
            return count;
        }
    }
}
