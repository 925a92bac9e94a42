//! Labels: an administrator's choice of the domain of a file, or of a folder with everything below it.
//!
//! A label is the attribute `trusted.onefold.domain`. Only a process with `CAP_SYS_ADMIN` can set or read such
//! attributes, so a user cannot put files of others into a domain of their own.

use std::io;
use std::path::Path;

use onefold_block::Show;
use onefold_substrate::Substrate;

use super::{Domain, DomainNameError};

/// Name of the attribute.
pub const ATTRIBUTE: &str = "trusted.onefold.domain";
/// Value of the attribute that puts files into their owners' domains, whatever a folder above says.
pub(crate) const BY_OWNER: &str = "owner";

/// The meaning of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// Files belong to this domain.
    Domain(Domain),
    /// Files belong to their owners' domains.
    ByOwner,
}

impl Label {
    /// Returns the label of an attribute's value.
    ///
    /// # Errors
    /// See [`DomainNameError`].
    pub fn parse(value: &[u8]) -> Result<Label, DomainNameError> {
        let text = std::str::from_utf8(value.trim_ascii()).map_err(|_| DomainNameError::Character)?;
        if text == BY_OWNER { Ok(Label::ByOwner) } else { text.parse().map(Label::Domain) }
    }

    /// Returns the attribute's value for this label.
    #[must_use]
    pub fn value(&self) -> String {
        match self {
            Label::Domain(domain) => domain.to_string(),
            Label::ByOwner => BY_OWNER.to_owned(),
        }
    }
}

/// Gives a file or folder a label, or removes its label.
///
/// # Errors
/// Errors of setting the attribute.
pub fn set<S: Substrate>(substrate: &S, path: &Path, label: Option<&Label>) -> io::Result<()> {
    substrate.set_attribute(path, ATTRIBUTE, label.map(Label::value).as_ref().map(String::as_bytes))
}

/// Returns the label in a value, if there is one. `of` is the path of its file, for the error.
///
/// # Errors
/// `InvalidData` if it names no domain: it is unknown what the administrator wanted.
pub(super) fn read(value: Option<Vec<u8>>, of: &Path) -> io::Result<Option<Label>> {
    let Some(value) = value else { return Ok(None) };
    Label::parse(&value).map(Some).map_err(|why| {
        let of = if of.as_os_str().is_empty() { Path::new(".") } else { of };
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the attribute `{ATTRIBUTE}` of `{}` names no domain: {why}; set it with `onefold share domain set`",
                of.shown()
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_survive_their_values() {
        for (value, label) in [
            (&b"staff"[..], Label::Domain("staff".parse().unwrap())),
            (b" 1000\n", Label::Domain(Domain::Owner(1000))),
            (b"owner", Label::ByOwner),
        ] {
            assert_eq!(Label::parse(value).unwrap(), label);
            assert_eq!(Label::parse(label.value().as_bytes()).unwrap(), label);
        }
        for value in [&b""[..], b"\xff", b"a b", b"\0"] {
            Label::parse(value).unwrap_err();
            assert_eq!(read(Some(value.to_owned()), Path::new("a")).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(read(None, Path::new("a")).unwrap(), None);
    }
}
