//! Mistakes that simulations must notice: each rule is left out in turn.

use super::*;

/// Asserts that simulations notice that a rule is left out, and that the same simulations without the mistake succeed:
/// a false alarm would count as a mistake that was noticed.
fn expect_caught(rule: Rule, seeds: u64, options: impl Fn(u64) -> Options) {
    let caught = (1..=seeds).find_map(|seed| {
        let violation = simulate(options(seed), Some(rule)).err()?;
        succeed(options(seed));
        Some((seed, violation))
    });
    let (seed, violation) = caught.unwrap_or_else(|| panic!("{rule:?} is not missed"));
    println!("{rule:?}: seed {seed}: {}", violation.chars().take(80).collect::<String>());
}

fn calm(seed: u64, machines: usize, network: NetworkOptions) -> Options {
    Options { network, ..Options::calm(seed, machines) }
}

#[test]
fn no_suppression_is_missed() {
    let network = NetworkOptions { delay_ms: 30, ..NetworkOptions::PERFECT };
    expect_caught(Rule::BeaconsAnswer, 5, |seed| calm(seed, 100, network));
    expect_caught(Rule::PausesGrow, 5, |seed| calm(seed, 100, network));
}

#[test]
fn no_pacing_is_missed() {
    expect_caught(Rule::Paced, 1, |seed| calm(seed, 1, NetworkOptions::PERFECT));
}

#[test]
fn mixed_forms_are_missed() {
    let network = NetworkOptions { loss: 50_000, ..NetworkOptions::PERFECT };
    let change = |seed| Options { form_changes: 10, cache_chunks: 2, ..calm(seed, 4, network) };
    expect_caught(Rule::FormsApart, 100, change);
}

#[test]
fn requests_for_what_a_disk_has_are_missed() {
    let update = |seed| Options { updates: 100, compare_percent: 30, ..calm(seed, 4, NetworkOptions::PERFECT) };
    expect_caught(Rule::ComparedFirst, 20, update);
}

#[test]
fn bytes_that_are_sent_in_vain_are_missed() {
    let network = NetworkOptions { loss: 10_000, delay_ms: 40, ..NetworkOptions::PERFECT };
    expect_caught(Rule::FlightsCount, 60, |seed| calm(seed, 2, network));
    expect_caught(Rule::PartsRepaired, 5, |seed| calm(seed, 16, network));
}
