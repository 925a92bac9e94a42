//! The findings in one image, on their way into the rows of the run and into the record of the image.

use onefold_block::BLOCK_BYTES_U64;

use super::claims::{Circle, Claims};
use super::examine::Findings;
use super::kept::Recorder;
use super::shared::SharedBlocks;
use super::{Identification, IdentifyError};
use crate::files::packages::PackageNames;
use crate::files::tier::Label;
use crate::format::guest::{KeptFile, PhasedPieces};

/// Makes rows of the findings in one image.
pub(super) struct ImageRows<'r, 'i> {
    pub(super) identifying: &'r mut Identification<'i>,
    pub(super) rank: u32,
    pub(super) circle: Circle<'r>,
    /// The blocks of the image that share with others on the host.
    pub(super) shared: SharedBlocks,
    /// Collects the record for later runs.
    pub(super) recorder: Recorder,
    /// The numbers of its packages in this run.
    pub(super) packages: Vec<u32>,
}

impl Findings for ImageRows<'_, '_> {
    fn package(&mut self, name: String) -> Result<(), IdentifyError> {
        self.packages.push(self.identifying.packages.number_of(&name));
        Ok(())
    }

    fn file(
        &mut self,
        file: KeptFile,
        whole: Option<[u8; 16]>,
        pieces: &mut PhasedPieces,
    ) -> Result<(), IdentifyError> {
        let place = file.package.and_then(|place| usize::try_from(place).ok());
        let package = place.and_then(|place| self.packages.get(place)).copied().unwrap_or(PackageNames::OTHERS);
        let (key, tiers) = (self.identifying.key, self.identifying.search.tiers);
        let claims = Claims { key: &key, circle: self.circle, tiers, whole };
        self.identifying.add_rows(self.rank, &claims, package, (&file, pieces), &self.shared)?;
        self.recorder.push(file, package, pieces);
        Ok(())
    }
}

impl Identification<'_> {
    /// Adds the rows of a file of the image with this rank.
    pub(super) fn add_rows(
        &mut self,
        rank: u32,
        claims: &Claims<'_>,
        package: u32,
        (file, pieces): (&KeptFile, &PhasedPieces),
        shared: &SharedBlocks,
    ) -> Result<(), IdentifyError> {
        let blocks = file.size_bytes.div_ceil(BLOCK_BYTES_U64);
        for (tier, content) in claims.contents(file, pieces) {
            for (phase, pieces) in pieces.phases() {
                let label = Label { tier, package };
                let is_shared = shared.have_most_of(pieces);
                let added = self.candidates.add(rank, content, label, (phase, blocks), pieces, is_shared);
                if !added.map_err(IdentifyError::Temporary)? {
                    self.examined.surplus_files += 1;
                }
            }
        }
        Ok(())
    }
}
