//! A plan that can be read once.

use std::ops::ControlFlow;

use onefold_sort::Merge;

use super::rows::{self, PlacedRow};
use super::{PlanError, PlanItem, PlannedUnit, RUNS_MAX};

/// Units and holes in the order of their first sectors.
#[derive(Debug)]
pub(crate) struct Plan {
    rows: Merge,
    /// The first run of the next unit.
    next: Option<PlacedRow>,
}

impl Plan {
    /// Returns the plan that sorted rows describe.
    pub(super) fn new(rows: Merge) -> Plan {
        Plan { rows, next: None }
    }

    fn row(&mut self) -> Result<Option<PlacedRow>, PlanError> {
        match self.next.take() {
            Some(next) => Ok(Some(next)),
            None => Ok(self.rows.next().transpose()?.map(rows::decode_placed)),
        }
    }

    /// Returns the next unit or hole; `None` at the end.
    fn planned(&mut self) -> Result<Option<PlanItem>, PlanError> {
        let (first, slack, mut runs) = match self.row()? {
            None => return Ok(None),
            Some(PlacedRow::Hole(hole)) => return Ok(Some(PlanItem::Hole(hole))),
            Some(PlacedRow::Run { unit, slack, sectors, .. }) => (unit, slack, vec![sectors]),
        };
        let mut add_next = || -> Result<ControlFlow<()>, PlanError> {
            match self.row()? {
                Some(PlacedRow::Run { unit, sectors, .. }) if unit == first && runs.len() < RUNS_MAX => {
                    runs.push(sectors);
                    Ok(ControlFlow::Continue(()))
                }
                other => {
                    self.next = other;
                    Ok(ControlFlow::Break(()))
                }
            }
        };
        while add_next()?.is_continue() {}
        Ok(Some(PlanItem::Unit(PlannedUnit { runs, slack })))
    }
}

impl Iterator for Plan {
    type Item = Result<PlanItem, PlanError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.planned().transpose()
    }
}
