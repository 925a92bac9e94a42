//! The seam to the host's programs that make and change the metadata of a common volume.

use std::fmt;
use std::io;

use crate::files::Files;
use crate::protection::UserNo;

/// Programs that make an ext4 file system in a file, change its metadata, and check it. They run as `owner`, the file's
/// owner, whatever rights this process has: their input is a file of that user.
pub trait VolumeTools: Files {
    /// Gives a file that this process made to a user. Only that user may then read and write it.
    ///
    /// # Errors
    /// `PermissionDenied` for all but root, unless the user already owns the file; those of the device.
    fn give(&self, file: &Self::File, owner: UserNo) -> io::Result<()>;

    /// Makes an empty ext4 file system in a file, which no process has mounted for writing; read-only mounts are
    /// allowed. It has blocks of 4 KiB and fills the whole file.
    ///
    /// # Errors
    /// See [`ToolError`]. The content of the file is useless then.
    fn make_volume(&self, file: &Self::File, owner: UserNo) -> Result<(), ToolError>;

    /// Runs commands of `debugfs`, one per line, on the file system in a file.
    ///
    /// # Errors
    /// See [`ToolError`]. Any part of the commands may have taken effect then.
    fn edit_volume(&self, file: &Self::File, owner: UserNo, commands: &str) -> Result<(), ToolError>;

    /// Checks the file system in a file without changing it.
    ///
    /// # Errors
    /// See [`ToolError`]; `Failed` if the file system is damaged.
    fn check_volume(&self, file: &Self::File, owner: UserNo) -> Result<(), ToolError>;
}

/// A program of the host that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program)
    }
}

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is missing on this host.
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
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// It did not end in time, and was killed.
    #[error("`{tool}` did not end in time")]
    Late {
        /// The program.
        tool: Tool,
    },
    /// It reports a failure.
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
    /// The description of the package, as a tar stream.
    Control,
    /// The files of the package, as a tar stream.
    Files,
}

/// The program of the host that unpacks package archives. Archives are hostile: it runs without privileges, in bounded
/// memory and time.
pub trait PackageTools {
    /// Returns the program, for messages.
    fn tool(&self) -> Tool;

    /// Unpacks a part of an archive into `take`.
    ///
    /// # Errors
    /// See [`ToolError`]; `Failed` if the file is no archive; errors of `take` as `Io`.
    fn unpack(
        &self,
        archive: &std::fs::File,
        part: ArchivePart,
        take: &mut dyn FnMut(&mut dyn io::Read) -> io::Result<()>,
    ) -> Result<(), ToolError>;
}
