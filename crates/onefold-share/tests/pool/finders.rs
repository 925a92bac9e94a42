//! Runs from file to file of a pool: no slots, no index, and every file reads as before.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_block::clock::SystemClock;
use onefold_block::random::SeededRandom;
use onefold_pool::Ino;
use onefold_share::format::{FileBlock, FileNo};
use onefold_share::pace::Pace;
use onefold_share::pass::{
    ContentKey, Engine, FilePlace, Finder, FinderRun, Outcome, PassError, PassOptions, RunBatch, share_found,
};
use onefold_share::scan::list;
use onefold_share::selection::Selection;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_substrate::Substrate;

use crate::ground::{
    Contents, K, blocks, check_clean, compare, new_pool, open, put, settle, stored_and_saved, substrate, with_filter,
};

/// Yields runs that the test gives, as one batch, and keeps how many blocks came to what.
struct ListFinder {
    ahead: Vec<FinderRun>,
    is_over: bool,
    came: BTreeMap<Outcome, u64>,
}

impl RunBatch for ListFinder {
    fn next_run(&mut self) -> io::Result<Option<FinderRun>> {
        Ok(if self.ahead.is_empty() { None } else { Some(self.ahead.remove(0)) })
    }

    fn note(&mut self, part: &FinderRun, outcome: Outcome) {
        *self.came.entry(outcome).or_default() += part.count();
    }
}

impl<'b, S: Substrate> Finder<'b, S> for ListFinder {
    fn next_batch(&mut self, _: &mut Engine<'_, 'b, S>) -> Result<Option<&mut dyn RunBatch>, PassError> {
        Ok(if std::mem::replace(&mut self.is_over, true) { None } else { Some(self) })
    }
}

/// No write finds anything here. The finder knows of one copy, of a part of it that moved, and is wrong about the rest.
#[test]
fn files_of_a_pool_share_what_a_finder_names() {
    let device = new_pool(16_384);
    let seam: Arc<dyn BlockDevice> = device.clone();
    let pool = open(seam, with_filter(0));
    let contents: Contents = [
        ("copy", blocks(1..=600)),
        ("golden", blocks(1..=600)),
        ("moved", blocks((2000..2010).chain(100..=199))),
        ("other", blocks(3000..3600)),
    ]
    .map(|(name, content)| (name.to_owned(), content))
    .into();
    for (name, content) in &contents {
        put(&pool, Ino::ROOT, name, content);
    }
    pool.commit().unwrap();
    let before = stored_and_saved(&pool);
    let substrate = substrate(&pool);
    let random = SeededRandom::new(77);
    let state = State::open(&substrate, &SystemClock, &random, &|_| {}).unwrap();
    let mut files = Marks::load(&state).unwrap();
    let listed = list(&state, &mut files, &Selection::all()).unwrap();
    let numbers: BTreeMap<PathBuf, FileNo> = listed.into_iter().map(|file| (file.path, file.number)).collect();
    let place = |name: &str, block| FilePlace { file: numbers[Path::new(name)], block: FileBlock(block) };
    let run = |source, target, count| FinderRun::between(source, target, count, ContentKey::default()).unwrap();
    let ahead = vec![
        run(place("golden", 0), place("copy", 0), 600),
        run(place("golden", 99), place("moved", 10), 100),
        run(place("golden", 0), place("other", 0), 600),
    ];
    let mut finder = ListFinder { ahead, is_over: false, came: BTreeMap::new() };
    let (pace, temporary) = (Pace::unlimited(), tempfile::tempdir().unwrap());
    let options = PassOptions::new(temporary.path(), &pace, &SystemClock);
    let passed = share_found(&state, &mut files, &mut finder, &options).unwrap();
    drop(state);
    let expected = [(Outcome::Shared, 700), (Outcome::Differed, 600)].into();
    assert_eq!(finder.came, expected, "{passed:?}");
    assert_eq!((passed.shared.now, passed.shared.freed), (700 * K, 700 * K), "{passed:?}");
    settle(&pool);
    compare(&pool, &contents).unwrap();
    let after = stored_and_saved(&pool);
    assert_eq!(after.1 - before.1, passed.shared.now, "{before:?} {after:?} {passed:?}");
    pool.close().unwrap();
    check_clean(&*device).unwrap();
}
