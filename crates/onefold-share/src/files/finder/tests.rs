//! Runs that the finder hands out, and its counts.

use std::path::Path;

use super::*;

fn place(file: u32, block: u64) -> FilePlace {
    FilePlace { file: FileNo(file), block: FileBlock(block) }
}

fn run(source: (u32, u64), target: (u32, u64), count: u64, package: u32) -> FinderRun {
    run_of(Tier::Digest, source, target, count, package)
}

fn run_of(tier: Tier, source: (u32, u64), target: (u32, u64), count: u64, package: u32) -> FinderRun {
    let key = Label { tier, package }.key().unwrap();
    FinderRun::between(place(source.0, source.1), place(target.0, target.1), count, key).unwrap()
}

/// Returns the finder of some runs, with its batch handed out.
fn found(runs: &[FinderRun]) -> FoundRuns {
    found_twice(runs, &[])
}

/// Returns the finder of some runs with first sources and some with second ones. Its first batch is the current one.
fn found_twice(first: &[FinderRun], second: &[FinderRun]) -> FoundRuns {
    let folder = Path::new("/var/tmp");
    let [first, second] = [first, second].map(|runs| {
        let mut sorter = RunSorter::new(folder, 1 << 16);
        runs.iter().for_each(|run| sorter.push(run).unwrap());
        sorter
    });
    let failures = Failures::new(folder, 1 << 16);
    let mut found = FoundRuns::new(SourceRuns { first, second }, failures, Trust::default());
    assert!(found.begin_batch().unwrap());
    found
}

/// Shares all batches as the engine does. Runs that the finder does not want compared are reported as shared before if
/// they are, or else as declined. Returns how many blocks of each pair were compared.
fn share_all(found: &mut FoundRuns, outcome_of: impl Fn(&FinderRun) -> Outcome) -> BTreeMap<(u32, u32), u64> {
    let mut compared = BTreeMap::new();
    loop {
        while let Some(run) = found.next_run().unwrap() {
            let Source::File(source) = run.source() else { panic!("{run:?}") };
            let mut outcome = outcome_of(&run);
            if matches!(outcome, Outcome::Shared | Outcome::Differed) {
                if found.compares(&run) {
                    *compared.entry((source.file.0, run.target().file.0)).or_default() += run.count();
                } else {
                    outcome = Outcome::Declined;
                }
            }
            found.note(&run, outcome);
        }
        if !found.begin_batch().unwrap() {
            return compared;
        }
    }
}

const RUN_BLOCKS: u64 = 1 << 10;
/// Number of runs that make up 64 MiB.
const ENOUGH_RUNS: u64 = 16;

/// Returns runs from each place of one image to the same place of another one.
fn runs_between(source: u32, target: u32, places: std::ops::Range<u64>) -> Vec<FinderRun> {
    places.map(|at| run((source, at * RUN_BLOCKS), (target, at * RUN_BLOCKS), RUN_BLOCKS, 1)).collect()
}

