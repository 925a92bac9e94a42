//! The structure of the crates: crates and their modules use each other in one direction, as ARCHITECTURE lists it,
//! functions are short, and the fuzzer, a workspace of its own, has locked the crates that these need.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of the longest function of the product.
const FUNCTION_LINES_MAX: usize = 80;

/// Longer functions and files are listed by `scripts/lengths.sh`, those of tests too.
const LISTED_FUNCTION_LINES: usize = 60;
const LISTED_FILE_LINES: usize = 400;

/// The source of a crate without comments and unit tests: the path of each module, and its text.
struct Source {
    root: String,
    modules: Vec<(Vec<String>, String)>,
}

/// Which module uses which other one beside it, with a file that does.
type Arrows = BTreeMap<(String, String), String>;

impl Source {
    fn read(folder: &Path) -> Source {
        let root = ["lib.rs", "main.rs"].map(|name| folder.join(name)).into_iter().find(|path| path.exists()).unwrap();
        let mut source = Source { root: program_text(&fs::read_to_string(root).unwrap()), modules: Vec::new() };
        source.add_folder(folder, &[]);
        source
    }

    fn add_folder(&mut self, folder: &Path, module: &[String]) {
        let mut tests = BTreeSet::new();
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push((name, path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                tests.extend(test_modules(&text).map(|test| match name.as_str() {
                    "lib" | "main" | "mod" => test.to_owned(),
                    _ => format!("{name}/{test}"),
                }));
                files.push((name, text));
            }
        }
        let below = |name: &str| [module, &[name.to_owned()]].concat();
        for (name, text) in files.iter().filter(|(name, _)| !tests.contains(name)) {
            match name.as_str() {
                "lib" | "main" => {}
                "mod" => self.modules.push((module.to_vec(), program_text(text))),
                _ => self.modules.push((below(name), program_text(text))),
            }
        }
        for (name, path) in folders.iter().filter(|(name, _)| !tests.contains(name)) {
            self.add_folder(path, &below(name));
        }
        // Files that another one beside its folder declares, as `a.rs` does with `a/tests.rs`.
        let is_test = |path: &[String]| {
            path.strip_prefix(module).is_some_and(|rest| tests.contains(&rest[..rest.len().min(2)].join("/")))
        };
        self.modules.retain(|(path, _)| !is_test(path));
    }

    /// Returns the arrows between the modules right below `parent`, which is empty for the root.
    fn arrows_below(&self, parent: &[String]) -> Arrows {
        let below: Vec<&(Vec<String>, String)> =
            self.modules.iter().filter(|(path, _)| path.len() > parent.len() && path.starts_with(parent)).collect();
        let names: BTreeSet<&str> = below.iter().map(|(path, _)| path[parent.len()].as_str()).collect();
        let mut homes: BTreeMap<&str, &str> = names.iter().map(|&name| (name, name)).collect();
        let of_parent = self.text_of(parent);
        for (at, _) in of_parent.match_indices("use ") {
            let statement = of_parent[at + 4..].split(';').next().unwrap();
            let Some((home, items)) = statement.trim_start_matches("self::").split_once("::") else { continue };
            if names.contains(home) {
                words(items).filter(|item| *item != "self").for_each(|item| _ = homes.entry(item).or_insert(home));
            }
        }
        let mut arrows = Arrows::new();
        for (path, text) in below {
            for name in names_looked_up(text, path.len(), parent) {
                let home = homes.get(name).copied();
                if parent.is_empty() {
                    let is_of_root = words(&self.root).any(|word| word == name);
                    assert!(home.is_some() || is_of_root, "{}: where does `crate::{name}` lie?", path.join("/"));
                }
                let own = &path[parent.len()];
                if let Some(home) = home.filter(|home| home != own) {
                    arrows.insert((own.clone(), home.to_owned()), path.join("/"));
                }
            }
        }
        arrows
    }

    fn text_of(&self, module: &[String]) -> &str {
        let found = self.modules.iter().find(|(path, _)| path == module);
        found.map_or(if module.is_empty() { &self.root } else { "" }, |(_, text)| text)
    }

