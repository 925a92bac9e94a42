//! The circumstances of a simulation, drawn from its seed.

use onefold_block::random::SeededRandom;

use crate::format::multicast::RepairCode;

/// A simulation. Chances are per million; times are in milliseconds, rates in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) seed: u64,
    pub(super) machines: usize,
    pub(super) chunks: u32,
    /// Length of the longest chunk in bytes.
    pub(super) chunk_bytes_max: u64,
    pub(super) rate: u64,
    /// Machines join within this time.
    pub(super) join_ms: u64,
    /// Memory of a machine, in chunks of the greatest length.
    pub(super) memory_chunks: u64,
    /// Cache of the server, likewise.
    pub(super) cache_chunks: u64,
    /// The longest time that a chunk takes to build.
    pub(super) build_ms_max: u64,
    /// Chance that a chunk cannot be built.
    pub(super) build_fails: u64,
    /// Chance that the server wakes up late, and the longest delay.
    pub(super) late_wakes: u64,
    pub(super) late_ms_max: u64,
    pub(super) network: NetworkOptions,
    /// The repair symbols of the server.
    pub(super) repairs: RepairCode,
    /// Number of machines, the first ones, with another link: its rate in per cent of the server's.
    pub(super) slow_links: usize,
    pub(super) slow_link_percent: u64,
    /// Machines in a hundred whose disk is slower than the network.
    pub(super) slow_disks: u64,
    /// Machines in a hundred that multicast never reaches.
    pub(super) deaf: u64,
    /// Machines in a hundred that die, and of these, machines in a hundred that return.
    pub(super) deaths: u64,
    pub(super) returns: u64,
    /// Machines in a hundred that are cut off for a while; the clocks of some leap meanwhile.
    pub(super) partitions: u64,
    /// Machines in a hundred that are suspended for a while, number of times the server is, and the longest time.
    pub(super) suspensions: u64,
    pub(super) server_suspensions: u64,
    pub(super) suspended_ms_max: u64,
    /// Number of times the server starts again, and how long it is away at most.
    pub(super) restarts: u64,
    pub(super) restart_ms_max: u64,
    /// Number of times chunks get another form.
    pub(super) form_changes: u64,
    /// Chance that a symbol is replaced by a forged one.
    pub(super) forged: u64,
    /// Machines in a hundred whose disk has a part of the image: of each chunk the same on all of them.
    pub(super) updates: u64,
    /// Rate at which they compare it, in per cent of the network's.
    pub(super) compare_percent: u64,
    /// Number of machines that a session waits for, and how long at most; 0 for none.
    pub(super) wait_for: u32,
    pub(super) wait_ms_max: u64,
}

/// The network between the server and each machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkOptions {
    /// Chance that a packet is lost to one machine, by itself.
    pub(super) loss: u64,
    /// Chance that a burst of losses begins, and its greatest length in packets.
    pub(super) burst: u64,
    pub(super) burst_packets_max: u64,
    /// Chance that a packet is lost to all machines.
    pub(super) common_loss: u64,
    pub(super) duplicates: u64,
    pub(super) delay_ms: u64,
    /// Additional delay of single packets, which reorders them.
    pub(super) jitter_ms: u64,
    /// Rate of the link of each machine in per cent of the server's, and the packets that wait there at most.
    pub(super) link_percent: u64,
    pub(super) queue_packets: u64,
}

impl NetworkOptions {
    pub(super) const PERFECT: NetworkOptions = NetworkOptions {
        loss: 0,
        burst: 0,
        burst_packets_max: 0,
        common_loss: 0,
        duplicates: 0,
        delay_ms: 1,
        jitter_ms: 0,
        link_percent: 130,
        queue_packets: 48,
    };
}

impl Options {
    /// Returns a simulation in which nothing goes wrong.
    pub(super) const fn calm(seed: u64, machines: usize) -> Options {
        Options {
            seed,
            machines,
            chunks: 30,
            chunk_bytes_max: 2500,
            rate: 100_000,
            join_ms: 100,
            memory_chunks: 40,
            cache_chunks: 16,
            build_ms_max: 5,
            build_fails: 0,
            late_wakes: 0,
            late_ms_max: 0,
            network: NetworkOptions::PERFECT,
            repairs: RepairCode::RaptorQ,
            slow_links: 0,
            slow_link_percent: 100,
            slow_disks: 0,
            deaf: 0,
            deaths: 0,
            returns: 0,
            partitions: 0,
            suspensions: 0,
            server_suspensions: 0,
            suspended_ms_max: 1,
            restarts: 0,
            restart_ms_max: 0,
            form_changes: 0,
            forged: 0,
            updates: 0,
            compare_percent: 300,
            wait_for: 0,
            wait_ms_max: 0,
        }
    }

