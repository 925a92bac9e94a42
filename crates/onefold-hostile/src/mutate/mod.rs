//! Damage that is believed: fields of metadata blocks are changed and the checksums made right again.

mod block;
mod fields;
mod journal;
mod values;

pub use block::damage_blocks;
pub use journal::damage_journal;
