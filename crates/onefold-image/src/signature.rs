//! Signatures of manifests, in the format of minisign: Ed25519 over the BLAKE2b digest of the object.
//!
//! A manifest names its archive, its image and the digests of all it consists of, so a signature of its bytes covers
//! every byte of the image. Other programs can make and verify the same signatures.

use std::fmt;
use std::ops::{Range, RangeFrom};
use std::str::FromStr;

use ct_codecs::{Base64, Decoder};

/// Number by which a signature names its key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u64);

/// A key that verifies signatures.
#[derive(Clone, Debug)]
pub struct PublicKey {
    id: KeyId,
    /// The key in base 64, as the second line of its file.
    text: String,
    key: minisign_verify::PublicKey,
}

/// A key that makes signatures.
pub struct SecretKey(minisign::SecretKey);

/// A pair of keys as the texts of two files.
pub struct KeyFiles {
    /// The public key.
    pub public: PublicKey,
    /// Text of the file of the secret key, which a password protects unless it was made without one.
    pub secret_text: String,
}

/// Maximum length of the text of a signature in bytes.
pub const SIGNATURE_BYTES_MAX: u64 = 4096;
/// Length of a public key in base 64.
const PUBLIC_TEXT_BYTES: usize = 56;

/// Length of a secret key in bytes, and the places of its parts.
const SECRET_BYTES: usize = 158;
const KDF_AT: Range<usize> = 2..4;
const CHECKSUM_AT: RangeFrom<usize> = 126..;
/// How the key follows from a password.
const KDF_NONE: [u8; 2] = [0, 0];
const KDF_PASSWORD: [u8; 2] = *b"Sc";

/// Why a key or a signature cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// The text is no public key.
    #[error("this is not a public key of minisign")]
    PublicKey,
    /// The text is no secret key.
    #[error("this is not a secret key of minisign")]
    SecretKey,
    /// The password is missing.
    #[error("a password protects the secret key")]
    NoPassword,
    /// The password is wrong, or the key damaged.
    #[error("the password is wrong, or the secret key is damaged")]
    Password,
    /// The library fails, for example for lack of memory or randomness.
    #[error("cannot use the key: {0}")]
    Library(String),
}

impl KeyId {
    /// Parses the form that [`KeyId::name`] returns.
    #[must_use]
    pub fn from_name(name: &str) -> Option<KeyId> {
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let is_name = name.len() == 16 && name.bytes().all(is_digit);
        u64::from_str_radix(name, 16).ok().filter(|_| is_name).map(KeyId)
    }

