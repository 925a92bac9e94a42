//! `onefold key create`

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_image::signature::SecretKey;
use serde_json::json;

use super::secret::new_password;
use crate::cli::key::CreateArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};

/// Permissions of a secret key, and of a public one.
const SECRET_MODE: u32 = 0o600;
const PUBLIC_MODE: u32 = 0o644;

pub(super) fn run(arguments: &CreateArgs) -> Outcome<Report> {
    let secret_path = &arguments.file;
    let public_path = public_path(secret_path);
    let cannot = || format!("cannot make the key `{}`", secret_path.shown());
    if let Some(there) = [secret_path, &public_path].into_iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Failure::new(cannot())
            .because_of(format!("`{}` exists", there.shown()))
            .hint("give another name: images that the old key has signed need the old key"));
    }
    let password = match arguments.no_password {
        true => None,
        false => Some(new_password(arguments.password_file.as_deref())?),
    };
    let files = SecretKey::create(password).map_err(|error| Failure::new(cannot()).because(&error))?;
    write_new(secret_path, &files.secret_text, SECRET_MODE)?;
    // Without its public key, the secret one would be in the way of the next attempt.
    write_new(&public_path, &files.public.file_text(), PUBLIC_MODE)
        .inspect_err(|_| drop(fs::remove_file(secret_path)))?;
    let id = files.public.id();
    let text = format!(
        "made the key {id}: {} signs, {} verifies\nto trust it: onefold key trust {} 'NAME*'",
        secret_path.shown(),
        public_path.shown(),
        public_path.shown()
    );
    let json = json!({
        "key": id.to_string(),
        "secret": machine_name(secret_path),
        "public": machine_name(&public_path),
        "text": files.public.text(),
    });
    Ok(Report::done(text, json))
}

/// Returns the path of the public key that belongs to a secret one.
fn public_path(secret: &Path) -> PathBuf {
    let mut path = secret.as_os_str().to_owned();
    path.push(".pub");
    PathBuf::from(path)
}

fn write_new(path: &Path, text: &str, mode: u32) -> Outcome<()> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        // A part of a key is none.
        written.inspect_err(|_| drop(fs::remove_file(path)))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(|error| Failure::of_io(format!("cannot write `{}`", path.shown()), &error))
}
