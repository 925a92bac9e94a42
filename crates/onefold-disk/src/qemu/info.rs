//! The answer of `qemu-img info` about one layer of an image.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::child::{POLL_INTERVAL, QemuProcess, read_bounded};
use crate::error::ImageError;

/// Maximum run time. `qemu-img info` only reads headers; an image that keeps it busy for longer is hostile.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of bytes that are read of its answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The answer of `qemu-img info` about one layer alone.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LayerDescription {
    /// Length of the disk in bytes.
    pub(super) virtual_size: u64,
    /// The layer below, if the layer names one.
    pub(super) backing_filename: Option<String>,
}

impl LayerDescription {
    /// Asks about the layer that `node` describes. The program opens nothing but the layer's own `files`.
    pub(super) fn of(node: &str, files: &[File]) -> Result<LayerDescription, ImageError> {
        let arguments = ["info".to_owned(), "--output=json".to_owned(), node.to_owned()];
        let files: Vec<&File> = files.iter().collect();
        let mut running = QemuProcess::start(&arguments, &files)?;
        let answer = running.output().map(|output| thread::spawn(move || read_bounded(output, ANSWER_BYTES_MAX)));
        let started = Instant::now();
        let status = loop {
            match running.poll()? {
                Some(status) => break status,
                None if started.elapsed() < TIME_MAX => thread::sleep(POLL_INTERVAL),
                None => return Err(ImageError::Endless),
            }
        };
        if !status.success() {
            return Err(running.complaint());
        }
        let answer = answer.and_then(|thread| thread.join().ok()).unwrap_or_default();
        Ok(serde_json::from_str(&answer)?)
    }
}
