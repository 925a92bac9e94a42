//! Logs of one file go in an order in which none of them misleads the next pass.

use super::*;
use crate::scan::Turn;

/// Regression: a pass removed the newest log of a file first. If it ended before it had removed the older one, the next
/// pass took the old contents for those of the file, and dropped the entries of the contents that followed them.
#[test]
fn a_pass_that_ends_between_the_logs_of_a_file_loses_no_content() {
    const BLOCKS: u64 = 12;
    let mut ends = Vec::new();
    for stuck in 0..2 {
        let ground = Ground::new();
        let state = ground.state();
        let mut files = Marks::load(&state).unwrap();
        ground.write("a", 1, BLOCKS);
        scan_all(&state, &mut files);
        ground.write("a", 2, BLOCKS);
        // A turn that reads a part of the file leaves the older log.
        let pace = Pace::unlimited();
        let rereading = RereadPolicy { turn: &|_| Turn::Within(BLOCKS / 4 * K), ..RereadPolicy::whole() };
        let scanned = scan(&state, &mut files, &ScanOptions { rereading, ..ScanOptions::new(&pace) }).unwrap();
        assert_eq!(scanned.read_bytes, BLOCKS / 2 * K);
        let logs = ground.names("logs");
        assert_eq!(logs.len(), 2, "{logs:?}");
        // One of the logs cannot be removed, so the pass ends there. The other one is gone or not, as the order has it.
        let (name, aside) = (&logs[stuck], Path::new("aside"));
        let progress = |at| {
            if matches!(at, PassProgress::Planned { .. }) {
                ground.host.substrate.rename(name, aside).unwrap();
                ground.host.substrate.create_dir(name).unwrap();
            }
            ControlFlow::Continue(())
        };
        let passed = PassSettings { progress: &progress, ..USUAL }.pass(&state, &mut files);
        assert!(passed.is_err(), "{passed:?}");
        ground.file_system.rename_folder(name, "gone").unwrap();
        ground.host.substrate.rename(aside, name).unwrap();
        ends.push(ground.names("logs").len());
        // The next pass takes in what is left.
        USUAL.pass(&state, &mut files).unwrap();
        assert_eq!(ground.names("logs").len(), 0, "log {stuck}");
        drop(state);
        // The next scan reads the rest of the file.
        ground.write("b", 2, BLOCKS);
        let passed = ground.run();
        assert_eq!(passed.shared.now, BLOCKS * K, "log {stuck}: {passed:?}");
    }
    ends.sort_unstable();
    assert_eq!(ends, [1, 2], "the pass ended once before it removed a log, and once between the two");
}
