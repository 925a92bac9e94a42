//! The rate of the server: narrow links slow it, a few of them do not.

use super::*;

/// A large image, machines with room for all of it, and links of a width.
fn large(seed: u64, machines: usize, link_percent: u64) -> Options {
    let network = NetworkOptions { link_percent, queue_packets: 40, ..NetworkOptions::PERFECT };
    Options {
        chunks: 80,
        chunk_bytes_max: 40_000,
        rate: 100_000,
        memory_chunks: 81,
        network,
        ..Options::calm(seed, machines)
    }
}

/// Runs a simulation without the bounds that hold for usual links.
fn run(options: Options, without: Option<Rule>) -> Result<Outcome, Violation> {
    leave_out(without);
    let outcome = World::new(options).run();
    leave_out(None);
    outcome
}

/// Returns the time that the image takes at so many per cent of the server's rate, in milliseconds.
fn image_ms(outcome: &Outcome, rate: u64, percent: u64) -> f64 {
    let datagram_ratio = 172.0 / f64::from(server::SYMBOL_BYTES);
    outcome.image_bytes as f64 * datagram_ratio * 100_000.0 / (rate * percent) as f64
}

fn check_narrow(machines: usize, without: Option<Rule>) -> Result<(), Violation> {
    let options = large(11, machines, 40);
    let outcome = run(options, without)?;
    let slower = outcome.finished_ms as f64 / image_ms(&outcome, options.rate, 40);
    println!(
        "{machines} machines behind narrow links: {slower:.2} of the best time, {:.2} of the bytes",
        outcome.sent_ratio()
    );
    if slower > 1.35 || outcome.sent_ratio() > 1.5 {
        return Err(format!("{slower:.2} of the best time, {:.2} of the bytes", outcome.sent_ratio()));
    }
    Ok(())
}

#[test]
fn machines_behind_narrow_links_get_the_rate_that_passes() {
    for machines in [1, 2, 16] {
        check_narrow(machines, None).unwrap();
        let violation = check_narrow(machines, Some(Rule::RateFalls)).expect_err("a rate that never falls");
        println!("{violation}");
    }
}

fn check_one_slow_link(without: Option<Rule>) -> Result<(), Violation> {
    let options = Options { slow_links: 1, slow_link_percent: 10, ..large(12, 8, 130) };
    let outcome = run(options, without)?;
    let slower = outcome.fast_finished_ms as f64 / image_ms(&outcome, options.rate, 100);
    println!("beside a slow link: {slower:.2} of the best time");
    if slower > 1.25 { Err(format!("{slower:.2} of the best time")) } else { Ok(()) }
}

#[test]
fn a_machine_with_a_slow_link_does_not_slow_the_others() {
    check_one_slow_link(None).unwrap();
    for rule in [Rule::FewDoNotSlow, Rule::LossyExcluded] {
        let violation = check_one_slow_link(Some(rule)).expect_err("the slow machine is waited for");
        println!("{rule:?}: {violation}");
    }
}

#[test]
fn machines_with_slow_disks_do_not_slow_the_others() {
    let options = Options { slow_disks: 30, memory_chunks: 10, ..large(13, 8, 130) };
    let outcome = run(options, None).unwrap();
    let slower = outcome.fast_finished_ms as f64 / image_ms(&outcome, options.rate, 100);
    println!("beside slow disks: {slower:.2} of the best time, {} chunks dropped", outcome.dropped_chunks);
    assert!(outcome.dropped_chunks > 10 && outcome.finished_ms > 2 * outcome.fast_finished_ms, "{outcome:?}");
    assert!(slower < 1.25, "{slower:.2}");
}

/// At this rate, a delay is longer than a burst.
#[test]
fn a_server_that_wakes_up_late_now_and_then_holds_its_rate() {
    let late = |late_wakes| Options {
        chunks: 200,
        rate: 20_000_000,
        memory_chunks: 201,
        build_ms_max: 0,
        late_wakes,
        late_ms_max: 6,
        ..large(14, 2, 300)
    };
    let slower = |options: Options| {
        let outcome = run(options, None).unwrap();
        outcome.finished_ms as f64 / image_ms(&outcome, options.rate, 100)
    };
    let (in_time, late) = (slower(late(0)), slower(late(2_000)));
    println!("in time: {in_time:.3} of the best time, with delays: {late:.3}");
    assert!(late < in_time + 0.03, "{in_time:.3} {late:.3}");
}
