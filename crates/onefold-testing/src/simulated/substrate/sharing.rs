//! Sharing, as hosts call it, and what some kinds of file systems need besides.

use std::io;
use std::path::Path;

use onefold_block::Show;
use onefold_substrate::{
    Abilities, Access, AgedExtent, At, ComparisonResult, CopyHints, Exclusive, Files, MappedExtent, Reference, Refusal,
    Room, ShareError, Sharing, Slice, WholeExtent, WholeExtents,
};
use rustix::io::Errno;

use super::{io_fault, pair_line};
use crate::simulated::checks::AllowedChanges;
use crate::simulated::mount::{SimulatedFile, SimulatedSubstrate};
use crate::simulated::sharing::{MapLimits, SharedRanges};
use crate::simulated::world::{Actor, World};

impl<'run> Sharing for SimulatedSubstrate<'run> {
    fn abilities(&self) -> &Abilities {
        &self.mount.abilities
    }

    fn sync_shares(&self, file: &SimulatedFile<'run>) -> io::Result<()> {
        if !self.syncs_all_shares() {
            return self.sync(file);
        }
        self.call_file(file, "sync all", |world, host| {
            io_fault(world, host)?;
            // One by one: making one file durable may remove another one.
            while let Some(no) = world.machine(host).unsynced.first().copied() {
                world.sync(host, no);
            }
            Ok(())
        })
    }

    /// Like Btrfs and OCFS2.
    fn syncs_all_shares(&self) -> bool {
        self.abilities().frees_whole_extents || self.abilities().shares_in_two_steps
    }

    fn extents(&self, file: &SimulatedFile<'run>, from: u64) -> io::Result<Vec<MappedExtent>> {
        self.call_file(file, "map", |world, host| {
            io_fault(world, host)?;
            if world.unmappable.contains(&file.no) {
                return Err(io::Error::other("a bad block of the map"));
            }
            let most = world.options.habits.extents_max as usize;
            let is_short = world.fails(host, |faults| faults.short_map);
            let extents_max = if is_short { 1 + world.dice.index(most) } else { most };
            let hides_unsynced = world.fails(host, |faults| faults.unplaced);
            let is_stale = world.fails(host, |faults| faults.stale_map);
            if let Some((first, told)) =
                world.files.get(file.no).told.clone().filter(|(first, _)| is_stale && *first <= from)
            {
                world.tell(|_| format!("{host}: an earlier map, from {first}"));
                return Ok(told.iter().filter(|extent| extent.end() > from).copied().collect());
            }
            let extents = world.extents(file.no, from, MapLimits { extents_max, hides_unsynced });
            if world.options.faults.stale_map > 0 {
                world.files.get_mut(file.no).told = Some((from, extents.as_slice().into()));
            }
            Ok(extents)
        })
    }

    fn share(
        &self,
        source: At<'_, SimulatedFile<'run>>,
        into: At<'_, SimulatedFile<'run>>,
        length: u64,
    ) -> Result<ComparisonResult, ShareError> {
        for file in [source.file, into.file] {
            self.own(file);
            self.check_bounds(file);
        }
        let line = |world: &World| pair_line(world, "share", source, into, length);
        self.call(AllowedChanges::Sharing, line, |world, host| {
            let ranges = self.ranges(world, source, into, length).inspect_err(|error| {
                world.counters.refusals += u64::from(matches!(error, ShareError::Refused(_)));
            })?;
            let fails = world.fails(host, |faults| faults.io);
            let stop_after = fails.then(|| world.dice.below(ranges.count + 1));
            world.share(host, ranges, stop_after)
        })
    }

    fn clone_range(
        &self,
        source: At<'_, SimulatedFile<'run>>,
        into: At<'_, SimulatedFile<'run>>,
        length: u64,
    ) -> Result<(), ShareError> {
        for file in [source.file, into.file] {
            self.own(file);
            self.check_bounds(file);
        }
        let line = |world: &World| pair_line(world, "clone", source, into, length);
        self.call(AllowedChanges::Content, line, |world, host| {
            let ranges = self.ranges(world, source, into, length)?;
            let fails = world.fails(host, |faults| faults.io);
            let count = if fails { world.dice.below(ranges.count) } else { ranges.count };
            world.clone_range(Actor::Engine(host), SharedRanges { count, ..ranges });
            world.counters.clones += u64::from(!fails);
            if fails { Err(ShareError::Io(Errno::IO.into())) } else { Ok(()) }
        })
    }

