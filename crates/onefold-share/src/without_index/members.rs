//! The files of the work, and whether they may still be shared with each other.
//!
//! The work may take hours. Meanwhile a file may get another owner or label, be opted out, or be replaced. So a file is
//! looked at again when it is opened. What was found out counts for one target.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;

use onefold_substrate::{Access, Substrate, is_gone};

use crate::domain::DomainRules;
use crate::domain::settings::Settings;
use crate::opt_out::OptOuts;
use crate::scan::find::ListedImage;
use crate::state::{State, StateError};

/// Opens files that may still be shared in the domains in which they were found.
pub(super) struct Members<'a, S: Substrate> {
    substrate: &'a S,
    state: Option<&'a State<'a, S>>,
    files: &'a [ListedImage],
    domains: DomainRules<'a, S>,
    opt_outs: OptOuts<'a, S>,
    /// Sources of the present target that are to be left alone.
    left_alone: RefCell<HashSet<usize>>,
}

impl<'a, S: Substrate> Members<'a, S> {
    /// # Errors
    /// Errors of the settings of domains.
    pub(super) fn new(
        substrate: &'a S,
        state: Option<&'a State<'a, S>>,
        files: &'a [ListedImage],
    ) -> Result<Members<'a, S>, StateError> {
        let (domains, opt_outs) = (rules(substrate, state)?, OptOuts::new(substrate));
        Ok(Members { substrate, state, files, domains, opt_outs, left_alone: RefCell::default() })
    }

    /// Forgets what was found out, before the next target.
    ///
    /// # Errors
    /// Errors of the settings of domains.
    pub(super) fn begin_target(&mut self) -> Result<(), StateError> {
        self.domains = rules(self.substrate, self.state)?;
        self.opt_outs.forget();
        self.left_alone.get_mut().clear();
        Ok(())
    }

    /// Opens a file as the target. `None` if it may not be shared any more, or cannot be.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn target(&self, at: usize) -> io::Result<Option<S::File>> {
        let file = self.open(at, Access::Write)?;
        Ok(match file {
            Some(file) if self.substrate.refusal(&file)?.is_none() => Some(file),
            _ => None,
        })
    }

    /// Opens a file as a source. `None` if it may not be shared any more, or is gone.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn source(&self, at: usize) -> io::Result<Option<S::File>> {
        if self.left_alone.borrow().contains(&at) {
            return Ok(None);
        }
        let file = match self.open(at, Access::Read) {
            Err(error) if is_gone(&error) => None,
            file => file?,
        };
        if file.is_none() {
            self.left_alone.borrow_mut().insert(at);
        }
        Ok(file)
    }

    fn open(&self, at: usize, access: Access) -> io::Result<Option<S::File>> {
        let listed = &self.files[at];
        let file = self.substrate.open(&listed.path, access)?;
        let stat = self.substrate.stat(&file)?;
        if stat.handle != listed.stat.handle || self.opt_outs.of(&listed.path)?.is_some() {
            return Ok(None);
        }
        let now = self.domains.membership(&listed.path, &file, &stat, Some(&listed.membership))?;
        Ok((now.domain == listed.membership.domain).then_some(file))
    }
}

/// Returns the rules of domains as they are now.
pub(super) fn rules<'a, S: Substrate>(
    substrate: &'a S,
    state: Option<&State<'a, S>>,
) -> Result<DomainRules<'a, S>, StateError> {
    match state {
        Some(state) => DomainRules::of(state),
        None => Ok(DomainRules::new(substrate, Settings::default())),
    }
}
