//! Layout and encoding of every object of an archive. `docs/format/archive.md` is the page for readers.
//!
//! All numbers are little-endian. Each object begins with a *frame* that gives its kind, version, archive and name.
//! Decoders take hostile bytes: they bound every count by the bytes that remain, and accept only bytes that their
//! encoder could have written.

mod bytes;
pub mod chunk_header;
pub mod descriptor;
mod fields;
mod frame;
pub mod ledger;
pub mod manifest;
pub mod multicast;
pub mod pack;
pub mod segment;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod wire;

/// Why bytes are not the object that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end too early or too late.
    #[error("the {structure} has the wrong length")]
    Length {
        /// The structure.
        structure: &'static str,
    },
    /// The bytes are another kind of object, belong to another archive, or have another name.
    #[error("the {structure} is another object: {what}")]
    Other {
        /// The structure.
        structure: &'static str,
        /// Difference to the expected object.
        what: &'static str,
    },
    /// A digest does not match.
    #[error("the {structure} is damaged: its digest does not match")]
    Digest {
        /// The structure.
        structure: &'static str,
    },
    /// A newer version of Onefold wrote the bytes.
    #[error(
        "the {structure} has version {version} and features {features:#x}, which this version of Onefold does not know"
    )]
    Newer {
        /// The structure.
        structure: &'static str,
        /// Its version.
        version: u16,
        /// Its features.
        features: u32,
    },
    /// A value is invalid.
    #[error("the {structure} is damaged: {what}")]
    Value {
        /// The structure.
        structure: &'static str,
        /// Why the value is invalid.
        what: &'static str,
    },
}
