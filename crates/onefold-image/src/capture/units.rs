//! The archive as the stages of a capture see it.

use std::collections::HashSet;

use super::batch::{KnownUnit, Units};
use super::collector::Keep;
use super::error::CaptureError;
use super::recent::RecentUnits;
use crate::UnitName;
use crate::archive::{Archive, ArchiveError, Writer};
use crate::compress::Compressor;
use crate::format::pack::UnitHeader;

/// The shared structures in which all threads look up units.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedUnits<'u> {
    pub(super) archive: &'u Archive,
    pub(super) recent: &'u RecentUnits,
    /// If given, no other units are stored: the archive seems to take them all the same.
    pub(super) only: Option<&'u HashSet<UnitName>>,
}

/// The archive as seen by one of the threads.
#[derive(Debug)]
pub(super) struct ThreadUnits<'u> {
    shared: SharedUnits<'u>,
    compressor: Compressor,
    /// The stored form of one unit.
    stored: Vec<u8>,
}

impl<'u> ThreadUnits<'u> {
    /// Returns the view of a thread that compresses at this level.
    pub(super) fn new(shared: SharedUnits<'u>, level: i32) -> Result<ThreadUnits<'u>, CaptureError> {
        let compressor = Compressor::new(level).map_err(CaptureError::Compress)?;
        Ok(ThreadUnits { shared, compressor, stored: Vec::new() })
    }
}

impl Units for ThreadUnits<'_> {
    type Error = CaptureError;

    fn find(&mut self, name: &UnitName) -> Result<Option<KnownUnit>, CaptureError> {
        if self.shared.recent.has(name) {
            return Ok(Some(KnownUnit::Own));
        }
        Ok(self.shared.archive.stored(name)?.map(KnownUnit::Stored))
    }

    fn compress(&mut self, plain: &[u8], into: &mut Vec<u8>) -> Result<UnitHeader, CaptureError> {
        let header = self.compressor.compress(plain, &mut self.stored).map_err(CaptureError::Compress)?;
        into.extend_from_slice(&self.stored);
        Ok(header)
    }
}

/// The archive as seen by the thread that writes to it.
#[derive(Debug)]
pub(super) struct WriterUnits<'k, 'w, 'u> {
    writer: &'k mut Writer<'w>,
    own: ThreadUnits<'u>,
}

impl<'k, 'w, 'u> WriterUnits<'k, 'w, 'u> {
    /// Returns the view of the thread with the writer.
    pub(super) fn new(writer: &'k mut Writer<'w>, own: ThreadUnits<'u>) -> WriterUnits<'k, 'w, 'u> {
        WriterUnits { writer, own }
    }
}

impl Units for WriterUnits<'_, '_, '_> {
    type Error = CaptureError;

    fn find(&mut self, name: &UnitName) -> Result<Option<KnownUnit>, CaptureError> {
        Ok(self.writer.rely(name)?.map(KnownUnit::Stored))
    }

    fn compress(&mut self, plain: &[u8], into: &mut Vec<u8>) -> Result<UnitHeader, CaptureError> {
        self.own.compress(plain, into)
    }
}

impl Keep for WriterUnits<'_, '_, '_> {
    fn rely(&mut self, name: &UnitName) -> Result<u32, CaptureError> {
        let stored = self.writer.rely(name)?.ok_or_else(|| ArchiveError::Retired(vec![*name]))?;
        Ok(stored.stored_bytes)
    }

    fn rely_on(&mut self, name: &UnitName, seen: KnownUnit) -> Result<u32, CaptureError> {
        match seen {
            KnownUnit::Own => self.rely(name),
            KnownUnit::Stored(stored) => {
                self.writer.rely_on(name, stored);
                Ok(stored.stored_bytes)
            }
        }
    }

    fn add(&mut self, name: UnitName, header: UnitHeader, stored: &[u8]) -> Result<(), CaptureError> {
        let SharedUnits { recent, only, .. } = self.own.shared;
        if only.is_some_and(|only| !only.contains(&name)) {
            return Ok(());
        }
        self.writer.add(name, header, stored)?;
        recent.add(name);
        Ok(())
    }
}
