//! `/etc/os-release` (os-release(5)): assignments in shell syntax, one per line.

/// The release of a system. A missing field is empty; text that is not UTF-8 has replacement characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// `ID`: the system in lower case, such as `debian`.
    pub id: String,
    /// `NAME`: its name without a version.
    pub name: String,
    /// `VERSION_ID`: its version as a number, such as `12`.
    pub version: String,
    /// `VERSION_CODENAME`: the name of the version.
    pub code_name: String,
    /// `PRETTY_NAME`: name and version for people.
    pub pretty_name: String,
}

/// Maximum length of a value.
const VALUE_BYTES_MAX: usize = 1024;

impl Release {
    /// Parses a file. Lines that are not assignments are skipped; of repeated fields, the last one counts.
    #[must_use]
    pub fn parse(text: &[u8]) -> Release {
        let mut release = Release::default();
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii();
            let Some(equals) = line.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (line.get(..equals).unwrap_or_default(), line.get(equals + 1..).unwrap_or_default());
            let field = match name {
                b"ID" => &mut release.id,
                b"NAME" => &mut release.name,
                b"VERSION_ID" => &mut release.version,
                b"VERSION_CODENAME" => &mut release.code_name,
                b"PRETTY_NAME" => &mut release.pretty_name,
                _ => continue,
            };
            *field = String::from_utf8_lossy(&unquoted(value)).into_owned();
        }
        release
    }
}

/// Returns a value as a shell would assign it, without expansions, which the format forbids.
fn unquoted(value: &[u8]) -> Vec<u8> {
    let value = value.get(..VALUE_BYTES_MAX).unwrap_or(value);
    let mut plain = Vec::with_capacity(value.len());
    let mut quote = None;
    let mut bytes = value.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'"' | b'\'', None) => quote = Some(byte),
            (byte, Some(open)) if byte == open => quote = None,
            (b'\\', None) => plain.extend(bytes.next()),
            (b'\\', Some(b'"')) => {
                let escaped = bytes.next_if(|next| matches!(next, b'"' | b'\\' | b'$' | b'`'));
                plain.push(escaped.unwrap_or(byte));
            }
            (b' ' | b'\t', None) => break,
            _ => plain.push(byte),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_a_shell_reads_them() {
        for (value, plain) in [
            ("debian", "debian"),
            ("\"Debian GNU/Linux 12 (bookworm)\"", "Debian GNU/Linux 12 (bookworm)"),
            ("'a $b \\ c'", "a $b \\ c"),
            (r#""a \"b\" \$c \n""#, r#"a "b" $c \n"#),
            ("a\\ b", "a b"),
            ("one two", "one"),
            ("\"open", "open"),
            ("a\\", "a"),
            ("", ""),
        ] {
            assert_eq!(unquoted(value.as_bytes()), plain.as_bytes(), "{value}");
        }
    }

    #[test]
    fn a_release_has_the_fields_of_its_file() {
        let text = b"PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\n\
            VERSION=\"12 (bookworm)\"\r\n# ID=none\nVERSION_CODENAME=bookworm\nID=debian\nBROKEN\nHOME_URL=x=y\n";
        let release = Release::parse(text);
        assert_eq!((release.id.as_str(), release.version.as_str()), ("debian", "12"));
        assert_eq!((release.name.as_str(), release.code_name.as_str()), ("Debian GNU/Linux", "bookworm"));
        assert_eq!(release.pretty_name, "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(Release::parse(&[0xff, b'=', 0xfe]), Release::default());
    }
}
