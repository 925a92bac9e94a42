//! The survey of an image in parallel to the pass over its blocks: both begin together, and the blocks get their owners
//! when the survey is over.

use std::sync::mpsc;

use crate::claims::{Claims, Wait};
use crate::files::{BlockOwners, ImageSurvey};
use crate::record::ListSet;
use crate::scan::ScanResult;
use crate::scan_error::ScanError;

/// Survey of an image, and the owner of each of its blocks.
pub(crate) type SurveyResult = Result<(ImageSurvey, Option<BlockOwners>), ScanError>;

/// A survey that runs while the blocks of the image are read.
pub(crate) struct ParallelSurvey {
    surveyed: mpsc::Receiver<SurveyResult>,
    has_moved: bool,
    survey: Option<ImageSurvey>,
    failed: Option<ScanError>,
}

impl ParallelSurvey {
    /// Wraps the survey whose result comes through `surveyed`. `has_moved` says whether the image has partitions that
    /// begin inside a block.
    pub(crate) fn new(surveyed: mpsc::Receiver<SurveyResult>, has_moved: bool) -> ParallelSurvey {
        ParallelSurvey { surveyed, has_moved, survey: None, failed: None }
    }

    /// Returns the claims of all blocks, if the survey is over.
    ///
    /// # Errors
    /// When the survey failed, or has ended without a result.
    pub(crate) fn ask(&mut self, wait: Wait) -> Result<Option<Claims>, ScanError> {
        let surveyed = match wait {
            Wait::Yes => self.surveyed.recv().map_err(|_| mpsc::TryRecvError::Disconnected),
            Wait::No => self.surveyed.try_recv(),
        };
        match surveyed {
            Ok(Ok((survey, owners))) => {
                let lists = ListSet::as_they_lie(self.has_moved, !survey.data_areas().is_empty());
                self.survey = Some(survey);
                Ok(Some(Claims::new(lists, owners)))
            }
            Ok(Err(error)) => {
                self.failed = Some(error);
                Err(ScanError::Interrupted)
            }
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(ScanError::Interrupted),
        }
    }

    /// Returns the results of the pass over the blocks and of the survey. If both failed, the survey's error is the
    /// reason why the image is left out, whichever failed first.
    pub(crate) fn end(
        mut self,
        scanned: Result<ScanResult, ScanError>,
    ) -> Result<(ScanResult, Option<ImageSurvey>), ScanError> {
        if matches!(scanned, Err(ScanError::Disk(_))) && self.survey.is_none() && self.failed.is_none() {
            // An error of the survey is stored.
            let _ = self.ask(Wait::Yes);
        }
        match self.failed {
            Some(error) => Err(error),
            None => Ok((scanned?, self.survey)),
        }
    }
}

#[cfg(test)]
mod tests {
    use onefold_disk::DiskError;

    use super::*;

    fn disk(why: &str) -> ScanError {
        ScanError::Disk(DiskError::Other(why.into()))
    }

    fn told(outcome: Result<(ScanResult, Option<ImageSurvey>), ScanError>) -> String {
        match outcome {
            Ok((_, survey)) => format!("survey: {}", survey.is_some()),
            Err(ScanError::Disk(error)) => error.to_string(),
            Err(error) => format!("{error:?}"),
        }
    }

    /// Which of the two threads fails first is random, and must not affect the result.
    #[test]
    fn where_both_fail_the_reason_is_that_of_the_survey() {
        for is_asked in [false, true] {
            let (surveyed, receiver) = mpsc::channel();
            let mut beside = ParallelSurvey::new(receiver, false);
            assert!(matches!(beside.ask(Wait::No), Ok(None)));
            surveyed.send(Err(disk("no guest"))).unwrap();
            drop(surveyed);
            if is_asked {
                assert!(beside.ask(Wait::No).is_err());
            }
            assert_eq!(told(beside.end(Err(disk("no blocks")))), "no guest");
        }
    }

    #[test]
    fn where_one_fails_the_reason_is_its_own() {
        let of = |survey: Option<SurveyResult>, scanned: Result<ScanResult, ScanError>| {
            let (surveyed, receiver) = mpsc::channel();
            if let Some(survey) = survey {
                surveyed.send(survey).unwrap();
            }
            drop(surveyed);
            let mut beside = ParallelSurvey::new(receiver, false);
            let asked = if scanned.is_ok() { beside.ask(Wait::Yes).map(drop) } else { Ok(()) };
            told(beside.end(asked.and(scanned)))
        };
        let found = || Some(Ok((ImageSurvey::default(), None)));
        assert_eq!(of(found(), Ok(ScanResult::default())), "survey: true");
        assert_eq!(of(found(), Err(disk("no blocks"))), "no blocks");
        assert_eq!(of(Some(Err(disk("no guest"))), Ok(ScanResult::default())), "no guest");
        assert_eq!(of(None, Ok(ScanResult::default())), "Interrupted", "a survey that was given up");
        assert_eq!(of(None, Err(disk("no blocks"))), "no blocks");
    }
}
