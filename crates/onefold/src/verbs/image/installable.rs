//! An image that was found for an installation.

use std::sync::Arc;

use onefold_image::ImageSource;
use onefold_image::archive::ImageRecord;
use onefold_image::format::manifest::Manifest;
use onefold_net::{ReportPlace, SharedGroupReport};

/// An image that may be installed.
pub(super) struct InstallableImage {
    pub(super) record: ImageRecord,
    pub(super) manifest: Manifest,
    pub(super) source: Arc<dyn ImageSource>,
    /// Counts of chunks by way, if the image is to come by multicast.
    pub(super) group: Option<SharedGroupReport>,
    /// Where the installation is reported, if the image is that of a server.
    pub(super) report: Option<ReportPlace>,
}
