//! Machines that report their installations, the status of a server, and its health.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_image::UnitName;
use onefold_net::{
    AccessToken, InstallProgress, InstallReporter, InstallState, LimitingStage, RemoteOptions, RemovalPolicy,
    ServerOptions, ServerStatus, StatusClient,
};

use crate::fixture::{Fixture, get, open, options, raw_request, server_options};

const PATIENCE: Duration = Duration::from_secs(5);

fn status(address: SocketAddr) -> ServerStatus {
    StatusClient::new(&format!("http://{address}"), options(PATIENCE)).unwrap().read().unwrap()
}

/// Waits until the server knows that its only machine is in a state, and has so many bytes.
fn wait_for(address: SocketAddr, state: InstallState, done_bytes: u64) {
    let began = Instant::now();
    let is_there = || {
        let machines = status(address).machines;
        machines.len() == 1 && machines[0].state == state && machines[0].progress.done_bytes == done_bytes
    };
    while !is_there() {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", status(address));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Begins to report the installation of the only image. The bytes that are done are in the returned number.
fn report(address: SocketAddr, name: &str) -> (InstallReporter, Arc<AtomicU64>) {
    let remote = open(address, PATIENCE).unwrap();
    let place = remote.report_place(&remote.records()[0]);
    let done = Arc::new(AtomicU64::new(0));
    let done_bytes = Arc::clone(&done);
    let progress = move || InstallProgress {
        done_bytes: done_bytes.load(Ordering::Relaxed),
        total_bytes: 1000,
        limit: Some(LimitingStage::Disk),
        ..InstallProgress::default()
    };
    (place.begin(name.to_owned(), Arc::new(progress)), done)
}

#[test]
fn a_machine_shows_in_the_status_and_in_the_log_until_it_ends() {
    let fixture = Fixture::new(4 << 20);
    let (server, lines) = fixture.serve_logged(&server_options());
    for is_finished in [false, true] {
        let (reporter, done) = report(server.address, "lab-07");
        if !is_finished {
            wait_for(server.address, InstallState::Installing, 0);
            done.store(250, Ordering::Relaxed);
            wait_for(server.address, InstallState::Installing, 250);
            let machine = status(server.address).machines.pop().unwrap();
            assert_eq!((machine.image.as_str(), machine.address.as_str()), ("lab/web@1", "127.0.0.1"));
            assert_eq!((machine.name.as_str(), machine.progress.limit), ("lab-07", Some(LimitingStage::Disk)));
            drop(reporter);
            wait_for(server.address, InstallState::Failed, 250);
        } else {
            reporter.finish();
        }
    }
    let machines = status(server.address).machines;
    assert_eq!(machines.iter().filter(|machine| machine.state == InstallState::Finished).count(), 1, "{machines:?}");
    let lines = lines.lock().clone();
    assert!(lines[0].ends_with("127.0.0.1 `lab-07` began over HTTP"), "{lines:?}");
    assert!(lines[1].contains("failed at 25.0 %"), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("`lab-07` finished: ")), "{lines:?}");
}

#[test]
fn a_server_tells_machines_of_a_removed_image_to_end_if_that_is_wanted() {
    for removal in [RemovalPolicy::End, RemovalPolicy::Finish] {
        let fixture = Fixture::new(4 << 20);
        let (server, _) = fixture.serve_logged(&ServerOptions { removal, ..server_options() });
        let (reporter, done) = report(server.address, "lab-07");
        wait_for(server.address, InstallState::Installing, 0);
        let image = fixture.archive().images()[0].image.clone();
        fixture.archive().remove(&image, &SystemClock, &SystemRandom).unwrap();
        let is_ended = reporter.is_ended();
        let began = Instant::now();
        let limit = if removal == RemovalPolicy::End { Duration::from_secs(20) } else { Duration::from_secs(4) };
        while !is_ended.load(Ordering::Relaxed) && began.elapsed() < limit {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(is_ended.load(Ordering::Relaxed), removal == RemovalPolicy::End);
        done.store(500, Ordering::Relaxed);
        drop(reporter);
        wait_for(server.address, InstallState::Failed, 500);
    }
}

/// A server may not run while an image is removed.
#[test]
fn a_machine_that_the_server_does_not_know_ends_without_its_image() {
    let fixture = Fixture::new(4 << 20);
    let (server, _) = fixture.serve_logged(&ServerOptions { removal: RemovalPolicy::End, ..server_options() });
    let remote = open(server.address, PATIENCE).unwrap();
    let place = remote.report_place(&remote.records()[0]);
    let image = fixture.archive().images()[0].image.clone();
    fixture.archive().remove(&image, &SystemClock, &SystemRandom).unwrap();
    // By then, the server reads its list again.
    thread::sleep(Duration::from_millis(1100));
    let reporter = place.begin("lab-07".to_owned(), Arc::new(InstallProgress::default));
    let (is_ended, began) = (reporter.is_ended(), Instant::now());
    while !is_ended.load(Ordering::Relaxed) {
        assert!(began.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(status(server.address).machines.is_empty());
}

fn token(user: char) -> String {
    user.to_string().repeat(40)
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn only_readers_of_all_images_see_all_machines_and_anybody_sees_the_health() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    let path = folder.path().join("tokens");
    write_secret(&path, &format!("lab/* {}\ndb/* {}\n* {}\n", token('a'), token('b'), token('c')));
    let (server, lines) = fixture.serve_logged(&ServerOptions { tokens: Some(path), ..server_options() });
    let (head, body) = get(server.address, "/v1/health", "");
    assert!(head.starts_with("http/1.1 200") && body == b"{\"status\":\"ok\"}\n", "{head}");
    let code = |user: char| {
        let (head, _) = get(server.address, "/v1/sessions", &format!("Authorization: Bearer {}\r\n", token(user)));
        head[9..12].to_owned()
    };
    assert_eq!(['a', 'b', 'c', 'd'].map(code), ["403", "403", "200", "401"]);
    // A report needs the right to its image.
    let digest = UnitName(fixture.archive().images()[0].digest);
    let report = format!(
        "{{\"run\":\"{}\",\"name\":\"x\",\"mac\":null,\"state\":\"installing\",\"seconds\":1,\"done_bytes\":1,\
         \"total_bytes\":2,\"received_bytes\":0,\"bytes_per_second\":0,\"limit\":null,\"is_multicast\":false,\
         \"received_packets\":0,\"sent_packets\":0}}",
        "7".repeat(32)
    );
    let post = |user: char, body: &str| {
        let head = format!(
            "POST /v1/sessions/{digest}/reports HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Length: {}\r\n\r\n",
            token(user),
            body.len()
        );
        let (head, _) = raw_request(server.address, head + body);
        head[9..12].to_owned()
    };
    assert_eq!(['b', 'd', 'a'].map(|user| post(user, &report)), ["404", "401", "200"]);
    assert_eq!(post('a', "{}"), "400");
    assert_eq!(post('a', &" ".repeat(60_000)), "413");
    write_secret(&folder.path().join("token"), &token('c'));
    let token = Some(AccessToken::read(&folder.path().join("token")).unwrap());
    let client = StatusClient::new(&format!("http://{}", server.address), RemoteOptions { token, ..options(PATIENCE) });
    let machines = client.unwrap().read().unwrap().machines;
    assert!(machines.len() == 1 && machines[0].name == "x" && machines[0].mac.is_none(), "{machines:?}");
    assert_eq!(lines.lock().len(), 1);
}