    /// Returns all modules that have modules below them, and the root.
    fn parents(&self) -> BTreeSet<Vec<String>> {
        self.modules.iter().map(|(path, _)| path[..path.len() - 1].to_vec()).collect()
    }
}

/// Returns a text without comments, up to its unit tests.
fn program_text(text: &str) -> String {
    let text: String = text.lines().flat_map(|line| [line.split("//").next().unwrap(), "\n"]).collect();
    let is_tests = |at: &usize| text[at + "#[cfg(test)]".len()..].trim_start().starts_with("mod tests {");
    let end = text.match_indices("#[cfg(test)]").map(|(at, _)| at).find(is_tests);
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Returns the modules that a text declares for tests only.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[cfg(test)]").skip(1).filter_map(|after| {
        let (declared, _) = after.split_once(';')?;
        let name = declared.trim().trim_start_matches("pub(crate) ").strip_prefix("mod ")?;
        words(name).next().filter(|word| *word == name)
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the names that a module `depth` levels below the root looks up in a module above it: after the path of that
/// from the root, and after as many `super::` as lead there.
fn names_looked_up<'t>(text: &'t str, depth: usize, parent: &[String]) -> Vec<&'t str> {
    let mut names = Vec::new();
    let up = "super::".repeat(depth - parent.len());
    let down: String =
        ["crate"].into_iter().chain(parent.iter().map(String::as_str)).flat_map(|name| [name, "::"]).collect();
    for (at, prefix) in text.match_indices(&down).chain(text.match_indices(&up)) {
        let (before, after) = (&text[..at], &text[at + prefix.len()..]);
        if before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') || after.starts_with("super::") {
            continue;
        }
        let Some(group) = after.strip_prefix('{') else {
            names.extend(words(after).next());
            continue;
        };
        let mut level = 0;
        let end = group.find(|c| {
            level += i32::from(c == '{') - i32::from(c == '}');
            level < 0
        });
        let mut level = 0;
        let items = group[..end.unwrap()].split(|c| {
            level += i32::from(c == '{') - i32::from(c == '}');
            level == 0 && c == ','
        });
        names.extend(items.filter_map(|item| words(item).next()));
    }
    names
}

/// Returns the groups of modules that reach each other, each in order.
fn circles(arrows: &Arrows) -> BTreeSet<Vec<String>> {
    let reached_from = |start: &String| {
        let (mut reached, mut ahead) = (BTreeSet::new(), vec![start.clone()]);
        while let Some(module) = ahead.pop() {
            let used = arrows.keys().filter(|(from, _)| *from == module).map(|(_, to)| to.clone());
            ahead.extend(used.filter(|to| reached.insert(to.clone())));
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        arrows.keys().map(|(from, _)| (from, reached_from(from))).collect();
    let back = |from: &String, to: &String| reached.get(from).is_some_and(|reached| reached.contains(to));
    let of = |&module: &&String| reached[module].iter().filter(|other| back(other, module)).cloned().collect();
    reached.keys().filter(|module| back(module, module)).map(of).collect()
}

fn crates() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut crates: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    crates.sort();
    crates
}

/// Returns what a crate needs by its `Cargo.toml`, in order, without optional crates.
fn dependencies(manifest: &str) -> Vec<&str> {
    let table = manifest.split("\n[").find_map(|table| table.strip_prefix("dependencies]"));
    let lines = table.unwrap_or_default().lines().filter(|line| !line.contains("optional = true"));
    let mut names: Vec<&str> =
        lines.filter_map(|line| Some(line.split_once('=')?.0.trim().trim_end_matches(".workspace"))).collect();
    names.sort_unstable();
    names
}

/// A crate that is missing there stops the build of the fuzzer, which is locked, and no other test builds it.
#[test]
fn the_fuzzer_locks_what_the_crates_need() {
    let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/Cargo.lock")).unwrap();
    let mut complaints = Vec::new();
    for folder in crates() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let name = format!("name = \"{}\"", folder.file_name().unwrap().to_str().unwrap());
        let Some(locked) = lock.split("[[package]]").find(|package| package.lines().any(|line| line == name)) else {
            continue;
        };
        // A crate that is locked in several versions is named with one of them.
        let names = locked.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\",")?.split(' ').next());
        let locked: Vec<&str> = names.collect();
        if locked != dependencies(&manifest) {
            complaints.push(format!("{name}: {:?} is needed, and {locked:?} is locked", dependencies(&manifest)));
        }
    }
    let hint = "run `cargo update --workspace --manifest-path fuzz/Cargo.toml`";
    assert!(complaints.is_empty(), "{}\n{hint}", complaints.join("\n"));
    assert!(lock.contains("name = \"onefold-hostile\""));
}

