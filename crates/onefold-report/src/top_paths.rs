//! The paths of the files that have the most repeated blocks. The images are read again for them, while larger blocks
//! are counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use onefold_block::BLOCK_BYTES_U64;

use crate::files::paths_of;
use crate::image::Image;
use crate::top::TopBlock;

/// Number of images whose guests are read in parallel.
const SIDE_BY_SIDE: usize = 2;
/// Maximum cache of a disk while its files are searched, if there is enough memory.
const CACHE_BYTES_MAX: usize = 8 << 20;

/// The blocks of an image: the index of each among the most repeated, and its first byte.
type Blocks = Vec<(usize, u64)>;

/// Input for finding the paths of some blocks.
pub(crate) struct TopPaths<'a> {
    images: &'a [Image],
    by_image: Vec<(usize, Blocks)>,
    cache_bytes: usize,
    is_over: &'a AtomicBool,
}

impl<'a> TopPaths<'a> {
    /// Prepares the search for those blocks in `top` that `has_path` accepts. It takes up to a thirty-second of
    /// `memory_bytes`, and ends early once `is_over` is set.
    pub(crate) fn new(
        images: &'a [Image],
        top: &[TopBlock],
        has_path: impl Fn(&TopBlock) -> bool,
        memory_bytes: usize,
        is_over: &'a AtomicBool,
    ) -> TopPaths<'a> {
        let mut by_image: BTreeMap<usize, Blocks> = BTreeMap::new();
        for (at, block) in top.iter().enumerate().filter(|(_, block)| has_path(block)) {
            by_image.entry(block.image).or_default().push((at, block.index.saturating_mul(BLOCK_BYTES_U64)));
        }
        let cache_bytes = (memory_bytes / 32 / SIDE_BY_SIDE).min(CACHE_BYTES_MAX);
        TopPaths { images, by_image: by_image.into_iter().collect(), cache_bytes, is_over }
    }

    /// Returns the paths by the indices of their blocks among the most repeated. An image that cannot be read again has
    /// no paths.
    pub(crate) fn read(&self) -> BTreeMap<usize, Vec<u8>> {
        // Two such images would need a copy each.
        let is_copied = |image: usize| self.images.get(image).is_some_and(|image| image.is_copied);
        let has_copy = self.by_image.iter().any(|(image, _)| is_copied(*image));
        let mut found = BTreeMap::new();
        for some in self.by_image.chunks(if has_copy { 1 } else { SIDE_BY_SIDE }) {
            let read: Vec<Vec<Option<Vec<u8>>>> = thread::scope(|scope| {
                let others: Vec<_> = some.iter().skip(1).map(|image| scope.spawn(|| self.of_image(image))).collect();
                let first = some.first().map(|image| self.of_image(image));
                let others = others.into_iter().map(|thread| thread.join().expect("reading paths does not panic"));
                first.into_iter().chain(others).collect()
            });
            for ((at, _), path) in some.iter().zip(read).flat_map(|((_, blocks), paths)| blocks.iter().zip(paths)) {
                found.extend(path.map(|path| (*at, path)));
            }
        }
        found
    }

    /// Returns the path for each block of an image.
    fn of_image(&self, (image, blocks): &(usize, Blocks)) -> Vec<Option<Vec<u8>>> {
        let is_over = || self.is_over.load(Ordering::Relaxed);
        if is_over() {
            return Vec::new();
        }
        let places: Vec<u64> = blocks.iter().map(|block| block.1).collect();
        let opened = self.images.get(*image).and_then(|image| (image.open)().ok());
        let paths = opened.and_then(|opened| paths_of(opened.disk.as_ref(), &places, self.cache_bytes, &is_over).ok());
        paths.unwrap_or_default()
    }
}
