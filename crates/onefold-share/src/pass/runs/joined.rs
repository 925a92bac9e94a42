//! Runs that follow on each other, as one: a call of the file system costs about the same for a block as for a range.

use std::io;

use super::{Run, RunBatch};

/// Joins the runs of a batch.
#[derive(Default)]
pub(in crate::pass) struct Joined {
    /// The run that did not go on with the last one.
    ahead: Option<Run>,
}

impl Joined {
    /// Returns the next runs of a batch that follow on each other in both of their files. An error comes instead of the
    /// run that it cuts off.
    pub(in crate::pass) fn next(&mut self, batch: &mut dyn RunBatch) -> io::Result<Option<Run>> {
        let first = match self.ahead.take() {
            Some(ahead) => Some(ahead),
            None => batch.next_run()?,
        };
        let Some(mut run) = first else { return Ok(None) };
        while let Some(next) = batch.next_run()? {
            if run.goes_on_with(&next) {
                run.count += next.count;
            } else if !run.tells_as_much_as(&next) {
                self.ahead = Some(next);
                break;
            }
        }
        Ok(Some(run))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;
    use crate::format::FileNo;

    struct Listed(Vec<io::Result<Run>>);

    impl RunBatch for Listed {
        fn next_run(&mut self) -> io::Result<Option<Run>> {
            if self.0.is_empty() { Ok(None) } else { self.0.remove(0).map(Some) }
        }
    }

    fn zeros(first: u64) -> io::Result<Run> {
        Ok(Run { file: FileNo(1), first, source: Source::Zeros, count: 1 })
    }

    #[test]
    fn an_error_comes_before_the_run_that_it_cuts_off_is_shared() {
        let error = Err(io::ErrorKind::StorageFull.into());
        let mut batch = Listed(vec![zeros(3), zeros(4), zeros(9), zeros(10), error, zeros(11)]);
        let mut runs = Joined::default();
        let whole = runs.next(&mut batch).unwrap().unwrap();
        assert_eq!((whole.first, whole.count), (3, 2));
        assert_eq!(runs.next(&mut batch).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_block_that_is_named_twice_counts_once() {
        let mut batch = Listed(vec![zeros(3), zeros(3), zeros(4), zeros(6)]);
        let mut runs = Joined::default();
        let mut all = Vec::new();
        while let Some(run) = runs.next(&mut batch).unwrap() {
            all.push((run.first, run.count));
        }
        assert_eq!(all, [(3, 2), (6, 1)]);
    }
}
