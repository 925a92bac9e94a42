//! `onefold key trust`

use std::path::Path;

use onefold_block::Show;
use onefold_image::signature::PublicKey;
use onefold_image::trust::TrustedKey;
use serde_json::json;

use super::{secret, trusted};
use crate::cli::key::TrustArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};

pub(super) fn run(arguments: &TrustArgs) -> Outcome<Report> {
    let key = public_key(&arguments.key)?;
    let path = trusted::own_file()?;
    let mut known = trusted::of_file(&path)?;
    let mut lines = String::new();
    for name in &arguments.names {
        let entry = TrustedKey::new(name, key.clone(), &arguments.note).ok_or_else(|| {
            Failure::usage(format!("no image can have the name `{}`", name.as_str().shown()))
                .hint("a pattern is a name in which `*` stands for any characters, for example `site/*`")
        })?;
        let line = format!("{entry}\n");
        if known.add(entry) {
            lines.push_str(&line);
        }
    }
    if !lines.is_empty() {
        trusted::append(&path, &lines)?;
    }
    let names = arguments.names.join(", ");
    let text = format!("{} trusts the key {} for the images {names}", path.shown(), key.id());
    let json = json!({ "key": key.id().to_string(), "names": arguments.names, "file": machine_name(&path) });
    Ok(Report::done(text, json))
}

/// Returns a public key by its file, or by the key itself.
pub(crate) fn public_key(text: &str) -> Outcome<PublicKey> {
    if let Ok(key) = text.parse() {
        return Ok(key);
    }
    let path = Path::new(text);
    let cannot = || format!("cannot use the key `{}`", path.shown());
    let key = secret::read(path).map_err(|failure| failure.wrap(cannot()))?.parse();
    key.map_err(|error| {
        Failure::new(cannot()).because(&error).hint("give the file that ends in `.pub`, or the key itself in base 64")
    })
}
