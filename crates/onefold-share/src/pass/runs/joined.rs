//! Joins consecutive runs into one: a call of the file system costs about the same for a block as for a range.

use std::io;

use super::{ContentKey, FinderRun, RunBatch};

/// Maximum number of contents of a joined run.
const CONTENTS_MAX: usize = 1 << 16;

/// Joins the runs of a batch.
#[derive(Default)]
pub(in crate::pass) struct RunJoiner {
    /// Whether each run is returned by itself.
    is_off: bool,
    /// The run that did not continue the last one.
    ahead: Option<FinderRun>,
    /// Of the run that was returned last: the end of each content in its target, in blocks, and its key.
    contents: Vec<(u64, ContentKey)>,
}

impl RunJoiner {
    /// Returns an object that joins runs or, for experiments, does not.
    pub(in crate::pass) fn new(joins: bool) -> RunJoiner {
        RunJoiner { is_off: !joins, ..RunJoiner::default() }
    }

    /// Returns the next runs of a batch that are consecutive in both of their files, as one. An error comes instead of
    /// the run that it cuts off.
    pub(in crate::pass) fn next(&mut self, batch: &mut dyn RunBatch) -> io::Result<Option<FinderRun>> {
        let first = match self.ahead.take() {
            Some(ahead) => Some(ahead),
            None => batch.next_run()?,
        };
        let Some(mut run) = first else { return Ok(None) };
        self.contents.clear();
        self.contents.push((run.end(), run.key));
        while let Some(next) = batch.next_run()? {
            if !self.is_off && run.goes_on_with(&next) && self.add(&next) {
                run.count += next.count;
            } else if !run.tells_as_much_as(&next) {
                self.ahead = Some(next);
                break;
            }
        }
        Ok(Some(run))
    }

    /// Notes that the run now ends with another content. Returns false if it has too many contents.
    fn add(&mut self, next: &FinderRun) -> bool {
        let is_full = self.contents.len() >= CONTENTS_MAX;
        match self.contents.last_mut() {
            Some((end, key)) if *key == next.key => *end = next.end(),
            _ if is_full => return false,
            _ => self.contents.push((next.end(), next.key)),
        }
        true
    }

    /// Returns the parts of a part of the run that was returned last, each of one content.
    pub(in crate::pass) fn by_content<'j>(&'j self, part: &'j FinderRun) -> impl Iterator<Item = FinderRun> + 'j {
        let first = self.contents.partition_point(|(end, _)| *end <= part.first);
        let mut at = part.first;
        self.contents[first..].iter().map_while(move |&(end, key)| {
            let (from, to) = (at, end.min(part.end()));
            at = to;
            (to > from).then(|| FinderRun { key, ..part.part(from - part.first, to - from) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FilePlace, Source};
    use super::*;
    use crate::format::{FileBlock, FileNo};

    struct ListFinder(Vec<io::Result<FinderRun>>);

    impl RunBatch for ListFinder {
        fn next_run(&mut self) -> io::Result<Option<FinderRun>> {
            if self.0.is_empty() { Ok(None) } else { self.0.remove(0).map(Some) }
        }
    }

    fn zeros(first: u64) -> io::Result<FinderRun> {
        Ok(FinderRun { file: FileNo(1), first, source: Source::Zeros, count: 1, key: ContentKey::default() })
    }

    /// Returns a run into file 1 from file 2.
    fn run(source: u64, target: u64, count: u64, key: u32) -> io::Result<FinderRun> {
        let place = |file, block| FilePlace { file: FileNo(file), block: FileBlock(block) };
        Ok(FinderRun::between(place(2, source), place(1, target), count, ContentKey::new(key).unwrap()).unwrap())
    }

    fn all(runs: Vec<io::Result<FinderRun>>) -> Vec<(u64, u64)> {
        let (mut batch, mut joined, mut all) = (ListFinder(runs), RunJoiner::default(), Vec::new());
        while let Some(run) = joined.next(&mut batch).unwrap() {
            all.push((run.first, run.count));
        }
        all
    }

    #[test]
    fn an_error_comes_before_the_run_that_it_cuts_off_is_shared() {
        let error = Err(io::ErrorKind::StorageFull.into());
        let mut batch = ListFinder(vec![zeros(3), zeros(4), zeros(9), zeros(10), error, zeros(11)]);
        let mut runs = RunJoiner::default();
        let whole = runs.next(&mut batch).unwrap().unwrap();
        assert_eq!((whole.first, whole.count), (3, 2));
        assert_eq!(runs.next(&mut batch).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_block_that_logs_name_twice_counts_once() {
        assert_eq!(all(vec![zeros(3), zeros(3), zeros(4), zeros(6)]), [(3, 2), (6, 1)]);
    }

    #[test]
    fn runs_are_joined_only_where_both_sides_go_on() {
        assert_eq!(all(vec![run(50, 3, 4, 1), run(54, 7, 2, 2), run(57, 9, 1, 3)]), [(3, 6), (9, 1)]);
        assert_eq!(all(vec![run(50, 3, 4, 1), run(70, 3, 4, 1), run(80, 5, 1, 1)]), [(3, 4), (3, 4), (5, 1)]);
    }

    #[test]
    fn runs_are_not_joined_where_that_is_not_wanted() {
        let mut batch = ListFinder(vec![run(50, 3, 4, 1), run(54, 7, 2, 2), run(56, 9, 1, 3)]);
        let mut joined = RunJoiner::new(false);
        let mut counts = Vec::new();
        while let Some(run) = joined.next(&mut batch).unwrap() {
            assert_eq!(joined.by_content(&run).count(), 1);
            counts.push(run.count);
        }
        assert_eq!(counts, [4, 2, 1]);
    }

    #[test]
    fn what_comes_of_a_part_is_told_by_content() {
        let mut batch = ListFinder(vec![run(50, 3, 4, 1), run(54, 7, 2, 2), run(56, 9, 1, 2), run(57, 10, 5, 3)]);
        let mut joined = RunJoiner::default();
        let whole = joined.next(&mut batch).unwrap().unwrap();
        let parts = |from, count| {
            let part = whole.part(from, count);
            joined.by_content(&part).map(|run| (run.key.number(), run.first, run.count)).collect::<Vec<_>>()
        };
        assert_eq!(parts(0, 12), [(1, 3, 4), (2, 7, 3), (3, 10, 5)]);
        assert_eq!(parts(2, 3), [(1, 5, 2), (2, 7, 1)]);
        assert_eq!(parts(7, 1), [(3, 10, 1)]);
        let third = joined.by_content(&whole).last().unwrap();
        assert_eq!(third.source, Source::File(FilePlace { file: FileNo(2), block: FileBlock(57) }));
    }
}
