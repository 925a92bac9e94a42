//! `onefold analyze` as its users have it: what it predicts is what a pool then uses, and what goes wrong is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{DONE, FAILED, Folder, INTERRUPTED, USAGE, has, onefold, run, text};
use serde_json::Value;

fn bytes(value: &Value, path: &[&str]) -> u64 {
    let found = path.iter().fold(value, |value, name| &value[*name]);
    found.as_u64().unwrap_or_else(|| panic!("{path:?} is {found}"))
}

fn analyzed(paths: &[&Path]) -> Value {
    onefold("analyze --json", paths).done().json()
}

#[test]
fn the_prediction_is_what_a_pool_uses_after_the_import() {
    let folder = Folder::new();
    let images = [
        folder.image("a.raw", 1, 0),
        folder.image("b.raw", 1, 2),
        folder.image("c.raw", 2, 1),
        folder.noise("d.raw", 12),
    ];
    let images: Vec<&Path> = images.iter().map(|path| path.as_path()).collect();
    let found = analyzed(&images);
    let pool = folder.pool();
    let empty = onefold("pool stat --json", &[&pool]).done().json();
    onefold("pool import", &[&[pool.as_path()], images.as_slice()].concat()).done();
    let stat = onefold("pool stat --json", &[&pool]).done().json();
    for name in ["apparent_bytes", "zero_bytes", "distinct_bytes", "saved_bytes"] {
        assert_eq!(bytes(&found, &["total", name]), bytes(&stat, &["pool", name]), "{name}");
    }
    let metadata = |stat: &Value| bytes(stat, &["pool", "metadata_dynamic_bytes"]);
    let grown = metadata(&stat) - metadata(&empty);
    let predicted = bytes(&found, &["ways", "pool_map_bytes"]);
    // Names and inodes come besides: a few blocks.
    assert!(predicted <= grown && grown - predicted <= 4 * 4096, "{predicted} of {grown}");
    let used = bytes(&stat, &["pool", "distinct_bytes"]) + grown;
    let all = bytes(&found, &["total", "distinct_bytes"]) + predicted;
    assert!(used.abs_diff(all) * 200 <= used, "{all} of {used}: more than 0.5 % apart");
}

#[test]
fn deleting_an_image_frees_what_was_said() {
    let folder = Folder::new();
    let (a, b) = (folder.image("a.raw", 1, 0), folder.noise("b.raw", 9));
    let found = analyzed(&[&a, &b]);
    let both = bytes(&found, &["ways", "pool_bytes"]) - bytes(&found, &["ways", "pool_fixed_bytes"]);
    let alone = analyzed(&[&a]);
    let one = bytes(&alone, &["ways", "pool_bytes"]) - bytes(&alone, &["ways", "pool_fixed_bytes"]);
    assert_eq!(found["images"][1]["freed_bytes"].as_u64(), Some(both - one));
}

#[test]
fn formats_are_read_as_the_disks_that_they_are() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let folder = Folder::new();
    let raw = folder.image("a.raw", 1, 1);
    let mut images = vec![raw.clone()];
    for format in ["qcow2", "vmdk", "vdi"] {
        let image = folder.path(&format!("a.{format}"));
        run("qemu-img", &["convert", "-f", "raw", "-O", format, text(&raw), text(&image)]);
        images.push(image);
    }
    let top = folder.path("top.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "a.qcow2", text(&top)]);
    images.push(top);
    let found = analyzed(&images.iter().map(|path| path.as_path()).collect::<Vec<_>>());
    assert_eq!(found["images"].as_array().unwrap().len(), 5);
    for image in found["images"].as_array().unwrap() {
        assert_eq!(image["distinct_bytes"], found["total"]["distinct_bytes"], "{image}");
        assert_eq!(image["only_here_bytes"], 0, "{image}");
    }
}

