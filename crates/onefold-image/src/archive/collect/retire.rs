//! Retires and replaces packs.

use super::need::{Needs, PackNeed, Room};
use super::rewrite::Rewriter;
use super::rows::LocatedUnit;
use super::watch::{Ground, Watch};
use super::{Collection, RETIRED_MAX};
use crate::ObjectId;
use crate::archive::ArchiveError;
use crate::format::ledger::Change;

/// Maximum number of attempts while others change the packs.
const ATTEMPTS: u32 = 10;

impl Collection<'_> {
    /// Retires all packs that no image needs, and replaces those of which too little is needed.
    pub(super) fn retire_all(&mut self, on_progress: &mut dyn FnMut(u64, u64)) -> Result<(), ArchiveError> {
        let room = Room { folder: self.options.folder, memory_bytes: self.memory_bytes() };
        for _ in 0..ATTEMPTS {
            let state = self.archive.state.read().clone();
            let needs = Needs::of(self.archive, state, room, on_progress)?;
            self.count(&needs);
            if self.options.dry_run {
                return Ok(());
            }
            let ground = self.retire(&needs, room);
            if ground.is_err()
                && let Some(writer) = &mut self.writer
            {
                // On a full disk, its incomplete work would take room for a day.
                writer.abandon();
            }
            if ground? == Ground::Same {
                return Ok(());
            }
            self.archive.refresh()?;
        }
        self.report.is_partial = true;
        Ok(())
    }

    /// Counts the packs that stay as they are; in a dry run the others, too.
    fn count(&mut self, needs: &Needs) {
        let percent = self.options.needed_percent;
        let report = &mut self.report;
        (report.kept_bytes, report.unread) = (0, 0);
        for need in &needs.packs {
            if !need.is_read {
                report.unread += 1;
            } else if !need.is_spare(percent) {
                report.kept_bytes += need.units_bytes.saturating_sub(need.needed_bytes);
            } else if self.options.dry_run {
                let amount = if need.is_unneeded() { &mut report.retired } else { &mut report.rewritten };
                amount.add(need.length_bytes);
                report.written_bytes += need.needed_bytes;
                let amount = if self.options.delay.is_zero() { &mut report.deleted } else { &mut report.waiting };
                amount.add(need.length_bytes);
            }
        }
    }

    /// Retires packs of which nothing is needed, then rewrites those of which too little is.
    fn retire(&mut self, needs: &Needs, room: Room<'_>) -> Result<Ground, ArchiveError> {
        let mut watch = Watch::from(self.archive, needs.state.position);
        let unneeded: Vec<&PackNeed> = needs.packs.iter().filter(|need| need.is_unneeded()).collect();
        for packs in unneeded.chunks(RETIRED_MAX) {
            let mut packs: Vec<(ObjectId, u64)> = packs.iter().map(|need| (need.pack, need.length_bytes)).collect();
            if self.retire_packs(&mut watch, &mut packs)? == Ground::Changed {
                return Ok(Ground::Changed);
            }
        }
        let percent = self.options.needed_percent;
        let is_rewritten = |number: u32| {
            let need = &needs.packs[number as usize];
            need.is_spare(percent) && !need.is_unneeded()
        };
        let mut rewriter = Rewriter::new(self, needs, watch)?;
        let mut units: Vec<(LocatedUnit, LocatedUnit)> = Vec::new();
        needs.units_of(room, is_rewritten, &mut |unit, kept| {
            if let Some((first, _)) = units.first()
                && first.pack != unit.pack
            {
                rewriter.rewrite(&units)?;
                units.clear();
            }
            units.push((unit, kept));
            Ok(())
        })?;
        rewriter.rewrite(&units)?;
        rewriter.finish()
    }

    /// Retires packs, except those that an image needs which came meanwhile.
    pub(super) fn retire_packs(
        &mut self,
        watch: &mut Watch<'_>,
        packs: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Ground, ArchiveError> {
        loop {
            if watch.read_on()? == Ground::Changed {
                return Ok(Ground::Changed);
            }
            watch.spare(packs)?;
            if packs.is_empty() {
                return Ok(Ground::Same);
            }
            let ids = packs.iter().map(|(pack, _)| *pack).collect();
            if self.append(watch.position(), Change::PacksRetired { packs: ids })? {
                watch.pass_own();
                packs.iter().for_each(|(_, bytes)| self.report.retired.add(*bytes));
                return Ok(Ground::Same);
            }
        }
    }
}

impl PackNeed {
    /// Returns whether no image needs anything of it.
    pub(super) fn is_unneeded(&self) -> bool {
        self.is_read && self.needed_bytes == 0 && self.surplus == 0
    }

    /// Returns whether less than this share of its units is needed.
    fn is_spare(&self, percent: u8) -> bool {
        let needed = u128::from(self.needed_bytes) * 100;
        self.is_read && (self.needed_bytes == 0 || needed < u128::from(self.units_bytes) * u128::from(percent))
    }
}
