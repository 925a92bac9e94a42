//! `onefold share domain`

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_linux::LinuxSubstrate;
use onefold_share::domain::label::{self, Label};
use onefold_share::domain::settings::Settings;
use onefold_share::domain::{Cause, DomainRules, FoundDomain};
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_substrate::{Access, Files, Names};
use serde_json::{Value, json};

use super::open::{OpenFileSystem, append};
use super::result::domain_words;
use super::status::noun;
use super::user_paths::UserPaths;
use crate::cli::share::{ShareDomainCommand, ShareDomainSetArgs, ShareFilesArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};

pub(crate) fn run(command: &ShareDomainCommand) -> Outcome<Report> {
    match command {
        ShareDomainCommand::Show(arguments) => show(arguments),
        ShareDomainCommand::Set(ShareDomainSetArgs { path, domain }) => set(std::slice::from_ref(path), Some(domain)),
        ShareDomainCommand::Clear(ShareFilesArgs { files }) => set(files, None),
    }
}

fn set(paths: &[PathBuf], label: Option<&Label>) -> Outcome<Report> {
    let cannot = |path: &Path| format!("cannot set the domain of `{}`", path.shown());
    let file_system = OpenFileSystem::to_look("cannot set domains", paths)?;
    if !file_system.substrate.reads_trusted_attributes() {
        return Err(Failure::new("cannot set domains")
            .because_of(format!("only root can set the attribute `{}`", label::ATTRIBUTE))
            .hint("run the command as root"));
    }
    for (named, path) in paths.iter().zip(&file_system.paths) {
        label::set(&file_system.substrate, path, label).map_err(|error| Failure::of_io(cannot(named), &error))?;
    }
    let count = file_system.paths.len() as u64;
    let put = match label {
        Some(Label::Domain(domain)) => format!("put into {}", domain_words(domain)),
        Some(Label::ByOwner) => "put into the domains of their files' owners".to_owned(),
        None => "without a domain of their own".to_owned(),
    };
    let text = format!(
        "{count} {} {put}; the next run reads the files there anew, and what they share already stays shared",
        noun(count, "path")
    );
    let paths: Vec<_> = file_system.paths.iter().map(machine_name).collect();
    let label = label.map(Label::value);
    Ok(Report::done(text, json!({ "root": machine_name(&file_system.root), "paths": paths, "set": label })))
}

fn show(arguments: &ShareFilesArgs) -> Outcome<Report> {
    const CANNOT: &str = "cannot show domains";
    let file_system = OpenFileSystem::to_look(CANNOT, &arguments.files)?;
    let (shown, notices) = file_system.look(CANNOT, |state| shown(&file_system, state, arguments))?;
    let (lines, paths): (Vec<String>, Vec<Value>) = shown.into_iter().unzip();
    let mut text = lines.join("\n");
    let sees_labels = file_system.substrate.reads_trusted_attributes();
    if !sees_labels {
        append(&mut text, &["domains that root has set for files and folders are not visible to this user".to_owned()]);
    }
    append(&mut text, &notices);
    let json = json!({
        "root": machine_name(&file_system.root),
        "paths": paths,
        "folder_domains_visible": sees_labels,
        "notices": notices,
    });
    Ok(Report::done(text, json))
}

/// Returns a line and an object for each path.
fn shown(
    file_system: &OpenFileSystem,
    state: Option<&State<'_, LinuxSubstrate>>,
    arguments: &ShareFilesArgs,
) -> Outcome<Vec<(String, Value)>> {
    let of_state = |error| file_system.state_failure("cannot show domains", error);
    let rules = match state {
        Some(state) => DomainRules::of(state).map_err(of_state)?,
        None => DomainRules::new(&file_system.substrate, Settings::default()),
    };
    let files = state.map(Marks::load).transpose().map_err(of_state)?;
    let mut shown = Vec::new();
    for (named, path) in arguments.files.iter().zip(&file_system.paths) {
        let cannot =
            |error: io::Error| Failure::of_io(format!("cannot show the domain of `{}`", named.shown()), &error);
        let path_text = machine_name(path);
        if named.is_dir() {
            let label = rules.of_folder(path).map_err(cannot)?;
            let line = match &label {
                Some((Label::Domain(domain), by)) => {
                    format!(
                        "files in `{}` belong to {}, {}",
                        named.shown(),
                        domain_words(domain),
                        by_label(by, &file_system.user_paths)
                    )
                }
                Some((Label::ByOwner, by)) => {
                    format!(
                        "files in `{}` belong to their owners' domains, {}",
                        named.shown(),
                        by_label(by, &file_system.user_paths)
                    )
                }
                None => format!("files in `{}` belong to their owners' domains", named.shown()),
            };
            let json = json!({
                "path": path_text,
                "set": label.as_ref().map(|(label, _)| label.value()),
                "set_by": label.map(|(_, by)| machine_name(by)),
            });
            shown.push((line, json));
            continue;
        }
        let found = find(&file_system.substrate, &rules, files.as_ref(), path).map_err(cannot)?;
        let line = format!(
            "`{}` belongs to {}, {}",
            named.shown(),
            domain_words(&found.membership.domain),
            reason(&found, &file_system.user_paths)
        );
        let mut json = found_json(&found);
        json["path"] = path_text.into();
        shown.push((line, json));
    }
    Ok(shown)
}

fn find(
    substrate: &LinuxSubstrate,
    rules: &DomainRules<'_, LinuxSubstrate>,
    files: Option<&Marks>,
    path: &Path,
) -> io::Result<FoundDomain> {
    let file = substrate.open(path, Access::Read)?;
    let stat = substrate.stat(&file)?;
    let before = files.and_then(|files| files.of(&stat.handle)).map(|mark| &mark.membership);
    rules.find(path, &file, &stat, before)
}

fn by_label(by: &Path, user_paths: &UserPaths) -> String {
    if by.as_os_str().is_empty() {
        "by the attribute of the file system's root".to_owned()
    } else {
        format!("by the attribute of `{}`", user_paths.of(by).shown())
    }
}

/// Returns the reason why a file is in its domain.
pub(super) fn reason(found: &FoundDomain, user_paths: &UserPaths) -> String {
    let owner = found.membership.owner;
    let why = match &found.cause {
        Cause::Owner => "that of its owner".to_owned(),
        Cause::EarlierOwner => format!("that of its owner before user {owner}, who runs machines"),
        Cause::Label(by) => by_label(by, user_paths),
        Cause::Libvirt => "as all machines in libvirt's folders".to_owned(),
        Cause::FileSystem => "as all files there".to_owned(),
    };
    if !found.is_joined {
        return why;
    }
    match &found.cause {
        Cause::Owner | Cause::EarlierOwner => {
            format!("into which the settings join the files of user {}", found.membership.tenant)
        }
        _ => format!("into which the settings join its domain, {why}"),
    }
}

/// Returns a file's domain for machines.
pub(super) fn found_json(found: &FoundDomain) -> Value {
    let (cause, set_by) = match &found.cause {
        Cause::Owner => ("owner", None),
        Cause::EarlierOwner => ("earlier_owner", None),
        Cause::Label(by) => ("attribute", Some(machine_name(by))),
        Cause::Libvirt => ("libvirt", None),
        Cause::FileSystem => ("file_system", None),
    };
    json!({
        "domain": found.membership.domain.to_string(),
        "cause": cause,
        "set_by": set_by,
        "joined": found.is_joined,
        "tenant": found.membership.tenant,
        "owner": found.membership.owner,
    })
}
