//! The settings of a state folder, and the domain rules that follow from them.

use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::{State, StateError};
use crate::domain::DomainRules;
use crate::domain::settings::{BYTES_MAX, FILE, Settings, check_trust};

impl Settings {
    /// Returns the path of a state folder's settings, below the root of the file system.
    #[must_use]
    pub fn path<S: Substrate>(state: &State<'_, S>) -> PathBuf {
        state.path("", FILE)
    }

    /// Reads the settings of a state folder. If the file is missing, they are empty.
    ///
    /// # Errors
    /// Errors of the device; `Settings` if the file cannot be trusted or understood.
    pub fn read<S: Substrate>(state: &State<'_, S>) -> Result<Settings, StateError> {
        let (substrate, path) = (state.substrate(), Settings::path(state));
        let file = match substrate.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Settings::default()),
            Err(error) => return Err(StateError::at(&path)(error)),
        };
        let failed = |why| StateError::Settings { path: path.clone(), why };
        let found = substrate.protection(&file).map_err(StateError::at(&path))?;
        check_trust(&found, substrate.user()).map_err(failed)?;
        let mut bytes = vec![0; BYTES_MAX + 1];
        let count = substrate.read_at(&file, 0, &mut bytes).map_err(StateError::at(&path))?;
        Settings::parse(&bytes[..count]).map_err(failed)
    }
}

impl<'a, S: Substrate> DomainRules<'a, S> {
    /// Returns the rules of a state folder's file system.
    ///
    /// # Errors
    /// Errors of [`Settings::read`].
    pub fn of(state: &State<'a, S>) -> Result<DomainRules<'a, S>, StateError> {
        Ok(DomainRules::new(state.substrate(), Settings::read(state)?))
    }
}