#[test]
fn what_cannot_be_read_is_left_out_and_the_rest_goes_on() {
    let folder = Folder::new();
    let good = folder.image("good.raw", 1, 0);
    let damaged = folder.path("damaged.qcow2");
    fs::write(&damaged, [&b"QFI\xfb\0\0\0\x03"[..], &[0xff; 2 << 20]].concat()).unwrap();
    let gone = folder.path("gone.raw");
    let run = onefold("analyze --json", &[&gone, &good, &damaged]);
    assert_eq!(run.code, FAILED, "{run:?}");
    let found = run.json();
    assert_eq!(found["images"].as_array().unwrap().len(), 1);
    let alone = analyzed(&[&good]);
    assert_eq!(found["total"], alone["total"], "nothing of the damaged image counts");
    let left: Vec<&str> =
        found["left_out"].as_array().unwrap().iter().map(|left| left["name"].as_str().unwrap()).collect();
    assert_eq!(left, [text(&damaged), text(&gone)]);
    let told = onefold("analyze", &[&gone, &good]);
    assert!(told.out.contains("1 left out") && told.out.contains("gone.raw: No such file"), "{told:?}");
    onefold("analyze", &[&gone]).failed(FAILED, "gone.raw");
}

#[test]
fn an_image_that_is_written_meanwhile_is_told() {
    let folder = Folder::new();
    let live = folder.noise("live.raw", 64);
    let file = OpenOptions::new().write(true).open(&live).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["analyze", "--json", text(&live)])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Written all the time, as a running machine does.
    while child.try_wait().unwrap().is_none() {
        file.write_all_at(&[7; 4096], 4096).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    let found: Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    assert_eq!(found["images"][0]["changed_meanwhile"], true);
}

#[test]
fn an_interrupted_analysis_leaves_nothing_behind() {
    let folder = Folder::new();
    let image = folder.noise("a.raw", 200);
    let temporary = folder.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let report = folder.path("report.html");
    for signal in ["-INT", "-KILL"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onefold"))
            .args(["analyze", "--quiet", "--shifts", "--memory", "64M", "--temporary", text(&temporary)])
            .args(["--report", text(&report), text(&image)])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(300));
        run("kill", &[signal, &child.id().to_string()]);
        let status = child.wait().unwrap();
        if signal == "-INT" {
            assert_eq!(status.code(), Some(INTERRUPTED));
        }
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{signal}");
        assert!(!report.exists(), "{signal}");
    }
}

#[test]
fn a_report_is_one_page_beside_the_result() {
    let folder = Folder::new();
    let (image, report) = (folder.image("a.raw", 1, 0), folder.path("report.html"));
    let run = onefold(&format!("analyze --json --group old=a.* --report {}", text(&report)), &[&image]).done();
    assert_eq!(run.json()["groups"][0]["images"], 1);
    let page = fs::read_to_string(&report).unwrap();
    assert!(page.contains("a.raw") && page.contains("figure-images"), "{page}");
    onefold(&format!("analyze --report {}", text(&image)), &[&image]).failed(FAILED, "no page of HTML");
}

#[test]
fn a_group_without_images_is_refused() {
    let folder = Folder::new();
    let image = folder.image("a.raw", 1, 0);
    let run = onefold("analyze --group old=a.* --group none=zzz", &[&image]);
    run.failed(USAGE, "no image matches the pattern `zzz` of the group `none`");
}

#[test]
fn less_memory_gives_the_same_numbers() {
    let folder = Folder::new();
    let images = [folder.noise("a.raw", 300), folder.image("b.raw", 3, 0)];
    let images: Vec<&Path> = images.iter().map(|path| path.as_path()).collect();
    // A file system that allocates late gives the files more or less blocks until they are on the disk.
    images.iter().for_each(|image| File::open(image).unwrap().sync_all().unwrap());
    let counts = |memory: &str| {
        let mut found = onefold(&format!("analyze --json --shifts --memory {memory}"), &images).done().json();
        (found.as_object_mut().unwrap().remove("effort").unwrap(), found)
    };
    let (effort, little) = counts("64M");
    let (_, much) = counts("1G");
    assert_eq!(little, much);
    assert!(bytes(&effort, &["spilled_bytes"]) > 0, "{effort}");
    assert!(bytes(&effort, &["memory_peak_bytes"]) < 64 << 20, "{effort}");
}

