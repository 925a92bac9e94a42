//! Compares the pool state's counters with the counted values.

use super::context::Context;
use super::inodes::TreeContent;
use super::span::SpanTotals;
use crate::format::geometry::STATE;
use crate::format::state::Field;

/// Compares every counter. If something was unreadable, they prove nothing.
pub(super) fn check(context: &mut Context<'_>, listed: &TreeContent, sums: &SpanTotals) {
    if sums.unaccounted > 0 {
        let what = format!(
            "{} blocks have fewer references than recorded, which the reported damage explains",
            sums.unaccounted
        );
        context.findings.tell("reference count", None, what);
    }
    if context.is_incomplete || context.is_state_rebuilt {
        return;
    }
    for (field, counted) in counters(listed, sums) {
        let recorded = context.field(field);
        if recorded != counted {
            let what = format!("{}: {recorded}, expected {counted}", name(field));
            context.findings.tell("pool state", Some(STATE), what);
        }
    }
}

/// Returns the correct values of the counters.
pub(super) fn counters(listed: &TreeContent, sums: &SpanTotals) -> [(Field, u64); 9] {
    [
        (Field::Inodes, listed.inodes.len() as u64),
        (Field::ApparentBlocks, listed.apparent_blocks),
        (Field::LogicalBlocks, listed.logical_blocks),
        (Field::References, sums.references),
        (Field::DataBlocks, sums.data),
        (Field::SharedBlocks, sums.shared),
        (Field::MetadataBlocks, sums.metadata),
        (Field::ReservedBlocks, sums.reserved),
        (Field::ReclaimPending, listed.reclaim_count),
    ]
}

fn name(field: Field) -> &'static str {
    match field {
        Field::TreeRoot => "root of the names tree",
        Field::NextIno => "next inode number",
        Field::GroupsReady => "block groups in use",
        Field::NextReclaim => "next number in the reclaim list",
        Field::Inodes => "number of files",
        Field::ApparentBlocks => "blocks spanned by all files",
        Field::LogicalBlocks => "blocks mapped by all files",
        Field::References => "references to data blocks",
        Field::DataBlocks => "data blocks",
        Field::SharedBlocks => "shared data blocks",
        Field::MetadataBlocks => "metadata blocks",
        Field::ReservedBlocks => "reserved blocks",
        Field::ReclaimPending => "entries of the reclaim list",
    }
}
