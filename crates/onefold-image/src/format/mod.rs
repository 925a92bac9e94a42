//! Every object of an archive: layout, encode, decode. `docs/format/archive.md` is the page for readers.
//!
//! All numbers are little-endian. Each object begins with a *frame* that tells kind, version, archive and its own name.
//! Decoders take hostile bytes: they bound every count by the bytes that are there, and accept only what their encoder
//! could have written.

mod bytes;
pub mod chunk_header;
pub mod descriptor;
mod fields;
mod frame;
pub mod ledger;
pub mod manifest;
pub mod pack;
pub mod segment;
#[cfg(test)]
mod tests;

/// Why bytes are not the object that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// They end too early, or too late.
    #[error("the {structure} has the wrong length")]
    Length {
        /// The structure.
        structure: &'static str,
    },
    /// They are another kind of object, of another archive, or have another name.
    #[error("the {structure} is another object: {what}")]
    Other {
        /// The structure.
        structure: &'static str,
        /// What differs.
        what: &'static str,
    },
    /// A digest does not match.
    #[error("the {structure} is damaged: its digest does not match")]
    Digest {
        /// The structure.
        structure: &'static str,
    },
    /// A newer version of Onefold wrote them.
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
    /// A value makes no sense.
    #[error("the {structure} is damaged: {what}")]
    Value {
        /// The structure.
        structure: &'static str,
        /// What is wrong.
        what: &'static str,
    },
}