#[test]
fn a_file_that_is_named_twice_counts_once() {
    let folder = Folder::new();
    let image = folder.image("a.raw", 1, 0);
    let found = analyzed(&[&image, &folder.path(""), &image]);
    assert_eq!(found["total"], analyzed(&[&image])["total"]);
    assert_eq!(found["left_out"].as_array().unwrap().len(), 2);
}

/// Returns a range of the document, which holds its own guess.
fn range(value: &Value, path: &[&str]) -> std::ops::RangeInclusive<u64> {
    let end = |name: &str| bytes(value, &[path, &[name]].concat());
    assert!(end("low") <= end("best") && end("best") <= end("high"), "{path:?} of {value}");
    end("low")..=end("high")
}

#[test]
fn a_sample_reads_little_and_says_what_it_is() {
    let folder = Folder::new();
    let noise = folder.noise("noise.raw", 300);
    let clone = folder.path("clone.raw");
    fs::copy(&noise, &clone).unwrap();
    let report = folder.path("report.html");
    let images: [&Path; 2] = [&noise, &clone];
    // Of noise and its clone the truth is within whatever is drawn: all regions are alike.
    let found = onefold(&format!("analyze --json --sample --report {}", text(&report)), &images).done().json();
    let exact = analyzed(&images);
    for figure in ["zero_bytes", "distinct_bytes", "saved_bytes"] {
        let range = range(&found, &["total", figure]);
        assert!(range.contains(&bytes(&exact, &["total", figure])), "{figure}: {range:?}");
    }
    assert!(range(&found, &["ways", "pool_bytes"]).contains(&bytes(&exact, &["ways", "pool_bytes"])));
    // Twelve of 300 regions are expected; a tenth of all is more than five standard deviations away.
    assert!(bytes(&found, &["effort", "read_bytes"]) * 10 <= bytes(&exact, &["effort", "read_bytes"]), "{found}");
    assert_eq!(found["sample"]["share"], 0.04);
    assert_eq!(found["sample"]["confidence"], 0.95);
    assert_eq!(found["sample"]["is_small"], true);
    assert!(found.get("similarity").is_none() && found["images"][0].get("only_here_bytes").is_none());
    let page = fs::read_to_string(&report).unwrap();
    assert!(page.contains("from a sample") && page.contains("In at least 95 of 100 such samples"), "{page}");
    let told = onefold("analyze --details --sample 25%", &images).done().out;
    assert!(
        told.contains("A sample: ") && told.contains("A sample does not show ") && told.contains("at most"),
        "{told}"
    );
}

#[test]
fn a_sample_of_a_qcow2_image_is_that_of_its_disk() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let folder = Folder::new();
    let raw = folder.noise("a.raw", 80);
    let image = folder.path("a.qcow2");
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", text(&raw), text(&image)]);
    let found = onefold("analyze --json --sample=50%", &[&raw, &image]).done().json();
    let (first, second) = (&found["images"][0], &found["images"][1]);
    assert_eq!(first["data_bytes"], second["data_bytes"]);
    assert_eq!(first["read_bytes"], second["read_bytes"], "the same places");
    // Clones wherever it looks: half is saved, to the byte of the guess.
    let guess = |name: &str| bytes(&found, &["total", name, "best"]);
    assert_eq!(guess("distinct_bytes") + guess("saved_bytes") + guess("zero_bytes"), 160 << 20);
    assert!(range(&found, &["total", "saved_bytes"]).contains(&(80 << 20)), "{found}");
}

#[test]
fn wrong_usage_is_told_before_anything_is_read() {
    let folder = Folder::new();
    let image = folder.image("a.raw", 1, 0);
    for arguments in [
        "analyze --memory 1M",
        "analyze --group x",
        "analyze --group a=[",
        "analyze --sample=x",
        "analyze --sample=90%",
        "analyze --sample --shifts",
        "analyze --sample --group a=b",
    ] {
        assert_eq!(onefold(arguments, &[&image]).code, USAGE, "{arguments}");
    }
    assert_eq!(onefold("analyze", &[]).code, USAGE);
    assert_eq!(onefold("analyze --help", &[]).code, DONE);
}
