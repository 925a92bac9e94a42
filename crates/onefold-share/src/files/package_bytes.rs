//! Results of a run for the files of a package.

/// Results for the files of a package, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackageBytes {
    /// Believed equal to others.
    pub believed: u64,
    /// Shared by this run.
    pub shared: u64,
}

impl From<u64> for PackageBytes {
    /// Returns the counts of a package of which this run has shared nothing.
    fn from(believed: u64) -> PackageBytes {
        PackageBytes { believed, shared: 0 }
    }
}
