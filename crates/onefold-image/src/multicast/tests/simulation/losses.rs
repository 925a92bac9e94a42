//! Bytes that are sent, where each machine loses other packets.

use super::*;
use crate::format::multicast::RepairCode;

/// Sixteen machines, and chunks that have as many symbols as usual ones of 1 MiB.
fn options(loss: u64, repairs: RepairCode) -> Options {
    let network = NetworkOptions { loss, ..NetworkOptions::PERFECT };
    Options {
        chunks: 12,
        chunk_bytes_max: 188_000,
        rate: 400_000,
        join_ms: 0,
        memory_chunks: 13,
        network,
        repairs,
        ..Options::calm(21, 16)
    }
}

/// Loss in a million, and the bytes that are sent at most for each byte of the image.
const BOUNDS: [(u64, f64); 3] = [(0, 1.005), (10_000, 1.04), (50_000, 1.12)];

#[test]
fn one_repair_symbol_mends_another_loss_at_each_machine() {
    for (loss, bound) in BOUNDS {
        let outcome = succeed(options(loss, RepairCode::RaptorQ));
        println!("16 machines, loss {loss} in a million: {:.4} bytes sent for each", outcome.sent_ratio());
        assert!(outcome.sent_ratio() <= bound, "{:.4}: {outcome:?}", outcome.sent_ratio());
        if loss > 0 {
            let originals = simulate(options(loss, RepairCode::RaptorQ), Some(Rule::RepairsCoded)).unwrap();
            let without = succeed(options(loss, RepairCode::None));
            println!("  with originals {:.4}, without {:.4}", originals.sent_ratio(), without.sent_ratio());
            assert!(without.sent_ratio() > bound, "repair symbols are missed");
            // Machines that lack many symbols of a chunk do not list them, so this rule is not all.
            assert!(originals.sent_ratio() > outcome.sent_ratio() + 0.01, "{:.4}", originals.sent_ratio());
        }
    }
}
