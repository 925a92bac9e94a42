//! Secret keys and their passwords.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use onefold_block::Show;
use onefold_image::signature::{SecretKey, SignatureError};

use crate::failure::{Failure, Outcome};

/// Maximum length of a file of a key, of a password or of trusted keys.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Opens a secret key. If it has a password, takes that from a file or asks on the terminal.
pub(crate) fn open(path: &Path, password_file: Option<&Path>) -> Outcome<SecretKey> {
    let cannot = || format!("cannot use the key `{}`", path.shown());
    let text = read(path)?;
    let failed = |error: &SignatureError| {
        let failure = Failure::new(cannot()).because(error);
        match error {
            SignatureError::SecretKey => failure.hint("give the secret key that `onefold key create` or minisign made"),
            SignatureError::Library(_) => failure.hint("a key with a password takes 1 GiB of memory to open"),
            _ => failure,
        }
    };
    match SecretKey::open(&text, None) {
        Err(SignatureError::NoPassword) => {
            let password = match password_file {
                Some(file) => password_of(file)?,
                None => ask(&format!("password of {}: ", path.shown()))?,
            };
            SecretKey::open(&text, Some(password)).map_err(|error| failed(&error))
        }
        opened => opened.map_err(|error| failed(&error)),
    }
}

/// Returns the password for a new key, from a file or twice from the terminal.
pub(super) fn new_password(file: Option<&Path>) -> Outcome<String> {
    let password = match file {
        Some(file) => password_of(file)?,
        None => {
            let password = ask("password of the new key: ")?;
            if ask("the same once more: ")? != password {
                return Err(Failure::new("the passwords differ").hint("run the command again"));
            }
            password
        }
    };
    match password.as_str() {
        "" => Err(Failure::usage("the password is empty").hint("--no-password makes a key without one")),
        _ => Ok(password),
    }
}

fn password_of(file: &Path) -> Outcome<String> {
    Ok(read(file)?.lines().next().unwrap_or_default().to_owned())
}

fn ask(prompt: &str) -> Outcome<String> {
    rpassword::prompt_password(prompt).map_err(|error| {
        Failure::of_io("cannot ask for the password", &error).hint("--password-file takes it from a file")
    })
}

/// Reads a text of bounded length.
pub(super) fn read(path: &Path) -> Outcome<String> {
    read_if_there(path)?
        .ok_or_else(|| Failure::new(format!("cannot read `{}`", path.shown())).because_of("there is no such file"))
}

/// Reads a text of bounded length; `None` if there is no such file.
pub(super) fn read_if_there(path: &Path) -> Outcome<Option<String>> {
    let cannot = || format!("cannot read `{}`", path.shown());
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| Failure::of_io(cannot(), &error))?,
    };
    let mut text = String::new();
    let length = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if length.map_err(|error| Failure::of_io(cannot(), &error))? as u64 > FILE_BYTES_MAX {
        return Err(Failure::new(cannot()).because_of("it is too long"));
    }
    Ok(Some(text))
}