    /// Draws a simulation from its seed.
    pub(super) fn drawn(seed: u64, machines: usize) -> Options {
        let random = SeededRandom::new(seed ^ 0x3a57);
        let one_of = |values: &[u64]| values[usize::try_from(random.below(values.len() as u64)).unwrap()];
        Options {
            chunks: 1 + u32::try_from(random.below(40)).unwrap(),
            chunk_bytes_max: one_of(&[200, 1000, 3000]),
            rate: one_of(&[50_000, 150_000, 400_000]),
            join_ms: one_of(&[0, 100, 3000]),
            memory_chunks: one_of(&[2, 8, 50]),
            cache_chunks: one_of(&[1, 4, 30]),
            build_ms_max: one_of(&[0, 10, 150]),
            build_fails: one_of(&[0, 0, 20_000]),
            network: NetworkOptions {
                loss: one_of(&[0, 0, 1_000, 10_000, 50_000, 200_000]),
                burst: one_of(&[0, 0, 1_000, 10_000]),
                burst_packets_max: one_of(&[5, 50]),
                common_loss: one_of(&[0, 0, 10_000]),
                duplicates: one_of(&[0, 20_000]),
                delay_ms: one_of(&[0, 1, 40, 300]),
                jitter_ms: one_of(&[0, 0, 3, 30]),
                link_percent: one_of(&[60, 110, 300]),
                queue_packets: one_of(&[40, 200]),
            },
            repairs: if random.below(3) == 0 { RepairCode::None } else { RepairCode::RaptorQ },
            slow_disks: one_of(&[0, 0, 30]),
            deaf: one_of(&[0, 0, 20]),
            deaths: one_of(&[0, 0, 30]),
            returns: one_of(&[50, 100]),
            partitions: one_of(&[0, 0, 30]),
            restarts: one_of(&[0, 0, 1, 3]),
            restart_ms_max: one_of(&[100, 10_000]),
            form_changes: one_of(&[0, 0, 5]),
            forged: one_of(&[0, 0, 0, 5_000]),
            updates: one_of(&[0, 0, 50, 100]),
            compare_percent: one_of(&[30, 300, 3000]),
            wait_for: u32::try_from(one_of(&[0, 0, 0, 3, 20])).unwrap(),
            wait_ms_max: one_of(&[500, 5_000]),
            suspensions: one_of(&[0, 0, 0, 20]),
            server_suspensions: one_of(&[0, 0, 0, 1]),
            suspended_ms_max: one_of(&[2_000, 20_000, 300_000]),
            ..Options::calm(seed, machines)
        }
    }

    /// Draws a simulation of at most eight machines and eight chunks, so that each fault meets a start, an end or
    /// another fault. One in three has all faults at once, and each has at least one: the bounds of those without are
    /// for images that take longer to send than machines take to join.
    pub(super) fn small(seed: u64) -> Options {
        let random = SeededRandom::new(seed ^ 0x51a1);
        let one_of = |values: &[u64]| values[usize::try_from(random.below(values.len() as u64)).unwrap()];
        let drawn = Options::drawn(seed, 1 + usize::try_from(random.below(8)).unwrap());
        let options = Options {
            chunks: 1 + u32::try_from(random.below(8)).unwrap(),
            memory_chunks: one_of(&[1, 2, 9]),
            form_changes: one_of(&[1, 5]),
            wait_for: u32::try_from(one_of(&[0, 0, 0, 2, 9])).unwrap(),
            late_wakes: one_of(&[0, 0, 100_000]),
            late_ms_max: one_of(&[2, 200]),
            ..drawn
        };
        if seed.is_multiple_of(3) { options.with_all_faults() } else { options }
    }

    /// Adds each fault, where there is none yet.
    fn with_all_faults(self) -> Options {
        let network = NetworkOptions {
            loss: self.network.loss.max(10_000),
            burst: self.network.burst.max(1_000),
            common_loss: 10_000,
            duplicates: 20_000,
            jitter_ms: self.network.jitter_ms.max(3),
            ..self.network
        };
        Options {
            network,
            build_fails: 20_000,
            late_wakes: 100_000,
            slow_disks: 30,
            deaf: 10,
            deaths: 30,
            partitions: 30,
            suspensions: 20,
            server_suspensions: 1,
            restarts: self.restarts.max(1),
            form_changes: 5,
            forged: 5_000,
            ..self
        }
    }
}
