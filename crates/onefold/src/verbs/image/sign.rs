//! `onefold image sign` and `onefold image verify`

use serde_json::{Value, json};

use super::{find, signed};
use crate::cli::image::{SignArgs, VerifyArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Report;
use crate::verbs::archive;
use crate::verbs::key::{secret, trust, trusted};

pub(super) fn sign(arguments: &SignArgs) -> Outcome<Report> {
    let archive = archive::open(&arguments.archive)?;
    let record = find(&archive, &arguments.archive, &arguments.image)?;
    let key = secret::open(&arguments.key, arguments.signing.password_file.as_deref())?;
    let (id, is_new) = signed::sign(&archive, &record, &key)?;
    let text = match is_new {
        true => format!("signed {} with the key {id}", record.image),
        false => format!("{} had been signed with the key {id} before", record.image),
    };
    let json = json!({ "image": record.image.to_string(), "key": id.to_string(), "new": is_new });
    Ok(Report::done(text, json))
}

pub(super) fn verify(arguments: &VerifyArgs) -> Outcome<Report> {
    let archive = archive::open(&arguments.archive)?;
    let record = find(&archive, &arguments.archive, &arguments.image)?;
    let cannot = || format!("cannot verify the image `{}`", record.image);
    let keys = match &arguments.key {
        Some(key) => vec![trust::public_key(key)?],
        None => trusted::all()?.of_name(&record.image.name).map(|key| key.key().clone()).collect(),
    };
    if keys.is_empty() {
        return Err(Failure::new(cannot())
            .because_of("no key is trusted for its name")
            .hint("name a public key with --key, or trust one with `onefold key trust`"));
    }
    let signers = archive.signers(&record, keys.iter());
    let signers = signers.map_err(|error| Failure::of_archive(cannot(), &error))?;
    let names: Vec<String> = signers.iter().map(ToString::to_string).collect();
    let (text, exit) = match names.is_empty() {
        true if arguments.key.is_some() => (format!("{} is not signed by this key", record.image), Exit::Failed),
        true => (format!("{} is not signed by a key that is trusted for its name", record.image), Exit::Failed),
        false => (format!("{} is signed by {}", record.image, names.join(", ")), Exit::Done),
    };
    let json = json!({
        "image": record.image.to_string(),
        "signed": !names.is_empty(),
        "signers": names.into_iter().map(Value::from).collect::<Vec<Value>>(),
    });
    Ok(Report { text, json, exit })
}