/// Returns the rows of ARCHITECTURE's table of crates, in order: the name of each without `onefold-`, and what it uses.
fn listed_crates(architecture: &str) -> Vec<(String, Vec<String>)> {
    let short = |name: &str| name.trim_start_matches("onefold").trim_start_matches('-').to_owned();
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| `onefold")?.strip_suffix('|')?.split(" | ").collect();
        let name = cells.first()?.split('`').next()?;
        let uses = cells.last()?.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned);
        Some((short(name), uses.collect()))
    };
    architecture.lines().filter_map(row).collect()
}

#[test]
fn the_crates_use_what_architecture_lists_and_only_crates_above_them() {
    let architecture = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md")).unwrap();
    let listed = listed_crates(&architecture);
    assert_eq!(listed.len(), crates().len(), "the table has a row for each crate: {listed:?}");
    for (at, (name, uses)) in listed.iter().enumerate() {
        let folder = if name.is_empty() { "onefold".to_owned() } else { format!("onefold-{name}") };
        let manifest = fs::read_to_string(format!("{}/../{folder}/Cargo.toml", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let needed = dependencies(&manifest).into_iter().filter_map(|name| name.strip_prefix("onefold-"));
        let needed: BTreeSet<&str> = needed.collect();
        let above: BTreeSet<&str> = listed[..at].iter().map(|(name, _)| name.as_str()).collect();
        assert!(needed.is_subset(&above), "{folder} uses crates below it: {needed:?}");
        if uses.iter().all(|one| one != "all") {
            assert_eq!(uses.iter().map(String::as_str).collect::<BTreeSet<_>>(), needed, "{folder} in ARCHITECTURE.md");
        }
    }
}

/// Returns the circles of the modules right below one, each as a line, with a line below it for each of its arrows.
fn complaints(place: &str, arrows: &Arrows) -> Vec<(String, Vec<String>)> {
    let complaint = |circle: Vec<String>| {
        let inside = arrows.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
        let lines = inside.map(|((_, to), file)| format!("    {file} uses {to}")).collect();
        (format!("{place}: {}", circle.join(", ")), lines)
    };
    circles(arrows).into_iter().map(complaint).collect()
}

/// Modules that use each other can neither be read nor moved one by one.
#[test]
fn the_top_level_modules_of_a_crate_use_each_other_in_one_direction() {
    let mut found = Vec::new();
    for folder in crates() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        for (circle, arrows) in complaints(name, &Source::read(&folder.join("src")).arrows_below(&[])) {
            found.push(circle);
            found.extend(arrows);
        }
    }
    assert!(found.is_empty(), "modules use each other in both directions:\n{}", found.join("\n"));
}

/// Neighbours within a module that use each other. A new circle is a mistake; one that has ended leaves the list.
const CIRCLES_WITHIN: [&str; 7] = [
    "onefold verbs: archive, guest, image, images",
    "onefold verbs/share: by_files, mend, relief, result, run, states, status",
    "onefold-guest ext: attributes, group, inode, tables",
    "onefold-net server: access, ahead, digests, multicast, reports, routes, state",
    "onefold-share pass: arenas, outcome, pinned, plan, publish, requests, runs, share",
    "onefold-share state: arena, error, hosts, intents, locks, notice, scratch, trust",
    "onefold-testing simulated: checks, durability, files, holes, host, locks, mount, names, reference, rights, sharing, world",
];

#[test]
fn modules_within_a_module_use_each_other_in_one_direction_but_for_those_that_are_listed() {
    let (mut found, mut new) = (BTreeSet::new(), Vec::new());
    for folder in crates() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let source = Source::read(&folder.join("src"));
        for parent in source.parents().iter().filter(|parent| !parent.is_empty()) {
            let place = format!("{name} {}", parent.join("/"));
            for (circle, arrows) in complaints(&place, &source.arrows_below(parent)) {
                if !CIRCLES_WITHIN.contains(&circle.as_str()) {
                    new.push(circle.clone());
                    new.extend(arrows);
                }
                found.insert(circle);
            }
        }
    }
    assert!(new.is_empty(), "modules use each other in both directions:\n{}", new.join("\n"));
    let ended: Vec<&str> = CIRCLES_WITHIN.into_iter().filter(|circle| !found.contains(*circle)).collect();
    assert!(ended.is_empty(), "these circles are no more, so take them off the list:\n{}", ended.join("\n"));
}

