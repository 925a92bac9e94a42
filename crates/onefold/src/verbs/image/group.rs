//! Results of multicast in the report of an installation.

use onefold_net::SharedGroupReport;
use serde_json::{Value, json};

use crate::size::grouped;

/// Why an installation takes single chunks over HTTP, and does not listen to multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnusedReason {
    /// The target has a part of the image.
    Target,
    /// Seeds may have a part of the image.
    Seed,
}

impl UnusedReason {
    /// Returns the reason, if there is one, for an installation that found so many bytes of the image on its target.
    pub(super) fn of(has_seeds: bool, found_bytes: u64) -> Option<UnusedReason> {
        match (has_seeds, found_bytes) {
            (true, _) => Some(UnusedReason::Seed),
            (false, 0) => None,
            (false, _) => Some(UnusedReason::Target),
        }
    }
}

/// Returns which part came by multicast, for people; nothing if that was not asked for.
pub(super) fn text(group: Option<&SharedGroupReport>, unused: Option<UnusedReason>) -> String {
    let Some(report) = group.map(|group| *group.lock()) else { return String::new() };
    if report.chunks == 0 {
        let why = match unused {
            Some(UnusedReason::Target) => "the target has a part of the image, and the rest came over HTTP",
            Some(UnusedReason::Seed) => "an installation with --seed takes the rest over HTTP",
            None => return "\nnothing came by multicast, all over HTTP".to_owned(),
        };
        return format!("\nnothing came by multicast: {why}");
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
pub(super) fn json(group: &SharedGroupReport, unused: Option<UnusedReason>) -> Value {
    let report = *group.lock();
    let unused = unused.filter(|_| report.chunks == 0).map(|reason| match reason {
        UnusedReason::Target => "target",
        UnusedReason::Seed => "seed",
    });
    json!({
        "chunks": report.chunks,
        "http_chunks": report.http_chunks,
        "received_packets": report.received_packets,
        "sent_packets": report.sent_packets,
        "refused_packets": report.refused_packets,
        "dropped_chunks": report.dropped_chunks,
        "requests": report.requests,
        "unused_because_of": unused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_chunks_over_http_is_told() {
        let group = SharedGroupReport::default();
        for (has_seeds, found_bytes, text_part, machine_part) in [
            (false, 0, "all over HTTP", Value::Null),
            (false, 4096, "the target has a part", json!("target")),
            (true, 4096, "--seed", json!("seed")),
        ] {
            let unused = UnusedReason::of(has_seeds, found_bytes);
            assert!(text(Some(&group), unused).contains(text_part), "{text_part}");
            assert_eq!(json(&group, unused)["unused_because_of"], machine_part);
        }
        group.lock().chunks = 1;
        assert!(text(Some(&group), UnusedReason::of(false, 0)).starts_with("\nby multicast: 1 of 1 chunks"));
        assert_eq!(text(None, None), "");
    }
}
