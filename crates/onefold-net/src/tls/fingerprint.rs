//! The fingerprint of a certificate: SHA-256 over its DER form, as `openssl x509 -fingerprint -sha256` shows it.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

/// Digest of a certificate. It is displayed as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// A text is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint has 64 hexadecimal digits, with or without colons between pairs of them")]
pub struct InvalidFingerprint;

impl Fingerprint {
    /// Returns the fingerprint of a certificate.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        Fingerprint(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, InvalidFingerprint> {
        // Pairs of digits, each but the first with a colon before it, or none.
        let digits = match text.contains(':') {
            true => text.split(':').map(|pair| Some(pair).filter(|pair| pair.len() == 2)).collect::<Option<String>>(),
            false => Some(text.to_owned()),
        };
        let digits = digits.ok_or(InvalidFingerprint)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(InvalidFingerprint);
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).map_err(|_| InvalidFingerprint)?;
        }
        Ok(Fingerprint(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_usual_forms_are_accepted_and_nothing_else() {
        let plain = "0a1b".repeat(16);
        let fingerprint: Fingerprint = plain.parse().unwrap();
        assert_eq!(fingerprint.to_string(), plain);
        let pairs: Vec<&str> = (0..32).map(|index| &plain[2 * index..2 * index + 2]).collect();
        assert_eq!(pairs.join(":").to_uppercase().parse(), Ok(fingerprint));
        for text in ["", ":", "0a", &plain[1..], &format!("{plain}0a"), &pairs.join("::"), &format!(":{plain}")] {
            assert_eq!(text.parse::<Fingerprint>(), Err(InvalidFingerprint), "{text}");
        }
        assert_eq!("ä".repeat(32).parse::<Fingerprint>(), Err(InvalidFingerprint));
        assert_eq!(format!("+{}", &plain[1..]).parse::<Fingerprint>(), Err(InvalidFingerprint));
    }
}
