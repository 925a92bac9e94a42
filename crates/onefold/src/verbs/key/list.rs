//! `onefold key list`

use onefold_image::trust::TrustedKey;
use serde_json::{Value, json};

use super::trusted;
use crate::failure::Outcome;
use crate::output::{Report, TextTable};

pub(super) fn run() -> Outcome<Report> {
    let keys = trusted::all()?;
    let mut table = TextTable::new(["key", "images", "note"]);
    for key in keys.iter() {
        table.row([key.key().id().to_string(), key.pattern().to_owned(), key.note().to_owned()]);
    }
    let text = match keys.is_empty() {
        true => "no key is trusted: unsigned images are accepted".to_owned(),
        false => table.to_string(),
    };
    let document = |key: &TrustedKey| {
        json!({
            "key": key.key().id().to_string(),
            "images": key.pattern(),
            "note": key.note(),
            "text": key.key().text(),
        })
    };
    Ok(Report::done(text, json!({ "keys": keys.iter().map(document).collect::<Vec<Value>>() })))
}
