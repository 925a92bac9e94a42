//! Images of several users: each user's are shared among themselves, and never with those of another one.

use onefold_testing::simulated::{Host, Mistake, Simulation, SimulationOptions, seeds, simulate};

use super::engine::{benign, comes_to_share_everything, hosts, scan_and_pass};
use crate::declared::decode_declared;

fn work(host: &Host<'_>) {
    drop(scan_and_pass(host));
}

fn owners(seed: u64) -> u32 {
    2 + u32::try_from(seed % 3).expect("below 3")
}

/// Images change hands meanwhile, hosts crash, and every share is held against the owners of both files.
#[test]
fn no_block_is_ever_shared_between_two_users() {
    for seed in seeds(5600, 40) {
        let options = SimulationOptions::drawn(seed, hosts(seed), 10_000).with_owners(owners(seed));
        simulate(&options, work);
    }
}

#[test]
fn no_block_is_ever_shared_between_two_users_where_sharing_takes_two_steps() {
    for seed in seeds(5650, 15) {
        let options =
            SimulationOptions::drawn_in_two_steps(seed, hosts(seed), 10_000, decode_declared).with_owners(owners(seed));
        simulate(&options, work);
    }
}

#[test]
fn once_all_is_calm_all_equal_blocks_of_each_user_are_one() {
    for seed in seeds(5700, 12) {
        comes_to_share_everything(&benign(seed, hosts(seed)).with_owners(owners(seed)));
    }
}

/// An engine that takes all images for one user's is found out.
#[test]
fn a_share_between_two_users_is_found() {
    let found = (5800..5808).filter(|seed| {
        let options = SimulationOptions { seed: *seed, hosts: 2, writer_percent: 5, ..SimulationOptions::default() };
        let options = SimulationOptions { mistake: Some(Mistake::OwnersHidden), ..options.with_owners(3) };
        let failure = Simulation::new(&options, work).run(60_000).err();
        failure.is_some_and(|failure| failure.problem.contains("was to share a block of user"))
    });
    assert!(found.count() >= 7);
}
