//! A token of a server of images, as clients present it.

use std::fmt;
use std::path::Path;

use crate::NetError;
use crate::private::read_private;

/// Length of a token in bytes. A shorter one could be guessed.
const TOKEN_BYTES_MIN: usize = 32;
const TOKEN_BYTES_MAX: usize = 1024;
/// Describes a token in messages.
pub(crate) const FORM: &str = "a token has 32 to 1024 letters, digits and characters of `-._~+/=`";

/// A secret that gives the right to read some images of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(String);

impl fmt::Debug for AccessToken {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AccessToken").finish()
    }
}

impl AccessToken {
    /// Reads the token of a file, which has nothing else but white space.
    ///
    /// # Errors
    /// When the file cannot be read, is open to other users, or has no token.
    pub fn read(path: &Path) -> Result<AccessToken, NetError> {
        let bytes = read_private(path)?;
        let text = std::str::from_utf8(&bytes).ok().map(str::trim).filter(|text| is_token(text));
        let none = || NetError::Content { path: path.to_owned(), what: format!("has no token alone: {FORM}") };
        Ok(AccessToken(text.ok_or_else(none)?.to_owned()))
    }

    /// Returns the value of the header `Authorization` (RFC 6750).
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

/// Returns whether a text is a token, which a header can have and nobody can guess.
pub(crate) fn is_token(text: &str) -> bool {
    let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_character)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_has_one_token_that_is_shown_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = "0aZ-._~+/=".repeat(4);
        fs::write(&path, format!(" {token}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(AccessToken::read(&path), Err(NetError::Open { .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let read = AccessToken::read(&path).unwrap();
        assert_eq!(read.authorization(), format!("Bearer {token}"));
        assert!(!format!("{read:?}").contains(&token));
        for text in
            ["", "short", &format!("{token} {token}"), &format!("{token}\n{token}"), &"x".repeat(1025), &"ä".repeat(20)]
        {
            fs::write(&path, text).unwrap();
            let error = AccessToken::read(&path).unwrap_err();
            assert!(matches!(error, NetError::Content { .. }), "{text:.40}: {error}");
            assert!(!error.to_string().contains(&token), "a message has no secret");
        }
    }
}