/// A module is one place: a file, or a folder with its `mod.rs`.
#[test]
fn a_module_with_parts_is_a_folder_with_a_mod_file() {
    let mut found = BTreeSet::new();
    let mut folders: Vec<PathBuf> = crates().into_iter().map(|folder| folder.join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.with_extension("").is_dir() {
                let name = path.components().skip_while(|part| part.as_os_str() != "..").skip(1);
                found.insert(name.collect::<PathBuf>().to_str().unwrap().to_owned());
            }
        }
    }
    assert!(found.is_empty(), "make a.rs beside its folder a/ the file a/mod.rs: {found:?}");
}

/// A file or a function, and how many lines it has.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Length {
    lines: usize,
    place: String,
}

/// Returns the functions of a text as rustfmt leaves it: each ends with the first brace that stands as far left as it
/// begins.
fn functions(text: &str, place: &str) -> Vec<Length> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let function = |at: usize| {
        let (rest, code) = (&lines[at..], lines[at].trim_start());
        let (before, name) = code.split_once("fn ")?;
        let before = if before.starts_with("pub(") { before.split_once(')')?.1 } else { before };
        let marks = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
        if !before.split_whitespace().all(|word| marks.contains(&word)) {
            return None;
        }
        // That of a trait may have no body, and a short one is on the same line.
        let head = rest.iter().position(|line| line.ends_with(['{', ';', '}']))?;
        let end = format!("{}}}", &lines[at][..lines[at].len() - code.len()]);
        let last = if rest[head].ends_with('{') { rest.iter().position(|line| *line == end)? } else { head };
        Some(Length { lines: last + 1, place: format!("{place} {}", words(name).next()?) })
    };
    (0..lines.len()).filter_map(function).collect()
}

/// Returns the files below a folder, tests and all, and their functions.
fn lengths_below(folder: &Path) -> (Vec<Length>, Vec<Length>) {
    let (mut files, mut all_functions, mut folders) = (Vec::new(), Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let place = path.components().skip_while(|part| part.as_os_str() != "..").skip(1);
                let place = place.collect::<PathBuf>().to_str().unwrap().to_owned();
                let text = fs::read_to_string(&path).unwrap();
                all_functions.extend(functions(&text, &place));
                files.push(Length { lines: text.lines().count(), place });
            }
        }
    }
    (files, all_functions)
}

/// Prints a row for a crate, and returns what is long in it.
fn print_lengths(name: &str, (files, functions): (Vec<Length>, Vec<Length>)) -> Vec<Length> {
    let mut lines: Vec<usize> = functions.iter().map(|function| function.lines).collect();
    lines.sort_unstable();
    let (half, longest) = (lines.get(lines.len() / 2).unwrap_or(&0), lines.last().unwrap_or(&0));
    let longest_file = files.iter().map(|file| file.lines).max().unwrap_or(0);
    let all_lines: usize = files.iter().map(|file| file.lines).sum();
    let (files_count, count) = (files.len(), functions.len());
    println!("{name:20} {files_count:>6} {all_lines:>7} {longest_file:>8} {count:>10} {half:>6} {longest:>8}");
    let long_files = files.into_iter().filter(|file| file.lines > LISTED_FILE_LINES);
    let long_functions = functions.into_iter().filter(|function| function.lines > LISTED_FUNCTION_LINES);
    long_files.chain(long_functions).collect()
}