    /// Returns the form that is a part of an object's name.
    #[must_use]
    pub fn name(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl fmt::Display for KeyId {
    /// Writes the form in which minisign shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PublicKey {
    /// Returns the number of the key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Returns the key in base 64.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text of the key's file.
    #[must_use]
    pub fn file_text(&self) -> String {
        format!("untrusted comment: minisign public key {}\n{}\n", self.id, self.text)
    }

    /// Returns whether `signature` is a valid signature of `object` by this key. Signatures in the form of old versions
    /// of minisign, which hash nothing first, are not.
    #[must_use]
    pub fn verifies(&self, object: &[u8], signature: &[u8]) -> bool {
        let Some(text) = std::str::from_utf8(signature).ok().filter(|text| text.len() as u64 <= SIGNATURE_BYTES_MAX)
        else {
            return false;
        };
        match minisign_verify::Signature::decode(text) {
            Ok(signature) => self.key.verify(object, &signature, false).is_ok(),
            Err(_) => false,
        }
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &PublicKey) -> bool {
        self.text == other.text
    }
}

impl Eq for PublicKey {}

impl FromStr for PublicKey {
    type Err = SignatureError;

    /// Parses a key in base 64, or the text of its file: a line of comment, then the key.
    fn from_str(text: &str) -> Result<PublicKey, SignatureError> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines.find(|line| !line.starts_with("untrusted comment:")).ok_or(SignatureError::PublicKey)?;
        if line.len() != PUBLIC_TEXT_BYTES || lines.next().is_some() {
            return Err(SignatureError::PublicKey);
        }
        let key = minisign_verify::PublicKey::from_base64(line).map_err(|_| SignatureError::PublicKey)?;
        let parsed = minisign::PublicKey::from_base64(line).map_err(|_| SignatureError::PublicKey)?;
        Ok(PublicKey { id: key_id(parsed.keynum())?, text: line.to_owned(), key })
    }
}

fn key_id(number: &[u8]) -> Result<KeyId, SignatureError> {
    let number = number.try_into().map_err(|_| SignatureError::PublicKey)?;
    Ok(KeyId(u64::from_le_bytes(number)))
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

impl fmt::Debug for KeyFiles {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFiles").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SecretKey {
    /// Makes a pair of keys. Deriving a key from a password takes a second and 1 GiB of memory, by design.
    ///
    /// # Errors
    /// When the system has no randomness, or not enough memory.
    pub fn create(password: Option<String>) -> Result<KeyFiles, SignatureError> {
        let failed = |error: minisign::PError| SignatureError::Library(error.to_string());
        let pair = match password {
            Some(password) => minisign::KeyPair::generate_encrypted_keypair(Some(password)),
            None => minisign::KeyPair::generate_unencrypted_keypair(),
        };
        let pair = pair.map_err(failed)?;
        let public: PublicKey = pair.pk.to_base64().parse()?;
        let comment = format!("onefold secret key {}", public.id);
        let secret_text = pair.sk.to_box(Some(&comment)).map_err(failed)?.into_string();
        Ok(KeyFiles { public, secret_text })
    }

    /// Opens a key by the text of its file.
    ///
    /// # Errors
    /// [`SignatureError::NoPassword`] if the key needs a password and none is given. Otherwise when the password is
    /// wrong or the text is no key.
    pub fn open(text: &str, password: Option<String>) -> Result<SecretKey, SignatureError> {
        let wrong = |_| SignatureError::SecretKey;
        let bytes = secret_bytes(text).ok_or(SignatureError::SecretKey)?;
        if bytes[KDF_AT] == KDF_NONE {
            // The library demands a checksum, which Debian's minisign leaves out of keys without a password.
            let has_checksum = bytes[CHECKSUM_AT].iter().any(|byte| *byte != 0);
            return Ok(SecretKey(
                match has_checksum {
                    true => minisign::SecretKeyBox::from_string(text).and_then(|key| key.into_unencrypted_secret_key()),
                    false => minisign::SecretKey::from_bytes(&bytes),
                }
                .map_err(wrong)?,
            ));
        }
        let password = password.ok_or(SignatureError::NoPassword)?;
        let key = minisign::SecretKeyBox::from_string(text).map_err(wrong)?.into_secret_key(Some(password));
        key.map(SecretKey).map_err(|error| match error.kind() {
            minisign::ErrorKind::Verify => SignatureError::Password,
            _ => SignatureError::Library(error.to_string()),
        })
    }

    /// Returns the public key of this key.
    ///
    /// # Errors
    /// When the key is damaged.
    pub fn public(&self) -> Result<PublicKey, SignatureError> {
        let public = minisign::PublicKey::from_secret_key(&self.0).map_err(|_| SignatureError::SecretKey)?;
        public.to_base64().parse()
    }

    /// Returns the signature of an object, as the text of a file. The signature covers `comment`, too.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn sign(&self, object: &[u8], comment: &str) -> Result<String, SignatureError> {
        let signed = minisign::sign(None, &self.0, object, Some(comment), Some("signature by onefold"));
        signed.map(minisign::SignatureBox::into_string).map_err(|error| SignatureError::Library(error.to_string()))
    }
}

/// Returns the bytes in the file of a secret key: a line of comment, then base 64.
fn secret_bytes(text: &str) -> Option<Vec<u8>> {
    let line = text.lines().nth(1).filter(|line| line.len() <= 2 * SECRET_BYTES)?;
    let bytes = Base64::decode_to_vec(line.trim(), None).ok()?;
    let is_known = bytes.len() == SECRET_BYTES
        && bytes.starts_with(b"Ed")
        && [KDF_NONE, KDF_PASSWORD].iter().any(|kdf| &bytes[KDF_AT] == kdf);
    is_known.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_every_byte_of_object_and_comment() {
        let KeyFiles { public, secret_text } = SecretKey::create(None).unwrap();
        let secret = SecretKey::open(&secret_text, None).unwrap();
        assert_eq!(secret.public().unwrap(), public);
        let object = b"a manifest".to_vec();
        let signature = secret.sign(&object, "onefold web@1").unwrap();
        assert!(public.verifies(&object, signature.as_bytes()));
        for at in 0..object.len() {
            let mut other = object.clone();
            other[at] ^= 1;
            assert!(!public.verifies(&other, signature.as_bytes()));
        }
        let lines: Vec<&str> = signature.lines().collect();
        assert_eq!(lines[2], "trusted comment: onefold web@1");
        assert!(!public.verifies(&object, signature.replace("web@1", "web@2").as_bytes()));
        assert!(!public.verifies(&object, &signature.as_bytes()[..signature.len() - 9]));
        let stranger = SecretKey::create(None).unwrap();
        assert!(!stranger.public.verifies(&object, signature.as_bytes()));
    }

    #[test]
    fn no_bytes_of_a_signature_make_a_panic_or_a_valid_one() {
        let KeyFiles { public, secret_text } = SecretKey::create(None).unwrap();
        let signature = SecretKey::open(&secret_text, None).unwrap().sign(b"x", "c").unwrap().into_bytes();
        let is_in_first_line = |at: usize| signature[..at].iter().all(|byte| *byte != b'\n');
        for at in 0..signature.len() {
            for byte in [0, b'\n', b'A', b'=', 0xff] {
                let mut other = signature.clone();
                other[at] = byte;
                // The first line is a comment that is not signed.
                let is_valid = public.verifies(b"x", &other);
                assert!(
                    !is_valid || other == signature || is_in_first_line(at) || at + 1 == other.len(),
                    "{at} {byte}"
                );
            }
            assert!(!public.verifies(b"x", &signature[..at]) || at + 1 == signature.len());
        }
        assert!(!public.verifies(b"x", &[b'x'; 5000]) && !public.verifies(b"x", b""));
    }

    /// Keys that Debian's minisign made, without a password and with the password "a secret".
    const FOREIGN_PLAIN: &str = "untrusted comment: minisign encrypted secret key\n\
        RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAw1kMs00CCVmfKURkdHw7Tijk+QFd\
        Q5oXB/9RF8TtFlVLPktgV/O5qlW0Vi1/OWnR6FTGRxKcQiRxaBiJVXfo6iLlUwbukI9BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\
        AAAAAAAAAAA=\n";
    const FOREIGN_PROTECTED: &str = "untrusted comment: minisign encrypted secret key\n\
        RWRTY0IyHNErk3M28cuKyPTEAkpXnkJG3DkLJjLR/BJtYrJbEZ4AAAACAAAAAAAAAEAAAAAA6gbVrNqi7G1VApLswEhgRQhUcPtp\
        SPy1PxZ0jCDhiwbthCVUdgjPoPvYKC5+iRaygtdw9oDaaOEbUvnu2IUxGmqZwTN4lMbnuAw6FO5O6UvrDTZWT1d/6lC97zOA+OcZ\
        nT6dMniURLY=\n";

    #[test]
    fn keys_of_another_program_are_opened() {
        let key = SecretKey::open(FOREIGN_PLAIN, None).unwrap();
        assert_eq!(key.public().unwrap().text(), "RWTDWQyzTQIJWVW0Vi1/OWnR6FTGRxKcQiRxaBiJVXfo6iLlUwbukI9B");
        let signature = key.sign(b"x", "c").unwrap();
        assert!(key.public().unwrap().verifies(b"x", signature.as_bytes()));
        assert!(matches!(SecretKey::open(FOREIGN_PROTECTED, None), Err(SignatureError::NoPassword)));
    }

    #[test]
    fn keys_are_read_as_files_or_base_64_and_nothing_else_is() {
        let KeyFiles { public, secret_text } = SecretKey::create(None).unwrap();
        for text in [public.text().to_owned(), public.file_text(), format!("\n{}\r\n", public.text())] {
            assert_eq!(text.parse::<PublicKey>().unwrap().id(), public.id());
        }
        let doubled = format!("{0}\n{0}", public.text());
        for text in ["", "untrusted comment: x", "abc", &public.text()[1..], &doubled, &secret_text] {
            assert!(matches!(text.parse::<PublicKey>(), Err(SignatureError::PublicKey)), "{text}");
        }
        for text in ["", "x", "x\n!!", &public.file_text(), &secret_text[..90], &secret_text.replace("RWQ", "AAA")] {
            assert!(matches!(SecretKey::open(text, None), Err(SignatureError::SecretKey)), "{text}");
        }
        assert_eq!(KeyId::from_name(&public.id().name()), Some(public.id()));
        assert_eq!((KeyId::from_name("0123"), KeyId::from_name("00000000000000AA")), (None, None));
    }
}
