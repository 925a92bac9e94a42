//! Hosts that ask, and hosts that take files out and let them in again, beside hosts that run the engine.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use onefold_block::{BLOCK_BYTES_U64, Clock, Random};
use onefold_share::block_state::{CountError, CountOptions, count};
use onefold_share::explain::{ExplainError, Verdict, explain};
use onefold_share::opt_out::{exclude, include};
use onefold_share::references;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_share::status::status;
use onefold_substrate::{ListedKind, Substrate};
use onefold_testing::simulated::{Host, SimulationOptions, seeds};

use super::engine::scan_and_pass;
use super::simulate_all_with;

thread_local! {
    /// How often somebody got an answer.
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
}

/// Returns an image, if there is one.
fn image<S: Substrate>(substrate: &S, number: u64) -> io::Result<Option<PathBuf>> {
    let folder = Path::new("images");
    let listed = substrate.list(folder)?;
    let mut files: Vec<_> = listed.into_iter().filter(|listed| listed.kind == ListedKind::File).collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    let at = number.checked_rem(files.len() as u64).and_then(|at| usize::try_from(at).ok());
    Ok(at.map(|at| folder.join(&files[at].name)))
}

/// Asks all there is to ask.
fn ask<S: Substrate>(substrate: &S, clock: &dyn Clock, number: u64) -> Result<(), ExplainError> {
    let state = State::look(substrate, clock, &|_| {})?;
    if let Some(path) = image(substrate, number)? {
        let found = explain(substrate, state.as_ref(), &path, number % 40 * BLOCK_BYTES_U64, None)?;
        assert!(state.is_none() || found.verdict(true) != Verdict::NoState);
    }
    if let Some(state) = &state {
        let found = status(state)?;
        let files = found.files;
        assert_eq!(files.known, files.current + files.changed + files.opted_out + files.gone + files.unreadable);
        references::count(state, &Marks::load(state)?)?;
        let options = CountOptions { since: None, temporary_folder: Path::new("/var/tmp"), memory_bytes: 1 << 20 };
        count(state, &options).map_err(|error| match error {
            CountError::State(error) => ExplainError::State(error),
            CountError::Template(error) | CountError::Temporary(error) => ExplainError::Io(error),
        })?;
        ANSWERS.set(ANSWERS.get() + 1);
    }
    Ok(())
}

fn work(host: &Host<'_>) {
    let mut bytes = [0; 8];
    let number = host.random.fill(&mut bytes).map_or(0, |()| u64::from_le_bytes(bytes));
    match number % 4 {
        // What fails is asked another time.
        0 => drop(ask(&host.substrate, &*host.clock, number / 4)),
        1 => {
            if let Ok(Some(path)) = image(&host.substrate, number / 8) {
                let choose = if number & 4 == 0 { exclude } else { include };
                let _ = choose(&host.substrate, &path);
            }
        }
        _ => drop(scan_and_pass(host)),
    }
}

#[test]
fn images_read_as_written_while_hosts_ask_and_opt_files_out() {
    let hosts = |seed: u64| 1 + u32::try_from(seed % 7).expect("below 7");
    let outcomes = simulate_all_with(seeds(7000, 15), |seed| SimulationOptions::drawn(seed, hosts(seed), 10_000), work);
    println!("{} answers", ANSWERS.get());
    if outcomes.len() >= 15 {
        assert!(ANSWERS.get() > 20, "hardly any answers: {}", ANSWERS.get());
    }
}
