//! A watch beside a process that writes.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onefold_block::clock::SystemClock;
use onefold_block::random::{SeededRandom, SystemRandom};
use onefold_linux::{LinuxMachine, ProcessCpu};
use onefold_share::pace::Limits;
use onefold_share::pass::SpaceOptions;
use onefold_share::run::Seams;
use onefold_share::selection::Selection;
use onefold_share::watch::{Surroundings, WatchEvent, WatchOptions, Windows, watch};

use crate::ground::{Ground, K, MIB, STARTING, XFS, on, random_blocks, skip};
use crate::pass;

const IMAGE_BYTES: u64 = 64 * MIB;

/// A process that has an image open and writes to it what it is told to, through the page cache.
struct Guest {
    process: Child,
    commands: Option<ChildStdin>,
}

impl Guest {
    fn new(path: &Path) -> Option<Guest> {
        let mut command = Command::new("xfs_io");
        command.arg(path).stdin(Stdio::piped()).stdout(Stdio::null());
        let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        match command.spawn() {
            Ok(mut process) => Some(Guest { commands: process.stdin.take(), process }),
            Err(error) => skip(&format!("cannot run xfs_io: {error}")),
        }
    }

    /// Writes a block, and has it on the disk: the next write into its folio finds that clean.
    fn write(&mut self, block: u64) {
        let commands = self.commands.as_mut().unwrap();
        writeln!(commands, "pwrite -q {} {K}\nfsync", block * K).unwrap();
        commands.flush().unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.commands.take());
        let _ = self.process.wait();
    }
}

/// Watches until it is told to stop, and returns how many bytes it has read of files.
fn read_by_watch(ground: &Ground, is_over: &AtomicBool) -> u64 {
    let roots = [PathBuf::new()];
    let machine = LinuxMachine::new(&ground.substrate);
    let surroundings = Surroundings {
        seams: Seams { substrate: &ground.substrate, clock: &SystemClock, random: &SystemRandom, notices: &|_| {} },
        cpu: &ProcessCpu,
        machine: &machine,
        stop: &|| is_over.load(Ordering::Relaxed),
    };
    let options = WatchOptions {
        selection: Selection::new(&roots, &|_, _| true),
        shares_files: false,
        threads: 0,
        temporary_folder: Path::new("/var/tmp"),
        memory_bytes: 1 << 20,
        min_run_bytes: K,
        space: SpaceOptions::default(),
        limits: Limits::default(),
        interval: Duration::from_millis(100),
        windows: Windows::default(),
        load_max: None,
        stable_for: Duration::ZERO,
        // Each round that has read anything does a pass, which tells of it.
        batch_percent: 0,
        wait_max: Duration::ZERO,
        map_bytes_min: 0,
        log_bytes_max: None,
    };
    let (read, passes) = (Cell::new(0), Cell::new(0));
    let heard = watch(&surroundings, &options, &mut |event| match event {
        WatchEvent::Passed { scanned, .. } => {
            read.set(read.get() + scanned.read_bytes);
            passes.set(passes.get() + 1);
        }
        WatchEvent::Failed(why) => panic!("{why}"),
        _ => {}
    });
    heard.unwrap();
    assert!(passes.get() > 2, "{} passes", passes.get());
    read.get()
}

/// Seen: a kernel with large folios counted two mebibytes as written for each block that a guest wrote through the page
/// cache, and the watch read the whole image again and again.
#[test]
fn of_an_image_written_through_the_page_cache_a_bounded_part_is_read_again() {
    on(XFS, |ground| {
        // In one write, so that its pages come in folios as large as there are.
        drop(ground.file("image", &random_blocks(1, (IMAGE_BYTES / K) as usize)));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(pass::run(ground).scanned.read_bytes, IMAGE_BYTES);
        let Some(mut guest) = Guest::new(&ground.root.join("image")) else { return };
        let is_over = AtomicBool::new(false);
        let (writes, read) = std::thread::scope(|scope| {
            let is_over = &is_over;
            let writer = scope.spawn(move || {
                let (random, start, mut writes) = (SeededRandom::new(2), Instant::now(), 0);
                while start.elapsed() < Duration::from_secs(3) {
                    guest.write(random.below(IMAGE_BYTES / K));
                    writes += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                is_over.store(true, Ordering::Relaxed);
                writes
            });
            let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read_by_watch(ground, is_over)));
            is_over.store(true, Ordering::Relaxed);
            (writer.join().unwrap(), read.unwrap())
        });
        let written = writes * K;
        println!("{} KiB written, {} KiB read", written / 1024, read / 1024);
        // Twice what was written, and what a piece is longer than that in a round.
        assert!(read <= 2 * written + 8 * MIB, "{} KiB read for {} KiB written", read / 1024, written / 1024);
        assert!(read > 0 && writes > 50, "{read} bytes read, {writes} writes");
    });
}
