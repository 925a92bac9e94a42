//! Reports of machines that install images, the status of all of them, and the health of the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use onefold_image::UnitName;
use tokio::time::{MissedTickBehavior, interval};

use super::RemovalPolicy;
use super::body::Pieces;
use super::connection::Activity;
use super::machines::ReportAnswer;
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
    let known = state.machines().update(address, digest, &report, Instant::now());
    let ReportAnswer { lines, is_ended } = match known {
        Some(answer) => answer,
        // Only the first report of a machine has the list of images looked at.
        None => match state.work(&activity, move |state| state.find_digest(&rights, digest)).await {
            Some(Some(record)) => {
                let lines = state.machines().insert(address, (record.image, digest), report, Instant::now());
                ReportAnswer { lines, is_ended: false }
            }
            Some(None) => return no_answer(&state, &Problem::Missing),
            None => return no_answer(&state, &Problem::Server),
        },
    };
    lines.iter().for_each(|line| state.log(line));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = if is_ended { StatusCode::GONE } else { StatusCode::OK };
    set(&mut response, CACHE_CONTROL, "no-store");
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
    let status = ServerStatus { machines: state.machines().status(Instant::now()) };
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
pub(super) async fn follow_machines(state: Arc<ServerState>, removal: RemovalPolicy) {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        state.machines().pass(Instant::now()).iter().for_each(|line| state.log(line));
        if removal == RemovalPolicy::End && !state.machines().are_none() {
            let state = Arc::clone(&state);
            // A thread of its own, as for the file of tokens.
            let _ = tokio::task::spawn_blocking(move || {
                let images = state.images(&Rights::All);
                state.machines().end_others(&images.iter().map(|record| record.digest).collect());
            })
            .await;
        }
    }
}
