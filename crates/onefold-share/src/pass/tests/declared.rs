//! Decoding of intents, which the simulation does not know.

use onefold_testing::simulated::{DeclaredRun, DeclaredShare};

/// Returns the share that a file of the intents' folder declares, for a simulated file system that shares in two steps.
pub(crate) fn decode_declared(bytes: &[u8]) -> Option<DeclaredShare> {
    let intent = crate::format::intent::decode_declared(bytes, &[0; 16]).ok()??.intent;
    let run_of = |run: &crate::format::intent::IntentRun| DeclaredRun {
        first: run.first.0,
        count: run.count.into(),
        arena: format!(".onefold/arena/{}", run.slot.arena()).into(),
        slot: run.slot.index(),
    };
    Some(DeclaredShare { handle: intent.handle, runs: intent.runs.iter().map(run_of).collect() })
}
