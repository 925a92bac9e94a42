//! Mistakes that simulations must notice: each rule of the ledger is left out in turn.

use super::*;

/// Number of seeds of which at least one must show each mistake.
const SEEDS: u64 = 1200;

/// Returns the first violation by a mistake, with its seed.
fn caught(mutant: Mutant) -> Option<(u64, Violation)> {
    (1..=SEEDS).find_map(|seed| {
        let options = Options::drawn(seed, 2 + usize::try_from(seed % 9).unwrap(), 600);
        // Where packs are damaged, deeds may fail without a mistake.
        let options = Options { accident_in: 0, ..options };
        simulate(&options, Some(mutant)).err().map(|violation| (seed, violation))
    })
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    let mutants = [
        Mutant::Without(Rule::DurableBeforeEntry),
        Mutant::Without(Rule::ReliedPacksHold),
        Mutant::Without(Rule::UnneededAtPosition),
        Mutant::Without(Rule::ReadersReadOn),
        Mutant::Without(Rule::GivenUpAddsNothing),
        Mutant::Without(Rule::WritersOwnObjects),
        Mutant::Without(Rule::NoClockDeletes),
        Mutant::Without(Rule::EntriesStay),
        Mutant::EntriesDeleted,
        Mutant::Without(Rule::TokensCompared),
        Mutant::Without(Rule::ErrorsProveNothing),
        Mutant::WriterCleansUp,
    ];
    for mutant in mutants {
        let (seed, violation) = caught(mutant).unwrap_or_else(|| panic!("{mutant:?} is not noticed"));
        println!("{mutant:?}: seed {seed}: {violation}");
    }
}
