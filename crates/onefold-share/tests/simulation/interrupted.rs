//! Passes that are interrupted, by a signal, the end of a window or a crash: they cost time, and neither savings nor
//! slots.

use std::cell::Cell;
use std::rc::Rc;

use onefold_share::pace::Wish;
use onefold_share::pass::BatchOptions;
use onefold_share::references::count;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_testing::simulated::{Faults, Habits, Host, Simulation, SimulationOptions, seeds};

use super::engine::{PassSettings, USUAL, benign, scan_and_pass, slots};
use super::go_on;

/// Returns a wish that ends once it was asked so often, and how often that was told.
fn ends_after(asked_max: u64, end: Wish) -> (impl Fn() -> Wish, Rc<Cell<u64>>) {
    let (asked, ended) = (Cell::new(0), Rc::new(Cell::new(0)));
    let told = Rc::clone(&ended);
    let wish = move || {
        asked.set(asked.get() + 1);
        if asked.get() <= asked_max {
            return Wish::GoOn;
        }
        told.set(told.get() + 1);
        end
    };
    (wish, ended)
}

/// The first scan and pass of a host on fresh images, interrupted at each step at which it asks whether to go on. Right
/// after that no slot holds a block without an entry, and the next run comes to the same end as one that nobody
/// interrupted.
#[test]
fn a_run_may_be_interrupted_at_every_step() {
    let options = |seed, frees_whole_extents| SimulationOptions {
        seed,
        hosts: 1,
        images: 6,
        image_blocks_max: 12,
        contents: 10,
        writer_percent: 0,
        refuses_files: false,
        habits: Habits {
            frees_whole_extents,
            tells_last_reference: !frees_whole_extents,
            ..SimulationOptions::default().habits
        },
        ..SimulationOptions::default()
    };
    let ways = [(Wish::StopSoon, false), (Wish::StopNow, false), (Wish::StopNow, true)];
    let mut interrupted = 0;
    for (seed, (way, frees_whole_extents)) in seeds(9500, 2).flat_map(|seed| ways.map(|way| (seed, way))) {
        for asked_max in 0.. {
            let what = format!("seed {seed}, {way:?} after {asked_max} steps, whole extents: {frees_whole_extents}");
            let was_told = Rc::new(Cell::new(false));
            let told = Rc::clone(&was_told);
            let mut simulation = Simulation::new(&options(seed, frees_whole_extents), move |host| {
                let (wish, ended) = ends_after(if host.incarnation == 0 { asked_max } else { u64::MAX }, way);
                let batch = Some(BatchOptions { slots: 3 });
                drop(PassSettings { batch, wish: &wish, ..USUAL }.scan_and_pass(host));
                told.set(told.get() || ended.get() > 0);
            });
            while simulation.file_system().counters().ends == 0 {
                go_on(&mut simulation, 1, &what);
            }
            let (filled, named) = slots(&simulation);
            assert_eq!(filled, named, "{what}");
            if !was_told.get() {
                break;
            }
            interrupted += 1;
            go_on(&mut simulation, 3000, &what);
            let (filled, named) = slots(&simulation);
            assert_eq!(filled, named, "{what}, at the end");
            let outcome = simulation.finish().unwrap_or_else(|failure| panic!("{what}: {failure}"));
            assert_eq!(outcome.census.physical, outcome.census.distinct, "{what}: {outcome}");
        }
    }
    assert!(interrupted > 100, "{interrupted}");
}

/// Returns how many slots hold a block that no file has.
fn unneeded(simulation: &Simulation) -> u64 {
    let observer = simulation.file_system().observe();
    let state = State::open(&observer.substrate, &*observer.clock, &*observer.random, &|_| {})
        .expect("no fault hits an observer");
    let files = Marks::load(&state).expect("as above");
    let counted = count(&state, &files).expect("as above").expect("few arena files");
    counted.slots.get(&0).copied().unwrap_or(0)
}

/// A thousand times a host is interrupted at a random step, or crashes, while writers write. Then all is calm, and as
/// many blocks are saved as if nobody had interrupted anything: all that are equal; and each slot has an entry, and a
/// file that wants it.
#[test]
fn a_thousand_interruptions_at_random_cost_neither_savings_nor_slots() {
    for seed in seeds(9600, 1) {
        let (cuts, is_calm) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (counted, calm) = (Rc::clone(&cuts), Rc::clone(&is_calm));
        let hosts = 1 + u32::try_from(seed % 3).expect("below 3");
        let drawn = benign(seed, hosts);
        let options = SimulationOptions {
            faults: Faults::none(),
            writer_percent: 1 + drawn.writer_percent / 8,
            crashes_per_million: 100,
            habits: Habits { tells_last_reference: true, ..drawn.habits },
            ..drawn
        };
        let work = move |host: &Host<'_>| {
            if calm.get() {
                drop(scan_and_pass(host));
                return;
            }
            let way = [Wish::StopSoon, Wish::StopNow][usize::try_from(host.random.below(2)).expect("below 2")];
            let (wish, ended) = ends_after(host.random.below(400), way);
            drop(PassSettings { wish: &wish, ..USUAL }.scan_and_pass(host));
            counted.set(counted.get() + u64::from(ended.get() > 0));
        };
        let mut simulation = Simulation::new(&options, work);
        let what = format!("seed {seed}");
        while cuts.get() + simulation.file_system().counters().crashes < 1000 {
            go_on(&mut simulation, 1000, &what);
        }
        println!("{what}: {} interruptions, {} crashes", cuts.get(), simulation.file_system().counters().crashes);
        simulation.calm();
        is_calm.set(true);
        let is_done = |simulation: &Simulation| {
            let census = simulation.file_system().census();
            let (filled, named) = slots(simulation);
            census.physical == census.distinct && filled == named && unneeded(simulation) == 0
        };
        for _ in 0..12 {
            go_on(&mut simulation, 60_000, &what);
            if is_done(&simulation) {
                break;
            }
        }
        let (slots, unneeded) = (slots(&simulation), unneeded(&simulation));
        assert!(is_done(&simulation), "{what}: {slots:?} slots, {unneeded} unneeded, {}", simulation.outcome());
        simulation.finish().unwrap_or_else(|failure| panic!("{what}: {failure}"));
    }
}
