//! Mistakes that simulations must notice: each rule of the ledger is left out in turn.

use super::*;

/// Number of seeds of which at least one must show each mistake.
const SEEDS: u64 = 1200;

/// Returns the first violation by a mistake, with its seed. Asserts that the same simulation without the mistake has
/// none: a false alarm would count as a mistake that was noticed.
fn caught(mutant: Mutant, change: impl Fn(Options) -> Options) -> Option<(u64, Violation)> {
    (1..=SEEDS).find_map(|seed| {
        let options = change(Options::drawn(seed, 2 + usize::try_from(seed % 9).unwrap(), 600));
        let violation = simulate(&options, Some(mutant)).err()?;
        if let Err(other) = simulate(&options, None) {
            panic!("seed {seed}: without {mutant:?}, too: {other}\n{options:?}");
        }
        Some((seed, violation))
    })
}

fn expect_caught(mutant: Mutant, change: impl Fn(Options) -> Options) {
    let (seed, violation) = caught(mutant, change).unwrap_or_else(|| panic!("{mutant:?} is not noticed"));
    println!("{mutant:?}: seed {seed}: {violation}");
}

/// Packs are damaged, away or unreadable in these.
#[test]
fn every_rule_of_repairs_that_is_left_out_is_missed() {
    for rule in [Rule::MissingPacksStay, Rule::UnreadPacksStay, Rule::LastCopiesStay] {
        expect_caught(Mutant::Without(rule), |options| Options { accident_in: 20, return_in: 1000, ..options });
    }
    // A unit may be called lost because a call failed. A repair takes long here beside few others.
    expect_caught(Mutant::Without(Rule::PacksSinceCount), |options| Options {
        actors: 4,
        calls: 1500,
        fault_in: 0,
        death_in: 0,
        sleep_in: 0,
        lag_max: 0,
        accident_in: 20,
        return_in: 1000,
        ..options
    });
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
        expect_caught(mutant, |options| Options { accident_in: 0, ..options });
    }
}
