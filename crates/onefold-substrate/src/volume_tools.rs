//! The seam to the programs of the host that make and change the metadata of a common volume.

use std::fmt;
use std::io;

use crate::files::Files;
use crate::protection::UserNo;

/// Programs that make an ext4 file system in a file, change its metadata, and check it. They run as `owner`, the owner
/// of the file, whatever this process may do: their input is a file of that user.
pub trait VolumeTools: Files {
    /// Gives a file that this process made to a user, with the right to read and write for that user alone.
    ///
    /// # Errors
    /// `PermissionDenied` for all but root, unless the file is the user's own already; those of the device.
    fn give(&self, file: &Self::File, owner: UserNo) -> io::Result<()>;

    /// Makes an empty ext4 file system in a file, which may be mounted read-only and by no process for writing. It has
    /// blocks of 4 KiB and fills the whole file.
    ///
    /// # Errors
    /// See [`ToolError`]. The content of the file is of no use then.
    fn make_volume(&self, file: &Self::File, owner: UserNo) -> Result<(), ToolError>;

    /// Runs commands of `debugfs` on the file system in a file, one a line.
    ///
    /// # Errors
    /// See [`ToolError`]. Any part of the commands may have been carried out then.
    fn edit_volume(&self, file: &Self::File, owner: UserNo, commands: &str) -> Result<(), ToolError>;

    /// Checks the file system in a file, and changes nothing.
    ///
    /// # Errors
    /// See [`ToolError`]; `Failed` where the file system is damaged.
    fn check_volume(&self, file: &Self::File, owner: UserNo) -> Result<(), ToolError>;
}

/// A program of the host that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program)
    }
}

/// Why a program did not do what it was to do.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not on this host.
    #[error("the program `{tool}` is missing (package {})", tool.package)]
    Missing {
        /// The program.
        tool: Tool,
    },
    /// It could not be run, or its input or output failed.
    #[error("cannot run `{tool}`")]
    Io {
        /// The program.
        tool: Tool,
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// It did not end in time, and was killed.
    #[error("`{tool}` did not end in time")]
    Late {
        /// The program.
        tool: Tool,
    },
    /// It says that something is wrong.
    #[error("`{tool}` reports: {complaint}")]
    Failed {
        /// The program.
        tool: Tool,
        /// The beginning of its message.
        complaint: String,
    },
}

/// A part of a package archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchivePart {
    /// What describes the package, as a tar stream.
    Control,
    /// The files of the package, as a tar stream.
    Files,
}

/// The program of the host that unpacks package archives. Archives are hostile: it runs without privileges, in bounded
/// memory and time.
pub trait PackageTools {
    /// Returns which program it is.
    fn tool(&self) -> Tool;

    /// Unpacks a part of an archive, and has `take` read it.
    ///
    /// # Errors
    /// See [`ToolError`]; `Failed` where the file is no archive; those of `take` as `Io`.
    fn unpack(
        &self,
        archive: &std::fs::File,
        part: ArchivePart,
        take: &mut dyn FnMut(&mut dyn io::Read) -> io::Result<()>,
    ) -> Result<(), ToolError>;
}
