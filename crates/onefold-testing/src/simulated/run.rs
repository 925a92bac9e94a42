//! Whole runs, for tests.

use std::rc::Rc;

use super::host::Host;
use super::options::SimulationOptions;
use super::outcome::Outcome;
use super::scheduler::Simulation;

/// Runs a simulation to its end.
///
/// # Panics
/// When an invariant is violated or the work panics. The message has the seed, the step and the steps before it.
pub fn simulate(options: &SimulationOptions, work: impl Fn(&Host<'_>) + 'static) -> Outcome {
    let work = Rc::new(work);
    let run = |options: &SimulationOptions| {
        let work = Rc::clone(&work);
        let mut simulation = Simulation::new(options, move |host: &Host<'_>| work(host));
        simulation.run(options.steps)?;
        simulation.finish()
    };
    match run(options) {
        Ok(outcome) => outcome,
        Err(failure) => {
            // Runs the same again, this time keeping the steps as text.
            let told = run(&SimulationOptions { tells_steps: true, ..options.clone() });
            panic!("{}", told.err().filter(|told| told.step == failure.step).unwrap_or(failure));
        }
    }
}

/// Returns the seeds that a test runs: `count` seeds from `first` on, or only the one in `ONEFOLD_SEED`.
/// `ONEFOLD_SIMULATIONS` sets the count, and `ONEFOLD_FIRST_SEED` is added to the first, to get new seeds.
///
/// # Panics
/// When one of them is not a number.
pub fn seeds(first: u64, count: u64) -> impl Iterator<Item = u64> {
    let number = |variable: &str| {
        let text = std::env::var(variable).ok()?;
        let number = text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
        Some(number.unwrap_or_else(|| panic!("{variable} is not a number: {text}")))
    };
    match number("ONEFOLD_SEED") {
        Some(seed) => seed..seed.saturating_add(1),
        None => {
            let first = first.saturating_add(number("ONEFOLD_FIRST_SEED").unwrap_or(0));
            first..first.saturating_add(number("ONEFOLD_SIMULATIONS").unwrap_or(count))
        }
    }
}
