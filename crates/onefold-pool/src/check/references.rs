//! All references of a pool, counted for some block groups at a time.

use super::context::Context;
use super::inodes::TreeContent;
use super::maps;
use super::reader::CheckError;
use super::span::{GroupSpan, SpanTotals, groups_per_span};
use crate::format::geometry::GROUP_BLOCKS;

/// Checks all groups in use and all references.
pub(super) fn check_all(context: &mut Context<'_>, listed: &TreeContent) -> Result<SpanTotals, CheckError> {
    let ready = context.groups_ready();
    let mut sums = SpanTotals::default();
    check_filter_runs(context, listed);
    let groups = groups_per_span(context.memory_bytes);
    let mut first = 0;
    while first < ready {
        let end = (first + groups).min(ready);
        let mut span = GroupSpan::load(context, first..end, &mut sums)?;
        maps::walk(context, &mut span, listed, first == 0, &mut sums)?;
        span.check_filter_blocks(context, listed);
        span.settle(context, &mut sums);
        first = end;
    }
    Ok(sums)
}

/// Reports impossible runs of the saved filter. If they have more blocks together than the pool, they overlap.
fn check_filter_runs(context: &mut Context<'_>, listed: &TreeContent) {
    let end = (context.groups_ready() * GROUP_BLOCKS).min(context.geometry.total_blocks);
    let sum: u64 = listed.filter_runs.iter().map(|run| run.count).sum();
    let outside = listed.filter_runs.iter().any(|run| run.first.0.saturating_add(run.count) > end);
    if outside || sum > end {
        context.findings.tell("saved filter", None, "it is recorded outside the block groups in use");
    }
}