    fn punch(&self, file: &SimulatedFile<'run>, offset: u64, length: u64) -> io::Result<()> {
        let line = || format!("punch {length} bytes from {offset} on");
        self.call_write(file, line, |world, actor| {
            io_fault(world, actor.host())?;
            world.punch(actor, file.no, offset, length)
        })
    }

    fn create_clone(&self, source: &SimulatedFile<'run>, path: &Path) -> Result<SimulatedFile<'run>, ShareError> {
        self.own(source);
        let line = |world: &World| format!("clone {} to {}", world.names.path_of(source.no), path.shown());
        self.call(AllowedChanges::Content, line, |world, host| {
            io_fault(world, host)?;
            if world.fails(host, |faults| faults.full) {
                return Err(ShareError::Full);
            }
            let no = world.create_clone(Actor::Engine(host), source.no, path)?;
            Ok(self.opened(world, no, Access::Write))
        })
    }

    fn refusal(&self, file: &SimulatedFile<'run>) -> io::Result<Option<Refusal>> {
        self.call_file(file, "look at", |world, host| {
            io_fault(world, host)?;
            Ok(world.files.get(file.no).refusal)
        })
    }

    fn generation(&self, file: &SimulatedFile<'run>) -> io::Result<Option<u64>> {
        self.call_file(file, "generation of", |world, host| {
            io_fault(world, host)?;
            let is_in_place = world.files.get(file.no).refusal == Some(Refusal::NoCopyOnWrite);
            Ok((world.options.tells_generations() && !is_in_place).then(|| world.blocks.generation()))
        })
    }

    fn changed_since(&self, file: &SimulatedFile<'run>, generation: u64, from: u64) -> io::Result<Vec<AgedExtent>> {
        self.call_file(file, "changes in", |world, host| {
            io_fault(world, host)?;
            if !world.options.tells_generations() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let most = world.options.habits.extents_max as usize;
            Ok(world.changed_since(file.no, generation, from).take(most).collect())
        })
    }

    fn room(&self) -> io::Result<Room> {
        self.call(
            AllowedChanges::Content,
            |_| "room".into(),
            |world, host| {
                io_fault(world, host)?;
                Ok(world.room())
            },
        )
    }
}

impl<'run> Exclusive for SimulatedSubstrate<'run> {
    fn try_exclusive(&self, file: &SimulatedFile<'run>) -> io::Result<bool> {
        self.call_file(file, "take for itself", |world, host| {
            io_fault(world, host)?;
            Ok(world.try_exclusive(host, file.open, file.no))
        })
    }

    fn is_exclusive_wanted(&self, file: &SimulatedFile<'run>) -> bool {
        let asked = self.call_file(file, "ask who wants", |world, _| {
            let exclusive = world.files.get(file.no).exclusive;
            Ok(exclusive.is_none_or(|exclusive| exclusive.open != file.open || exclusive.is_wanted))
        });
        asked.unwrap_or(true)
    }

    fn leave_exclusive(&self, file: &SimulatedFile<'run>) {
        // A crashed host has left it already.
        let _ = self.call_file(file, "leave", |world, _| {
            world.files.get_mut(file.no).exclusive.take_if(|exclusive| exclusive.open == file.open);
            Ok(())
        });
    }
}

impl<'run> WholeExtents for SimulatedSubstrate<'run> {
    fn slices(&self, file: &SimulatedFile<'run>, from: u64) -> io::Result<Vec<Slice>> {
        self.call_file(file, "slices", |world, host| {
            io_fault(world, host)?;
            if !world.options.habits.frees_whole_extents {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let is_short = world.fails(host, |faults| faults.short_map);
            let most = world.options.habits.extents_max as usize;
            let most = if is_short { 1 + world.dice.index(most) } else { most };
            Ok(world.slices(file.no, from).take(most).collect())
        })
    }

    fn references(&self, extent: WholeExtent) -> io::Result<Vec<Reference>> {
        self.call(
            AllowedChanges::Content,
            |_| format!("references to the extent at {}", extent.place),
            |world, host| {
                io_fault(world, host)?;
                Ok(world.references(extent))
            },
        )
    }
}

impl<'run> CopyHints for SimulatedSubstrate<'run> {}