/// A long function has steps: each is a function with a name. `scripts/lengths.sh` shows what this prints.
#[test]
fn no_function_of_the_product_is_longer_than_80_lines() {
    let (mut too_long, mut listed) = (BTreeSet::new(), Vec::new());
    println!(
        "{:20} {:>6} {:>7} {:>8} {:>10} {:>6} {:>8}",
        "crate", "files", "lines", "longest", "functions", "half", "longest"
    );
    for folder in crates() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        listed.extend(print_lengths(name, lengths_below(&folder)));
        let source = Source::read(&folder.join("src"));
        let modules = source.modules.iter().map(|(path, text)| (format!("{name}/{}", path.join("/")), text));
        for (place, text) in modules.chain([(name.to_owned(), &source.root)]) {
            let long = functions(text, &place).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
            too_long.extend(long.map(|function| function.place));
        }
    }
    listed.sort_unstable();
    listed.iter().rev().for_each(|Length { lines, place }| println!("{lines:>6} {place}"));
    assert!(too_long.is_empty(), "split these along their steps: {too_long:?}");
}

/// What the test of lengths rests on.
#[test]
fn functions_are_measured_however_they_begin() {
    let text = [
        "trait T {\n    fn bare(&self);\n    fn split(\n        &self,\n    ) -> u8;\n",
        "    fn kept(&self) {\n        {\n        }\n    }\n}\n",
        "pub(in crate::a) const unsafe fn marked() {}\nlet x = not_a(|fn_like| fn_like);\n",
        "pub fn long<T>(\n    one: T,\n) -> T\nwhere\n    T: Copy,\n{\n    one\n}\n",
    ];
    let found: Vec<(usize, String)> =
        functions(&text.concat(), "a").into_iter().map(|one| (one.lines, one.place)).collect();
    let expected = [(1, "a bare"), (3, "a split"), (4, "a kept"), (1, "a marked"), (8, "a long")];
    assert_eq!(found, expected.map(|(lines, place)| (lines, place.to_owned())));
}

/// What the test of circles rests on.
#[test]
fn arrows_are_found_however_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("lib.rs", "mod a; mod b; mod c; mod d;\npub use c::{Thing, inner::Other};\npub const LIMIT: u8 = 1;");
    put("a.rs", "use crate::{LIMIT, b::{self, Deep}, std_like};\n// crate::d is only a comment.");
    put(
        "b/mod.rs",
        "mod high; mod low; mod next;\npub use self::low::{self, Low};\n#[cfg(test)]\nmod checks;\nfn f() { super::c::g(); my_crate::d::h(); }",
    );
    put("b/low.rs", "use super::super::a::X; use super::d;\n#[cfg(test)]\nmod tests {\n use crate::d;\n}");
    put("b/high.rs", "use crate::b::Low;\nuse super::{self, next::Next};");
    put("b/next.rs", "use crate::b::{high::High};");
    put("b/checks.rs", "use crate::d;");
    put("c.rs", "#[cfg(test)]\nmod more;\nconst F: fn() = crate::d::f;");
    put("c/more.rs", "use crate::a;");
    put("d.rs", "use crate::Thing;");
    put("std_like.rs", "");
    let source = Source::read(folder.path());
    let shown = |arrows: &Arrows| -> Vec<String> {
        arrows.iter().map(|((from, to), file)| format!("{from} {to} {file}")).collect()
    };
    let arrows = source.arrows_below(&[]);
    assert_eq!(shown(&arrows), ["a b a", "a std_like a", "b a b/low", "b c b", "c d c", "d c d"]);
    let expected = [vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned(), "d".to_owned()]];
    assert_eq!(circles(&arrows), expected.into());
    let within = source.arrows_below(&["b".to_owned()]);
    assert_eq!(shown(&within), ["high low b/high", "high next b/high", "next high b/next"]);
    assert_eq!(circles(&within), [vec!["high".to_owned(), "next".to_owned()]].into());
}
