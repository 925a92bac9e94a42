//! The states of blocks, on XFS and Btrfs.

use crate::ground::{no_child, on_each};
use crate::states_walk::{Walk, hold_figure};

#[test]
fn blocks_go_the_ways_of_the_figure_and_no_others() {
    on_each(|ground| {
        let _no_child = no_child();
        let settle = || rustix::fs::syncfs(std::fs::File::open(&ground.root).unwrap()).unwrap();
        hold_figure(&Walk::new(&ground.substrate, 7, true, &settle).go(200), true);
    });
}
