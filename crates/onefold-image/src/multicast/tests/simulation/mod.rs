//! Up to a thousand machines and a server on one network, simulated.
//!
//! Packets are lost alone and in bursts, come late, twice and in another order. Links are narrow and have short queues.
//! Disks are slow; machines and the server die and return; machines are cut off, and their clocks leap; machines
//! and the server are suspended for minutes; chunks change
//! their form or cannot be built; an insider forges symbols. In the end every machine has the whole image, and no wrong
//! byte was written on the way. Time, bytes sent and requests are within bounds.
//!
//! A violation names its seed: `ONEFOLD_SEED=n` runs one alone, `ONEFOLD_SIMULATIONS=n` sets how many each test runs.

mod bounds;
mod comparison;
mod image;
mod losses;
mod machine;
mod mutants;
mod network;
mod options;
mod rates;
mod server;
mod suspension;
mod world;

use onefold_testing::simulated::seeds;

use self::options::{NetworkOptions, Options};
use self::world::World;
use crate::multicast::SenderCounts;
use crate::multicast::rules::{Rule, leave_out};

/// A mistake that a simulation has shown.
type Violation = String;

/// Counts of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    events: u64,
    finished_ms: u64,
    /// When the last machine was finished that has neither a slow link nor a slow disk.
    fast_finished_ms: u64,
    image_bytes: u64,
    /// Those of them that any machine lacks in the beginning.
    needed_bytes: u64,
    symbol_bytes: u64,
    packets: u64,
    payload_bytes: u64,
    repeated_bytes: u64,
    requests: u64,
    arrived_requests: u64,
    /// Requests that arrived before the last machine was finished.
    timely_requests: u64,
    ignored_requests: u64,
    joins: u64,
    lost: u64,
    dropped_chunks: u64,
    wrong_chunks: u64,
    undecided_chunks: u64,
    forged: u64,
    fetched: u64,
    /// Chunks that were fetched in part, or not at all, since a disk had most of them.
    spared: u64,
    http_turns: u64,
    http_returns: u64,
    deaths: u64,
    restarts: u64,
    cut_offs: u64,
    suspensions: u64,
    server_suspensions: u64,
}

impl Outcome {
    fn add_server(&mut self, counts: &SenderCounts) {
        self.payload_bytes += counts.payload_bytes;
        self.repeated_bytes += counts.repeated_bytes;
        self.ignored_requests += counts.ignored_requests;
    }

    /// Returns the counts that a set of drawn simulations must have.
    fn fields(&self) -> [(&'static str, &u64); 18] {
        [
            ("packets", &self.packets),
            ("bytes that were sent again", &self.repeated_bytes),
            ("requests", &self.requests),
            ("requests that arrived", &self.arrived_requests),
            ("joins", &self.joins),
            ("lost packets", &self.lost),
            ("chunks that were dropped", &self.dropped_chunks),
            ("wrong chunks", &self.wrong_chunks),
            ("forged symbols", &self.forged),
            ("chunks over HTTP", &self.fetched),
            ("chunks that a disk had", &self.spared),
            ("turns to HTTP", &self.http_turns),
            ("returns to multicast", &self.http_returns),
            ("deaths", &self.deaths),
            ("starts of the server", &self.restarts),
            ("machines that were cut off", &self.cut_offs),
            ("machines that were suspended", &self.suspensions),
            ("servers that were suspended", &self.server_suspensions),
        ]
    }

    /// Returns the bytes of chunks that were sent, for each byte of the image.
    fn sent_ratio(&self) -> f64 {
        (self.payload_bytes + self.repeated_bytes) as f64 / self.image_bytes as f64
    }

    /// Returns the requests that reached the server per second.
    fn requests_per_second(&self) -> f64 {
        self.timely_requests as f64 * 1000.0 / self.finished_ms as f64
    }
}

fn simulate(options: Options, without: Option<Rule>) -> Result<Outcome, Violation> {
    leave_out(without);
    let outcome = World::new(options).run();
    leave_out(None);
    let outcome = outcome?;
    bounds::check(&options, &outcome)?;
    Ok(outcome)
}

/// Runs a simulation that must succeed.
fn succeed(options: Options) -> Outcome {
    simulate(options, None).unwrap_or_else(|violation| {
        let violation: String = violation.chars().take(2000).collect();
        panic!("{violation}\nagain with ONEFOLD_SEED={}: {options:?}", options.seed)
    })
}

/// Runs simulations that must succeed, and asserts that each count is above a bound if all of them were run.
fn succeed_with_counts(first: u64, count: u64, least: u64, options: impl Fn(u64) -> Options) {
    let outcomes: Vec<Outcome> = seeds(first, count).map(|seed| succeed(options(seed))).collect();
    println!("{} simulations of multicast", outcomes.len());
    for (at, (what, _)) in Outcome::default().fields().into_iter().enumerate() {
        let found: u64 = outcomes.iter().map(|outcome| outcome.fields()[at].1).sum();
        println!("{found:>9} {what}");
        assert!((outcomes.len() as u64) < count || found > least, "hardly any {what}: {found}");
    }
}

#[test]
fn every_machine_gets_the_image_whatever_happens() {
    succeed_with_counts(1, 600, 40, |seed| Options::drawn(seed, 1 + usize::try_from(seed % 16).unwrap()));
}

#[test]
fn a_few_machines_get_a_small_image_whatever_happens() {
    succeed_with_counts(500_000, 6_000, 200, Options::small);
}

#[test]
fn equal_seeds_run_equally() {
    for seed in seeds(200_000, 10) {
        let options = Options::drawn(seed, 6);
        assert_eq!(succeed(options), succeed(options), "ONEFOLD_SEED={seed}");
    }
}

/// The server's work does not grow with the number of machines.
#[test]
fn a_thousand_machines_make_as_many_requests_as_sixteen() {
    for loss in [0, 10_000] {
        let requests = |machines| {
            let network = NetworkOptions { loss, ..NetworkOptions::PERFECT };
            let outcome = succeed(Options { network, ..Options::calm(7, machines) });
            println!("{machines} machines, loss {loss} in a million: {outcome:?}");
            outcome.requests_per_second()
        };
        let (sixteen, thousand) = (requests(16), requests(1000));
        assert!(thousand <= 1.5 * sixteen, "{thousand:.1} per second, of 16 machines {sixteen:.1}");
    }
}

#[test]
fn hundreds_of_machines_get_the_image_whatever_happens() {
    for seed in seeds(100_000, 6) {
        succeed(Options::drawn(seed, 200));
    }
}

/// The server does not send chunks that all disks have, even if disks take longer to compare than the network takes to
/// send.
#[test]
fn machines_with_an_earlier_version_cost_what_they_lack() {
    for seed in seeds(400_000, 40) {
        let [slow, fast] = [30, 300].map(|compare_percent| {
            let machines = 1 + usize::try_from(seed % 16).unwrap();
            succeed(Options { updates: 100, compare_percent, chunks: 100, ..Options::calm(seed, machines) })
        });
        for outcome in [slow, fast] {
            let share = outcome.needed_bytes as f64 / outcome.image_bytes as f64;
            assert!(share < 0.75 && outcome.sent_ratio() <= share + 0.05, "ONEFOLD_SEED={seed}: {share} {outcome:?}");
        }
    }
}

#[test]
fn one_machine_without_loss_gets_every_byte_once() {
    for seed in seeds(300_000, 20) {
        let outcome = succeed(Options::calm(seed, 1));
        assert_eq!((outcome.sent_ratio(), outcome.lost, outcome.dropped_chunks), (1.0, 0, 0), "ONEFOLD_SEED={seed}");
    }
}
