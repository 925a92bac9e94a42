//! Progress of a sharing run: one meter for its scan, and another one for its pass.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use onefold_share::pass::PassProgress;
use onefold_share::run::RunStep;
use onefold_share::scan::ScanProgress;

use crate::interrupt::Interrupt;
use crate::progress::Meter;

/// Shows the progress of a run.
pub(super) struct RunMeter {
    quiet: bool,
    interrupt: Interrupt,
    /// The meter of the present step.
    meter: RefCell<Option<Meter>>,
    /// Whether that is of sharing without records, which is no step of a run.
    is_relief: Cell<bool>,
    /// Number of bytes to be shared.
    targets: Cell<u64>,
}

impl RunMeter {
    /// Returns a meter that shows nothing yet. With `quiet`, it never shows anything.
    pub(super) fn new(quiet: bool, interrupt: Interrupt) -> RunMeter {
        RunMeter { quiet, interrupt, meter: RefCell::default(), is_relief: Cell::new(false), targets: Cell::new(0) }
    }

    /// Begins a step.
    pub(super) fn begin(&self, step: RunStep) {
        self.is_relief.set(false);
        self.begin_meter(match step {
            RunStep::Files => "examining guests",
            RunStep::Scan => "reading",
            RunStep::Pass => "sharing",
        });
    }

    fn begin_meter(&self, doing: &'static str) {
        self.finish();
        *self.meter.borrow_mut() = Some(Meter::new(doing, self.quiet, self.interrupt.clone()));
    }

    /// Shows the progress of the scan. Returns `Break` when the user wants to stop.
    pub(super) fn show_scan(&self, at: ScanProgress) -> ControlFlow<()> {
        self.show(at.done_bytes, at.all_bytes)
    }

    /// Shows the progress of sharing without records. Returns `Break` when the user wants to stop.
    pub(super) fn show_relief(&self, at: ScanProgress) -> ControlFlow<()> {
        if !self.is_relief.replace(true) {
            self.begin_meter("sharing without records");
        }
        self.show(at.done_bytes, at.all_bytes)
    }

    /// Shows the progress of the pass. Returns `Break` when the user wants to stop.
    pub(super) fn show_pass(&self, at: PassProgress) -> ControlFlow<()> {
        match at {
            PassProgress::Planned { targets } => {
                self.targets.set(targets);
                ControlFlow::Continue(())
            }
            PassProgress::Sharing { bytes } => self.show(bytes, self.targets.get().max(bytes)),
        }
    }

    /// Removes the bar before results are printed.
    pub(super) fn finish(&self) {
        if let Some(meter) = self.meter.take() {
            meter.finish();
        }
    }

    fn show(&self, done: u64, all: u64) -> ControlFlow<()> {
        self.meter.borrow().as_ref().map_or(ControlFlow::Continue(()), |meter| meter.show_bytes(done, all))
    }
}
