//! Damage that is believed: fields of metadata blocks, and of the files of sharing, are changed and the checksums made
//! right again.

mod block;
mod fields;
mod journal;
mod record;
mod values;

pub use block::damage_blocks;
pub use journal::damage_journal;
pub use record::{damage_record, hurtful_number, seal_record};
