//! `CACHEDIR.TAG`: makes backup tools leave out the state folder, as <https://bford.info/cachedir/> describes it. A
//! backup does not need files whose contents are found again, and would copy each arena file with the size of all
//! shared blocks.

use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::trust::Distrust;
use super::{State, StateError};

pub(super) const TAG: &str = "CACHEDIR.TAG";
/// The signature for tools, followed by a text for people.
const CONTENT: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
    # This folder belongs to Onefold, which shares blocks of the files beside it. Backups need not have it.\n\
    # See https://bford.info/cachedir/\n";

impl<S: Substrate> State<'_, S> {
    /// Writes the tag, unless there is one. Nothing depends on it: if it cannot be written, the next run tries again.
    ///
    /// # Errors
    /// `Untrusted` if another user has made it.
    pub(super) fn write_tag(&self) -> Result<(), StateError> {
        let path: PathBuf = self.path("", TAG);
        match self.open_own(&path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if Distrust::of(&error).is_some() => return Err(StateError::at(&path)(error)),
            _ => return Ok(()),
        }
        let scratch = self.write_scratch(|file| {
            self.substrate().write_at(&file, 0, CONTENT)?;
            self.substrate().sync(&file)
        });
        if let Ok(scratch) = scratch {
            let _ = self.publish(&scratch, &path);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onefold_substrate::{Files, UserNo};

    use super::*;
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    /// The description demands the first 43 bytes.
    #[test]
    fn backup_tools_are_told_to_leave_the_folder_out() {
        let host = SimulatedFileSystem::new(&SimulationOptions::default()).observe();
        let open = || drop(State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap());
        let read = || {
            let file = host.substrate.open(Path::new(".onefold/CACHEDIR.TAG"), Access::Read).unwrap();
            let mut bytes = vec![0; 1000];
            let count = host.substrate.read_at(&file, 0, &mut bytes).unwrap();
            bytes.truncate(count);
            bytes
        };
        open();
        assert_eq!(read(), CONTENT);
        assert_eq!(&CONTENT[..43], b"Signature: 8a477f597d28d172789f06886806bc55");
        // A text that a user has written there stays.
        let file = host.substrate.open(Path::new(".onefold/CACHEDIR.TAG"), Access::Write).unwrap();
        host.substrate.write_at(&file, 0, b"mine").unwrap();
        open();
        assert!(read().starts_with(b"mine"));
        assert!(crate::state::is_name(TAG.as_bytes()));
    }

    #[test]
    fn a_tag_of_another_user_is_refused() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.observe();
        let open = || State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).map(drop);
        open().unwrap();
        file_system.protect(Path::new(".onefold/CACHEDIR.TAG"), UserNo(7), 0o600).unwrap();
        assert!(matches!(open(), Err(StateError::Untrusted { .. })));
    }
}
