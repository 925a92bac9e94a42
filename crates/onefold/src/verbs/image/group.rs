//! Results of multicast in the report of an installation.

use onefold_net::SharedGroupReport;
use serde_json::{Value, json};

use crate::size::grouped;

/// Returns which part came by multicast, for people; nothing if that was not asked for.
pub(super) fn text(group: Option<&SharedGroupReport>) -> String {
    let Some(report) = group.map(|group| *group.lock()) else { return String::new() };
    if report.chunks == 0 {
        return "\nnothing came by multicast, all over HTTP".to_owned();
    }
    let lost = report.sent_packets.saturating_sub(report.received_packets);
    let thousandths = lost.saturating_mul(1000).checked_div(report.sent_packets).unwrap_or(0);
    format!(
        "\nby multicast: {} of {} chunks, {}.{} % of the packets lost, {} requests",
        grouped(report.chunks),
        grouped(report.chunks.saturating_add(report.http_chunks)),
        thousandths / 10,
        thousandths % 10,
        grouped(report.requests),
    )
}

/// Returns the same for machines.
pub(super) fn json(group: &SharedGroupReport) -> Value {
    let report = *group.lock();
    json!({
        "chunks": report.chunks,
        "http_chunks": report.http_chunks,
        "received_packets": report.received_packets,
        "sent_packets": report.sent_packets,
        "refused_packets": report.refused_packets,
        "dropped_chunks": report.dropped_chunks,
        "requests": report.requests,
    })
}
