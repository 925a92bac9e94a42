//! Compares the page of the control protocol, `docs/format/control.md`, with the messages that are sent and understood.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeSet;

use onefold_export::control::{ControlAnswer, ControlReply, ControlRequest, FailureKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

const PAGE: &str = include_str!("../../../docs/format/control.md");

/// Returns the lines of the JSON block below a heading.
fn vectors(heading: &str) -> Vec<String> {
    let (_, section) = PAGE.split_once(&format!("\n### {heading}\n")).unwrap();
    let (_, block) = section.split_once("```json\n").unwrap();
    let (block, _) = block.split_once("```\n").unwrap();
    let mut lines: Vec<String> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix(' ') {
            Some(rest) => lines.last_mut().unwrap().push_str(rest),
            None => lines.push(line.to_owned()),
        }
    }
    assert!(!lines.is_empty(), "{heading}");
    lines
}

fn decoded<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Decodes the vectors below a heading, and checks that they are encoded the same way.
fn round_trip<T: DeserializeOwned + Serialize>(heading: &str) -> Vec<T> {
    let vectors = vectors(heading);
    let values: Vec<T> = vectors.iter().map(|text| decoded(text)).collect();
    for (value, text) in values.iter().zip(&vectors) {
        assert_eq!(serde_json::to_string(value).unwrap(), *text);
    }
    values
}

fn names(names: impl IntoIterator<Item = &'static str>) -> BTreeSet<&'static str> {
    names.into_iter().collect()
}

/// Every verb. A new verb is added here, to [`VERBS`] and to the page.
fn verb(request: &ControlRequest) -> &'static str {
    match request {
        ControlRequest::Stat => "stat",
        ControlRequest::FileStat => "file-stat",
        ControlRequest::Clone => "clone",
        ControlRequest::Grow => "grow",
        ControlRequest::Trim => "trim",
        ControlRequest::Scrub { .. } => "scrub",
        ControlRequest::Sync => "sync",
        ControlRequest::Umount => "umount",
    }
}

const VERBS: [&str; 8] = ["stat", "file-stat", "clone", "grow", "trim", "scrub", "sync", "umount"];

fn kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::BadRequest => "bad-request",
        FailureKind::NotPermitted => "not-permitted",
        FailureKind::Busy => "busy",
        FailureKind::Held => "held",
        FailureKind::NoSpace => "no-space",
        FailureKind::Damaged => "damaged",
        FailureKind::TooManyClients => "too-many-clients",
        FailureKind::Failed => "failed",
    }
}

const KINDS: [&str; 8] =
    ["bad-request", "not-permitted", "busy", "held", "no-space", "damaged", "too-many-clients", "failed"];

fn answer(answer: &ControlAnswer) -> &'static str {
    match answer {
        ControlAnswer::Nothing => "nothing",
        ControlAnswer::Stat { .. } => "stat",
        ControlAnswer::FileStat { .. } => "file-stat",
        ControlAnswer::Bytes { .. } => "bytes",
        ControlAnswer::Scrub { .. } => "scrub",
    }
}

const ANSWERS: [&str; 5] = ["nothing", "stat", "file-stat", "bytes", "scrub"];

#[test]
fn the_vectors_of_the_page_are_what_is_sent_and_understood() {
    let requests: Vec<ControlRequest> = round_trip("Requests");
    assert_eq!(names(requests.iter().map(verb)), names(VERBS));
    let replies: Vec<ControlReply> = round_trip("Replies");
    let answers = replies.iter().filter_map(|reply| match reply {
        ControlReply::Done { answer } => Some(answer),
        _ => None,
    });
    assert_eq!(names(answers.map(answer)), names(ANSWERS));
    let kinds = replies.iter().filter_map(|reply| match reply {
        ControlReply::Failed { kind, .. } => Some(*kind),
        _ => None,
    });
    assert_eq!(names(kinds.map(kind)), names(KINDS));
    assert!(replies.iter().any(|reply| matches!(reply, ControlReply::Progress { .. })));
}

#[test]
fn what_other_versions_say_is_understood_as_the_page_has_it() {
    for pair in vectors("Requests understood as well").chunks(2) {
        assert_eq!(decoded::<ControlRequest>(&pair[0]), decoded(&pair[1]), "{}", pair[0]);
    }
    for pair in vectors("Replies understood as well").chunks(2) {
        assert_eq!(decoded::<ControlReply>(&pair[0]), decoded(&pair[1]), "{}", pair[0]);
    }
}

#[test]
fn what_the_page_calls_refused_is_refused() {
    for text in vectors("Refused requests") {
        assert!(serde_json::from_str::<ControlRequest>(&text).is_err(), "{text}");
    }
}

/// The tables and the vectors of the page have the same names.
#[test]
fn the_tables_of_the_page_list_every_verb_and_every_kind() {
    let rows = |heading: &str| -> Vec<&str> {
        let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let first_cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        first_cells.collect()
    };
    assert_eq!(rows("Requests"), VERBS);
    assert_eq!(rows("Replies"), KINDS);
}
