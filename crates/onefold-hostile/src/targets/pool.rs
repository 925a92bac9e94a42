//! Whole pools with believed damage.

use crate::Choices;
use crate::mutate::{damage_blocks, damage_journal};
use crate::samples::samples;
use crate::usage::use_pool;

/// Damages metadata blocks of a pool and uses it.
pub(super) fn run_blocks(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let sample = choices.one_of(samples());
    let image = damage_blocks(&mut choices, sample);
    use_pool(&mut choices, image);
}

/// Damages the journal of a pool and uses the pool.
pub(super) fn run_journal(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    // The samples that have a journal to replay.
    let sample = &samples()[1 + choices.index(2)];
    let image = damage_journal(&mut choices, sample);
    use_pool(&mut choices, image);
}
