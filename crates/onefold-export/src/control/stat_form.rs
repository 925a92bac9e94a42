//! The encoding of the pool's numbers on the wire: field by field, under the pool's own names.
//!
//! The pool crate knows no wire format; these forms mirror its public types, and the compiler keeps them in step.

use onefold_pool::{ActivityStat, FileStat, FilterStat, PoolStat};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Form of [`FileStat`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "FileStat")]
pub(super) struct FileStatForm {
    apparent_bytes: u64,
    zero_bytes: u64,
    unique_bytes: u64,
    shared_bytes: u64,
    distinct_bytes: u64,
    #[serde(default)]
    is_estimated: bool,
}

/// Form of [`FilterStat`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "FilterStat")]
struct FilterStatForm {
    memory_bytes: u64,
    entry_count: u64,
    refused_count: u64,
    groups_pending: u64,
    index_bits: u8,
    tag_bits: u8,
}

/// Form of [`ActivityStat`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "ActivityStat")]
struct ActivityStatForm {
    blocks_accepted: u64,
    blocks_zero: u64,
    blocks_shared: u64,
    blocks_written: u64,
    lookups_for_nothing: u64,
    metadata_blocks_read: u64,
    commits: u64,
    checkpoints: u64,
    replayed: u64,
    #[serde(default)]
    replayed_bytes: u64,
}

/// Form of [`PoolStat`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "PoolStat")]
struct PoolStatFields {
    label: String,
    uuid: String,
    #[serde(default)]
    stopped: Option<String>,
    device_bytes: u64,
    inode_count: u64,
    apparent_bytes: u64,
    zero_bytes: u64,
    unique_bytes: u64,
    shared_bytes: u64,
    saved_by_blocks_bytes: u64,
    saved_by_clones_bytes: u64,
    metadata_fixed_bytes: u64,
    metadata_dynamic_bytes: u64,
    freeing_bytes: u64,
    free_bytes: u64,
    reserved_bytes: u64,
    reclaim_pending: u64,
    #[serde(default)]
    scrubbed_seconds: Option<i64>,
    #[serde(with = "FilterStatForm")]
    filter: FilterStat,
    #[serde(with = "ActivityStatForm")]
    activity: ActivityStat,
}

/// Form of a boxed [`PoolStat`].
pub(super) struct PoolStatForm;

impl PoolStatForm {
    #[expect(clippy::borrowed_box, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(stat: &Box<PoolStat>, serializer: S) -> Result<S::Ok, S::Error> {
        PoolStatFields::serialize(stat, serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<PoolStat>, D::Error> {
        PoolStatFields::deserialize(deserializer).map(Box::new)
    }
}
