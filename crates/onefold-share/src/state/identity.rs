//! The identity of the state folder: read when the folder is opened, and made by the first host.

use std::io;

use onefold_block::{FingerprintKey, Random};
use onefold_substrate::{Access, Substrate};

use super::{IDENTITY, State, StateError};
use crate::format::FormatError;
use crate::format::identity::Identity;

impl<S: Substrate> State<'_, S> {
    pub(super) fn read_identity(&self) -> Result<Option<Identity>, StateError> {
        let path = self.path("", IDENTITY);
        let file = match self.open_own(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::at(&path)(error)),
        };
        match Identity::read(self.substrate, file) {
            Ok(identity) => Ok(Some(identity)),
            Err(FormatError::Io(source)) => Err(StateError::Io { path, source }),
            Err(why @ FormatError::Newer { .. }) => Err(StateError::Newer { path, why }),
            Err(why) => {
                self.check_nothing_declared(true)?;
                // Files that belong to the old identity are foreign from now on, and their contents are found again.
                self.refuse(path, why)?;
                Ok(None)
            }
        }
    }

    /// Refuses to go on without the identity while shares are declared.
    pub(super) fn check_nothing_declared(&self, is_damaged: bool) -> Result<(), StateError> {
        let intents = self.open_intents()?;
        if intents.is_empty() {
            Ok(())
        } else {
            Err(StateError::IdentityLost { path: self.path("", IDENTITY), is_damaged, intents })
        }
    }

    pub(super) fn make_identity(&self, random: &dyn Random) -> Result<(), StateError> {
        self.check_nothing_declared(false)?;
        let path = self.path("", IDENTITY);
        let mut identity = Identity { uuid: [0; 16], key: [0; FingerprintKey::BYTES] };
        random.fill(&mut identity.uuid).map_err(StateError::at(&path))?;
        random.fill(&mut identity.key).map_err(StateError::at(&path))?;
        let scratch = self.write_scratch(|file| identity.write(self.substrate, file))?;
        // The first host has made it; it is read next.
        self.publish(&scratch, &path)?;
        Ok(())
    }
}