/// Regression: an image that claims the contents of all others took away their savings, since a group had one source.
#[test]
fn what_a_lying_source_does_not_hold_shares_with_a_second_one() {
    let runs = |source: u32| (source + 1..5).flat_map(|target| runs_between(source, target, 0..40)).collect::<Vec<_>>();
    for lie in [Outcome::Differed, Outcome::SourceEmpty] {
        let mut found = found_twice(&runs(1), &runs(2));
        let is_wrong = |run: &FinderRun| run.source() == Source::File(place(1, run.target().block.0));
        let compared = share_all(&mut found, |run| if is_wrong(run) { lie } else { Outcome::Shared });
        let all = 40 * RUN_BLOCKS;
        let of_pairs = [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4)].map(|pair| compared.get(&pair).copied().unwrap_or(0));
        let (wasted, differed_twice) =
            if lie == Outcome::Differed { (ENOUGH_RUNS * RUN_BLOCKS, 2 * ENOUGH_RUNS * RUN_BLOCKS) } else { (0, 0) };
        assert_eq!(of_pairs, [wasted, wasted, wasted, all, all], "{lie:?}");
        let TierCounts { shared, differed, empty, given_up, second, .. } = found.tiers[0];
        assert_eq!(shared, 2 * all * BLOCK_BYTES_U64);
        // Image 2 has no second source.
        assert_eq!(differed + empty + given_up, all * BLOCK_BYTES_U64, "{lie:?}");
        assert_eq!(second, differed_twice * BLOCK_BYTES_U64);
        assert_eq!(found.packages[&1].believed, 3 * all * BLOCK_BYTES_U64);
        let pair = |other| (Tier::Digest, GivenUpClaims::Pair { one: FileNo(1), other: FileNo(other) });
        let given_up: BTreeSet<_> = if wasted > 0 { [2, 3, 4].map(pair).into() } else { BTreeSet::new() };
        assert_eq!(found.given_up(), given_up);
    }
}

/// A guest says of one block that a hundred files begin there.
#[test]
fn a_block_that_many_files_claim_is_tried_a_few_times() {
    let mut runs: Vec<FinderRun> = (0..100).map(|at| run((1, 10 * at), (2, 7), 1, 1)).collect();
    runs.push(run((1, 5), (2, 8), 1, 2));
    let mut found = found(&runs);
    let mut tried = Vec::new();
    while let Some(run) = found.next_run().unwrap() {
        tried.push(run.target().block.0);
    }
    assert_eq!(tried, [7, 7, 7, 7, 7, 7, 7, 7, 8]);
    assert_eq!(found.tiers[0].crowded, (100 - u64::from(RUNS_INTO_BLOCK_MAX)) * BLOCK_BYTES_U64);
}

#[test]
fn a_run_that_is_named_twice_is_tried_once() {
    let mut found = found(&[run((1, 0), (2, 7), 3, 1); 20]);
    assert_eq!(found.next_run().unwrap(), Some(run((1, 0), (2, 7), 3, 1)));
    assert_eq!(found.next_run().unwrap(), None);
    assert_eq!((found.tiers[0].crowded, found.packages[&1].believed), (0, 3 * BLOCK_BYTES_U64));
}

/// Two tiers believe a file of no package with an equal date equal. Its run by the second tier would come between the
/// runs that the engine joins.
#[test]
fn a_file_of_two_tiers_is_tried_once_in_the_better_one() {
    let both = |at: u64| [Tier::Named, Tier::Dated].map(|tier| run_of(tier, (1, at), (2, 50 + at), 16, 0));
    let mut found = found(&(0..20).flat_map(|at| both(16 * at)).collect::<Vec<_>>());
    let expected: Vec<_> = (0..20).map(|at| run_of(Tier::Dated, (1, 16 * at), (2, 50 + 16 * at), 16, 0)).collect();
    let mut tried = Vec::new();
    while let Some(run) = found.next_run().unwrap() {
        found.note(&run, Outcome::Shared);
        tried.push(run);
    }
    assert_eq!(tried, expected);
    assert_eq!(found.packages[&0], PackageBytes { believed: 320 * BLOCK_BYTES_U64, shared: 320 * BLOCK_BYTES_U64 });
}

