//! Results of multicast in the report of an installation.

use onefold_block::size::percent;
use onefold_net::SharedGroupReport;
use serde_json::{Value, json};

use crate::size::grouped;

/// Returns which part came by multicast, for people; nothing if the image is not sent so.
pub(super) fn text(group: Option<&SharedGroupReport>) -> String {
    let Some(report) = group.map(|group| group.lock().clone()) else { return String::new() };
    let spared = match report.spared_chunks {
        0 => String::new(),
        spared => format!(" (the target or seeds have most of {} others)", grouped(spared)),
    };
    if report.chunks == 0 && report.http_chunks == 0 && report.spared_chunks > 0 {
        return "\nno chunk had to come: the target or seeds have most of each".to_owned();
    }
    if report.chunks == 0 {
        return format!("\nnothing came by multicast, all over HTTP{spared}");
    }
    let lost = report.sent_packets.saturating_sub(report.received_packets);
    format!(
        "\nby multicast: {} of {} chunks{spared}, {} of the packets lost, {} requests, {} symbols requested again",
        grouped(report.chunks),
        grouped(report.chunks.saturating_add(report.http_chunks)),
        percent(lost, report.sent_packets),
        grouped(report.requests),
        grouped(report.requested_symbols),
    )
}

/// Returns the same for machines.
pub(super) fn json(group: &SharedGroupReport) -> Value {
    let report = group.lock().clone();
    let way = report.way.map(|way| {
        json!({
            "interface": way.interface,
            "source": way.source.ip().to_string(),
            "group": way.group.ip().to_string(),
            "port": way.group.port(),
            "request_port": way.source.port(),
            "ttl": way.ttl,
            "is_source_specific": way.is_source_specific,
        })
    });
    json!({
        "chunks": report.chunks,
        "http_chunks": report.http_chunks,
        "spared_chunks": report.spared_chunks,
        "received_packets": report.received_packets,
        "sent_packets": report.sent_packets,
        "refused_packets": report.refused_packets,
        "dropped_chunks": report.dropped_chunks,
        "requests": report.requests,
        "requested_symbols": report.requested_symbols,
        "repeated_bytes": report.repeated_bytes,
        "way": way,
    })
}

#[cfg(test)]
mod tests {
    use onefold_net::GroupWay;

    use super::*;

    #[test]
    fn the_way_of_chunks_is_told() {
        let group = SharedGroupReport::default();
        assert_eq!(text(None), "");
        assert_eq!(text(Some(&group)), "\nnothing came by multicast, all over HTTP");
        group.lock().spared_chunks = 1200;
        assert_eq!(text(Some(&group)), "\nno chunk had to come: the target or seeds have most of each");
        group.lock().http_chunks = 1;
        assert!(text(Some(&group)).ends_with("over HTTP (the target or seeds have most of 1,200 others)"));
        group.lock().chunks = 1;
        assert!(text(Some(&group)).starts_with("\nby multicast: 1 of 2 chunks (the target"));
        assert_eq!(json(&group)["spared_chunks"], 1200);
        assert!(json(&group)["way"].is_null());
        let place = |text: &str| text.parse().unwrap();
        let (source, to) = (place("192.0.2.5:7443"), place("239.192.3.7:7444"));
        group.lock().way =
            Some(GroupWay { interface: "eth1".to_owned(), source, group: to, ttl: 3, is_source_specific: true });
        let way = &json(&group)["way"];
        assert_eq!((&way["port"], &way["request_port"], &way["ttl"]), (&json!(7444), &json!(7443), &json!(3)));
    }
}
