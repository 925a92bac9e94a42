//! Damage that is believed: changes fields of metadata blocks and of sharing's files, and corrects the checksums.

mod block;
mod fields;
mod journal;
mod record;
mod values;

pub use block::damage_blocks;
pub use journal::damage_journal;
pub use record::{damage_record, hurtful_number, seal_record};