#[test]
fn outcomes_are_counted_by_tier_and_package() {
    let mut found = found(&[]);
    let outcomes = [
        Outcome::Shared,
        Outcome::Before,
        Outcome::Differed,
        Outcome::Empty,
        Outcome::TooShort,
        Outcome::Refused,
        Outcome::Barred,
    ];
    for (count, outcome) in (1..).zip(outcomes) {
        found.note(&run((1, 0), (2, 0), count, 4), outcome);
    }
    found.leave(&run((1, 0), (2, 0), 9, 4)).unwrap();
    assert_eq!(found.tiers[0].elsewhere, 9 * BLOCK_BYTES_U64);
    let TierCounts { shared, before, differed, empty, too_short, refused, barred, .. } = found.tiers[0];
    let blocks = [shared, before, differed, empty, too_short, refused, barred].map(|sum| sum / BLOCK_BYTES_U64);
    assert_eq!(blocks, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(found.tiers[0].compared(), 4 * BLOCK_BYTES_U64);
    assert_eq!(found.packages[&4], PackageBytes { believed: 0, shared: BLOCK_BYTES_U64 });
}

/// An old clone shares much with its template, and has changed as much as a liar would be given up for, before or
/// behind the part that it shares.
#[test]
fn what_two_images_share_already_counts_for_them_wherever_it_lies() {
    for changed in [0..45, 55..100] {
        let outcome_of = |run: &FinderRun| match run.target().block.0 / RUN_BLOCKS {
            // A file that is new in both.
            50 => Outcome::Shared,
            at if changed.contains(&at) => Outcome::Differed,
            _ => Outcome::Before,
        };
        // As the first source, and as the second one for ranges that a liar has claimed.
        let liar = runs_between(7, 2, 0..100);
        for (first, second) in [(runs_between(1, 2, 0..100), Vec::new()), (liar, runs_between(1, 2, 0..100))] {
            let mut found = found_twice(&first, &second);
            let is_lie = |run: &FinderRun| matches!(run.source(), Source::File(place) if place.file == FileNo(7));
            let compared = share_all(&mut found, |run| if is_lie(run) { Outcome::Differed } else { outcome_of(run) });
            assert_eq!(compared[&(1, 2)], 46 * RUN_BLOCKS, "{changed:?}");
            assert!(compared.get(&(7, 2)).is_none_or(|compared| *compared == ENOUGH_RUNS * RUN_BLOCKS));
            let TierCounts { shared, before, differed, given_up, .. } = found.tiers[0];
            let blocks = [shared, before, differed, given_up].map(|bytes| bytes / BLOCK_BYTES_U64 / RUN_BLOCKS);
            assert_eq!(blocks, [1, 54, 45, 0], "{changed:?}");
        }
    }
}

/// A guest that claims one shared block in eight files has shared it once. Otherwise it could lie about eight.
#[test]
fn a_block_that_is_claimed_often_counts_once() {
    let lengths = (0..u64::from(RUNS_INTO_BLOCK_MAX)).map(|less| RUN_BLOCKS - less);
    let starts = (0..10).map(|at| at * RUN_BLOCKS);
    let shared = starts.flat_map(|at| lengths.clone().map(move |count| run((1, at), (2, at), count, 1)));
    let mut found = found(&shared.chain(runs_between(1, 2, 10..100)).collect::<Vec<_>>());
    let is_shared = |run: &FinderRun| run.target().block.0 < 10 * RUN_BLOCKS;
    let compared = share_all(&mut found, |run| if is_shared(run) { Outcome::Before } else { Outcome::Differed });
    assert_eq!(compared[&(1, 2)], 11 * RUN_BLOCKS);
}

/// A block that has just come to share with another source says nothing about this one.
#[test]
fn what_an_earlier_run_has_shared_counts_for_nobody() {
    let mut found = found(&runs_between(1, 2, 0..100));
    let is_done = |run: &FinderRun| run.target().block.0 < 60 * RUN_BLOCKS;
    let compared = share_all(&mut found, |run| if is_done(run) { Outcome::Done } else { Outcome::Differed });
    assert_eq!(compared[&(1, 2)], ENOUGH_RUNS * RUN_BLOCKS);
}

/// An honest source may be sparse where the others have zeros. Nothing is compared there.
#[test]
fn holes_of_a_source_do_not_count_against_anyone() {
    let mut found = found(&runs_between(1, 2, 0..100));
    let is_hole = |run: &FinderRun| run.target().block.0 < 60 * RUN_BLOCKS;
    let compared = share_all(&mut found, |run| if is_hole(run) { Outcome::SourceEmpty } else { Outcome::Shared });
    assert_eq!((compared[&(1, 2)], found.given_up()), (40 * RUN_BLOCKS, BTreeSet::new()));
}

/// Each claim about image 2 is wrong; those about image 3 are right, with the same source.
#[test]
fn runs_of_claims_that_are_mostly_wrong_are_not_compared_any_more() {
    let mut found = found(&[runs_between(1, 2, 0..100), runs_between(1, 3, 0..100)].concat());
    let is_right = |run: &FinderRun| run.target().file == FileNo(3);
    let compared = share_all(&mut found, |run| if is_right(run) { Outcome::Shared } else { Outcome::Differed });
    assert_eq!(compared, BTreeMap::from([((1, 2), ENOUGH_RUNS * RUN_BLOCKS), ((1, 3), 100 * RUN_BLOCKS)]));
    let pair = GivenUpClaims::Pair { one: FileNo(1), other: FileNo(2) };
    assert_eq!(found.given_up(), [(Tier::Digest, pair)].into());
    assert_eq!(found.tiers[0].given_up, 84 * RUN_BLOCKS * BLOCK_BYTES_U64);
}

/// Image 1 differs in the middle block. Another source has shared that block in the same batch, or shared it before.
#[test]
fn what_another_source_has_shared_is_not_tried_with_a_second_one() {
    for outcome in [Outcome::Shared, Outcome::Before] {
        // The last block, behind the shared one, fails, too.
        let first = [run((1, 100), (9, 100), 3, 1), run((2, 1), (9, 101), 1, 1), run((1, 7), (9, 110), 1, 1)];
        let mut found = found_twice(&first, &[run((3, 50), (9, 99), 20, 1)]);
        let tried = std::cell::RefCell::new(Vec::new());
        share_all(&mut found, |run| {
            let Source::File(source) = run.source() else { panic!("{run:?}") };
            tried.borrow_mut().push((source.file.0, run.target().block.0, run.count()));
            match source.file.0 {
                1 => Outcome::Differed,
                2 => outcome,
                _ => Outcome::Shared,
            }
        });
        let expected = [(1, 100, 3), (2, 101, 1), (1, 110, 1), (3, 100, 1), (3, 102, 1), (3, 110, 1)];
        assert_eq!(tried.into_inner(), expected, "{outcome:?}");
        let TierCounts { shared, before, differed, .. } = found.tiers[0];
        assert_eq!((shared + before, differed), (4 * BLOCK_BYTES_U64, BLOCK_BYTES_U64));
    }
}

/// A pair is not believed, and another source has what it claims. Then the pair proves to be right.
#[test]
fn what_another_source_has_shared_is_not_tried_again_once_its_pair_is_believed() {
    let mut first = runs_between(1, 9, 0..100);
    let (declined, other) = (30 * RUN_BLOCKS, 30 * RUN_BLOCKS + 1);
    first.push(run((2, 0), (9, other), 1, 1));
    let mut found = found_twice(&first, &runs_between(3, 9, 0..100));
    let tried = std::cell::RefCell::new(Vec::new());
    share_all(&mut found, |run| {
        let Source::File(source) = run.source() else { panic!("{run:?}") };
        let (block, end) = (run.target().block.0, run.target().block.0 + run.count());
        if (block..end).contains(&other) {
            tried.borrow_mut().push((source.file.0, block, run.count()));
        }
        match (source.file.0, block / RUN_BLOCKS) {
            (1, 0..20) => Outcome::Differed,
            (1, 40..) => Outcome::Before,
            _ => Outcome::Shared,
        }
    });
    // The pair was declined there, and no other run leads into the block.
    assert_eq!(tried.into_inner(), [(1, declined, RUN_BLOCKS), (2, other, 1)]);
    assert_eq!(found.tiers[0].given_up, BLOCK_BYTES_U64);
}
