//! `onefold pool clone`

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use onefold_block::Show;
use serde_json::json;

use crate::cli::pool::CloneArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Report;
use crate::size::grouped;
use crate::store::{self, Intent, OpenStore, PoolFileKind, PoolPath};

/// Maximum width of a number in a pattern.
const WIDTH_MAX: usize = 20;

pub(super) fn run(arguments: &CloneArgs) -> Outcome<Report> {
    let destinations = destinations(&arguments.destination, arguments.count)?;
    let started = Instant::now();
    let OpenStore { mut store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Change)?;
    let source = store.path(&arguments.source)?;
    let mut clones = Vec::with_capacity(destinations.len());
    // All names are checked before the first clone is made.
    for destination in &destinations {
        let name = store.path(destination)?;
        if store.kind(&name)? != PoolFileKind::Missing {
            return Err(Failure::new(format!("cannot clone `{source}` to `{name}`"))
                .because_of("the pool already has a file of that name")
                .hint("choose another name, or remove what is there"));
        }
        clones.push(name);
    }
    // Once for all clones: it commits.
    store.hand_over(&source)?;
    for (made, name) in clones.iter().enumerate() {
        if interrupt.is_asked() {
            store.close()?;
            return Err(Failure::interrupted("cloning").because_of(format!("{made} clones were made")));
        }
        store.clone_file(&source, name)?;
    }
    store.close()?;
    let elapsed = started.elapsed();
    let names: Vec<String> = clones.iter().map(PoolPath::machine_name).collect();
    let text = match clones.as_slice() {
        [name] => format!("{name} is a clone of {source}"),
        [first, .., last] => format!(
            "{first} to {last} are {} clones of {source}, made in {} ms",
            grouped(names.len() as u64),
            elapsed.as_millis()
        ),
        [] => String::new(),
    };
    let json = json!({ "source": source.machine_name(), "clones": names, "seconds": elapsed.as_secs_f64() });
    Ok(Report::done(text, json))
}

/// Returns the names to make: one, or `count` names from a pattern with `%d` or `%03d` in it.
fn destinations(destination: &Path, count: Option<u32>) -> Outcome<Vec<PathBuf>> {
    let Some(count) = count else { return Ok(vec![destination.to_owned()]) };
    let pattern = Pattern::parse(destination.as_os_str().as_bytes()).ok_or_else(|| {
        Failure::usage(format!("cannot number the name `{}`", destination.shown()))
            .hint("with --count the name needs one place for the number, as in `vm-%03d.raw`")
    })?;
    Ok((1..=count).map(|number| pattern.name(number)).collect())
}

/// A name with a place for a number.
struct Pattern<'a> {
    before: &'a [u8],
    width: usize,
    after: &'a [u8],
}

impl<'a> Pattern<'a> {
    /// Accepts `%d`, or `%0` with a width and `d`, exactly once. Refuses any other `%`.
    fn parse(text: &'a [u8]) -> Option<Pattern<'a>> {
        let start = text.iter().position(|&byte| byte == b'%')?;
        let rest = &text[start + 1..];
        let end = rest.iter().position(|&byte| byte == b'd')?;
        let (width, after) = (&rest[..end], &rest[end + 1..]);
        if after.contains(&b'%') {
            return None;
        }
        let width = match std::str::from_utf8(width).ok()? {
            "" => 0,
            width => width.strip_prefix('0')?.parse().ok().filter(|width| (1..=WIDTH_MAX).contains(width))?,
        };
        Some(Pattern { before: &text[..start], width, after })
    }

    fn name(&self, number: u32) -> PathBuf {
        let width = self.width;
        let number = format!("{number:0width$}");
        PathBuf::from(OsString::from_vec([self.before, number.as_bytes(), self.after].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str, count: u32) -> Option<Vec<String>> {
        let names = destinations(Path::new(pattern), Some(count)).ok()?;
        Some(names.into_iter().map(|name| name.into_os_string().into_string().unwrap()).collect())
    }

    #[test]
    fn copies_are_numbered_from_one() {
        assert_eq!(names("vm-%03d.raw", 2), Some(vec!["vm-001.raw".into(), "vm-002.raw".into()]));
        assert_eq!(names("%d", 10).unwrap()[9], "10");
        assert_eq!(names("vm-%01d", 10).unwrap()[9], "vm-10");
    }

    #[test]
    fn a_pattern_has_exactly_one_place() {
        for pattern in ["vm", "vm-%", "vm-%s", "vm-%3d", "vm-%d-%d", "vm-%021d", "vm-%0d", "vm-%00000000000000000000d"]
        {
            assert_eq!(names(pattern, 2), None, "{pattern}");
        }
    }

    #[test]
    fn without_a_count_a_name_is_taken_as_it_is() {
        assert_eq!(destinations(Path::new("100%"), None), Ok(vec![PathBuf::from("100%")]));
    }
}
