//! Reports of machines that install images, the status of all of them, and the health of the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use onefold_image::UnitName;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::body::Pieces;
use super::connection::Activity;
use super::machines::{REPORT_EVERY, ReportAnswer};
use super::routes::{Problem, SMALL_BYTES, no_answer, set, unit_name};
use super::state::ServerState;
use super::tokens::Rights;
use crate::report::{MachineReport, ServerStatus};

/// How often silent machines are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Says that the server answers. It tells nothing of images, so anybody may ask.
const HEALTH: &str = "{\"status\":\"ok\"}\n";

/// Takes a report of a machine that installs an image which it may read.
pub(super) async fn report(
    State(state): State<Arc<ServerState>>,
    Extension(activity): Extension<Arc<Activity>>,
    Extension(rights): Extension<Rights>,
    Path(name): Path<String>,
    request: Bytes,
) -> Response {
    let Some(UnitName(digest)) = unit_name(&name) else { return no_answer(&state, &Problem::Missing) };
    let Some(report) = MachineReport::decode(&request) else {
        return no_answer(&state, &Problem::Request("this is no report of a machine"));
    };
    let address = activity.client();
    let ReportAnswer { lines, is_ended } = match state.machines().update(address, digest, &report, Instant::now()) {
        Some(answer) => answer,
        // Nothing depends on the list of images then.
        None if !state.ends_removed() && !state.machines().takes(&report, address) => ReportAnswer::default(),
        None => match state.work(&activity, move |state| state.find_digest(&rights, digest)).await {
            Some(Some(record)) => {
                let lines = state.machines().insert(address, (record.image, digest), report, Instant::now());
                ReportAnswer { lines, is_ended: false }
            }
            // The image may have been removed while the server did not run. One without a right to it learns nothing.
            Some(None) if state.ends_removed() => ReportAnswer { lines: Vec::new(), is_ended: true },
            Some(None) => return no_answer(&state, &Problem::Missing),
            None => return no_answer(&state, &Problem::Server),
        },
    };
    lines.iter().for_each(|line| state.log(line));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = if is_ended { StatusCode::GONE } else { StatusCode::OK };
    set(&mut response, CACHE_CONTROL, "no-store");
    let pause = state.machines().report_pause();
    set(&mut response, RETRY_AFTER, &pause.as_secs().to_string());
    if pause > REPORT_EVERY {
        // Connections of idle machines would take the places of those that install over HTTP.
        set(&mut response, CONNECTION, "close");
    }
    response
}

/// Returns the machines of all images, to a client that may read all images.
pub(super) async fn status(
    State(state): State<Arc<ServerState>>,
    Extension(activity): Extension<Arc<Activity>>,
    Extension(rights): Extension<Rights>,
) -> Response {
    if !rights.include_all() {
        return no_answer(&state, &Problem::Refused("the status is for tokens that may read all images (`*`)"));
    }
    let room = state.room(&activity, SMALL_BYTES).await;
    let sessions = state.sessions().map(|sessions| sessions.status()).unwrap_or_default();
    let status = ServerStatus { machines: state.machines().status(Instant::now()), sessions };
    let Ok(text) = serde_json::to_string(&status) else { return no_answer(&state, &Problem::Server) };
    let mut response = Response::new(Body::new(Pieces::new(std::iter::once(text.into()), room)));
    set(&mut response, CACHE_CONTROL, "no-store");
    set(&mut response, CONTENT_TYPE, "application/json");
    response
}

/// Says that the server answers.
pub(super) async fn health() -> Response {
    let mut response = Response::new(Body::from(HEALTH));
    set(&mut response, CACHE_CONTROL, "no-store");
    set(&mut response, CONTENT_TYPE, "application/json");
    response
}

/// Notices machines that report no more, and ends the installations of removed images if that is wanted. Does not
/// return.
pub(super) async fn follow_machines(state: Arc<ServerState>) {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ending: Option<JoinHandle<()>> = None;
    loop {
        look.tick().await;
        state.machines().pass(Instant::now()).iter().for_each(|line| state.log(line));
        // The store of the archive may not answer for long.
        let is_idle = ending.as_ref().is_none_or(JoinHandle::is_finished);
        if is_idle && state.ends_removed() && !state.machines().are_none() {
            let state = Arc::clone(&state);
            // A thread of its own, as for the file of tokens.
            ending = Some(tokio::task::spawn_blocking(move || {
                let before = Instant::now();
                let images = state.images(&Rights::All);
                let digests = images.iter().map(|record| record.digest).collect();
                state.machines().end_others(&digests, before);
            }));
        }
    }
}
