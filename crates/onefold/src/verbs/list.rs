//! `onefold pool list`

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::Show;
use onefold_pool::PoolStat;
use serde_json::{Value, json};

use crate::cli::pool::ListArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::mounts::{self, PoolMount};
use crate::output::{Report, TextTable, machine_name, print_failure};
use crate::side_by_side::{self, AskPolicy};
use crate::size::human;
use crate::store::{self, Intent, OpenStore};
use crate::{calendar, users};

const FSTAB: &str = "/etc/fstab";
/// Where the service unit finds the pools that it mounts.
const UNIT_FOLDER: &str = "/etc/onefold/pools";
/// Maximum length of a configuration file that is read.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of daemons that are asked at a time.
const ASKED_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// Maximum time for the answers of all daemons together. A single one of another user may take 5 s.
const ANSWERS_WAIT_MAX: Duration = Duration::from_secs(15);
/// Maximum number of files of a named folder that are looked at.
const FILES_MAX: usize = 10_000;

pub(super) fn run(arguments: &ListArgs) -> Outcome<Report> {
    let mounts = mounts::mounted().map_err(|error| Failure::of_io("cannot list the mounts", &error))?;
    let mut pools = BTreeMap::new();
    for mount in mounts.into_iter().filter(PoolMount::is_believed) {
        let pool = fs::canonicalize(&mount.source).unwrap_or_else(|_| mount.source.clone());
        // The first mount of a pool is its own; later ones are bind mounts.
        pools.entry(pool).or_insert(None).get_or_insert(mount);
    }
    for path in configured() {
        pools.entry(fs::canonicalize(&path).unwrap_or(path)).or_insert(None);
    }
    for path in &arguments.paths {
        for pool in named_by(path)? {
            pools.entry(pool).or_insert(None);
        }
    }
    let mut exit = Exit::Done;
    let mut mounted = ask_mounted(&pools, arguments.open.memory.0);
    let mut rows = Vec::new();
    for (pool, mount) in pools {
        // A pool that nobody has mounted is opened here, one after the other: each may take all of `--memory`.
        let asked = mounted.remove(&pool).unwrap_or_else(|| stat(&pool, arguments.open.memory.0));
        let stat = match asked {
            Ok(stat) => Some(stat),
            Err(failure) => {
                print_failure(&failure, false);
                exit = exit.worse(failure.exit);
                None
            }
        };
        rows.push(PoolListRow { pool, mount, stat });
    }
    let json = json!({ "pools": rows.iter().map(PoolListRow::json).collect::<Vec<_>>() });
    Ok(Report { text: text(&rows), json, exit })
}

fn stat(pool: &Path, memory_bytes: u64) -> Outcome<PoolStat> {
    let OpenStore { mut store, interrupt } = store::open(pool, memory_bytes, Intent::Read)?;
    // Nothing is changed, so a signal may end the command at any moment.
    interrupt.release();
    store.stat()
}

/// A pool that is mounted.
struct MountedPool {
    pool: PathBuf,
    memory_bytes: u64,
}

/// Asks the daemons of all mounted pools side by side: any user may mount a pool whose daemon hangs.
fn ask_mounted(
    pools: &BTreeMap<PathBuf, Option<PoolMount>>,
    memory_bytes: u64,
) -> BTreeMap<PathBuf, Outcome<PoolStat>> {
    let mut mounted: Vec<_> = pools.iter().filter_map(|(pool, mount)| Some((pool, mount.as_ref()?))).collect();
    // With more mounts than threads, hanging daemons of other users must not keep these waiting.
    mounted.sort_by_key(|(_, mount)| !mount.is_of_root_or_this_user());
    let asked: Vec<_> = mounted.iter().map(|(pool, _)| MountedPool { pool: (*pool).clone(), memory_bytes }).collect();
    let asking = AskPolicy { threads: ASKED_MAX, wait_max: ANSWERS_WAIT_MAX, go_on: &|| ControlFlow::Continue(()) };
    let answers = side_by_side::ask_all(asked, &asking, |asked| stat(&asked.pool, asked.memory_bytes));
    let silent = |mount: &PoolMount| {
        let mountpoint = mount.mountpoint.shown();
        Failure::new(format!("cannot read the numbers of the pool mounted at `{mountpoint}`"))
            .because_of(format!("its daemon has not answered within {} s", ANSWERS_WAIT_MAX.as_secs()))
            .hint("try again in a moment; a daemon that hangs has to be killed")
    };
    let pairs = mounted.into_iter().zip(answers);
    pairs.map(|((pool, mount), answer)| (pool.clone(), answer.unwrap_or_else(|| Err(silent(mount))))).collect()
}

/// Returns the pools of this host and their mount points, without a look at any of them.
pub(super) fn known_places() -> Vec<PathBuf> {
    let mounts = mounts::mounted().unwrap_or_default().into_iter().filter(PoolMount::is_believed);
    mounts.flat_map(|mount| [mount.mountpoint, mount.source]).chain(configured()).collect()
}

/// Returns the pools that `/etc/fstab` and the configuration of the service unit name. Files that this user cannot read
/// name none.
fn configured() -> Vec<PathBuf> {
    let mut pools = pools_of_fstab(&read_bounded(Path::new(FSTAB)).unwrap_or_default());
    let files = fs::read_dir(UNIT_FOLDER).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "conf")).take(FILES_MAX) {
        pools.extend(pool_of_unit(&read_bounded(&file).unwrap_or_default()));
    }
    pools
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(CONFIGURATION_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the sources of type `fuse.onefold` in a table as in fstab(5).
fn pools_of_fstab(table: &str) -> Vec<PathBuf> {
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let pools = lines.filter(|fields| fields.len() >= 3 && fields[2] == mounts::FILE_SYSTEM_TYPE);
    pools.filter(|fields| !fields[0].starts_with('#')).map(|fields| mounts::unescape(fields[0].as_bytes())).collect()
}

/// Returns the pool that a file of settings for the service unit names.
fn pool_of_unit(settings: &str) -> Option<PathBuf> {
    let value = settings.lines().filter_map(|line| line.trim().strip_prefix("POOL=")).next_back()?;
    let value = value.trim().trim_matches(|quote| quote == '"' || quote == '\'');
    (!value.is_empty()).then(|| PathBuf::from(value))
}

/// Returns the pools at a path that the user named: a pool's file or partition, or the pools among the files of a
/// folder.
fn named_by(path: &Path) -> Outcome<Vec<PathBuf>> {
    let cannot = || format!("cannot look for pools at `{}`", path.shown());
    let failed = |error: io::Error| Failure::of_io(cannot(), &error);
    let found = fs::canonicalize(path).map_err(failed)?;
    if !fs::metadata(&found).map_err(failed)?.is_dir() {
        return Ok(vec![found]);
    }
    let mut pools = Vec::new();
    for (count, entry) in fs::read_dir(&found).map_err(failed)?.enumerate() {
        if count == FILES_MAX {
            return Err(Failure::new(cannot()).because_of("it has too many files").hint("name the pools' files"));
        }
        let entry = entry.map_err(failed)?;
        // Reading anything else could wait for ever. A file that cannot be read is no pool of this user.
        if entry.file_type().is_ok_and(|kind| kind.is_file()) && is_pool(&entry.path()).unwrap_or(false) {
            pools.push(entry.path());
        }
    }
    Ok(pools)
}

fn is_pool(path: &Path) -> io::Result<bool> {
    let mut first = [0; onefold_block::BLOCK_BYTES];
    // The owner of the folder may put a pipe in the file's place meanwhile. Its opening must not wait for a writer.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    file.read_exact(&mut first)?;
    Ok(onefold_pool::begins_pool(&first))
}

/// One line of the list.
struct PoolListRow {
    pool: PathBuf,
    mount: Option<PoolMount>,
    /// Its numbers, if this user may read them.
    stat: Option<PoolStat>,
}

impl PoolListRow {
    fn used_bytes(stat: &PoolStat) -> u64 {
        stat.device_bytes.saturating_sub(stat.free_bytes)
    }

    fn json(&self) -> Value {
        json!({
            "pool": machine_name(&self.pool),
            "label": self.stat.as_ref().map(|stat| &stat.label),
            "uuid": self.stat.as_ref().map(|stat| &stat.uuid),
            "device_bytes": self.stat.as_ref().map(|stat| stat.device_bytes),
            "used_bytes": self.stat.as_ref().map(PoolListRow::used_bytes),
            "mountpoint": self.mount.as_ref().map(|mount| machine_name(&mount.mountpoint)),
            "user": self.mount.as_ref().map(|mount| mount.user),
            "scrubbed_seconds": self.stat.as_ref().and_then(|stat| stat.scrubbed_seconds),
        })
    }

    fn cells(&self) -> [String; 7] {
        let of_stat = |text: fn(&PoolStat) -> String| self.stat.as_ref().map_or_else(|| "?".to_owned(), text);
        let of_mount = |text: fn(&PoolMount) -> String| self.mount.as_ref().map_or_else(|| "-".to_owned(), text);
        [
            self.pool.shown().to_string(),
            of_stat(|stat| match stat.label.is_empty() {
                true => "-".to_owned(),
                false => stat.label.escape_debug().to_string(),
            }),
            of_stat(|stat| human(stat.device_bytes)),
            of_stat(|stat| {
                let percent = u128::from(PoolListRow::used_bytes(stat)) * 100 / u128::from(stat.device_bytes.max(1));
                format!("{percent} %")
            }),
            of_mount(|mount| mount.mountpoint.shown().to_string()),
            of_mount(|mount| users::shown(mount.user)),
            of_stat(|stat| stat.scrubbed_seconds.map_or_else(|| "never".to_owned(), calendar::minute)),
        ]
    }
}

fn text(rows: &[PoolListRow]) -> String {
    if rows.is_empty() {
        return format!(
            "no pool is mounted, and neither {FSTAB} nor {UNIT_FOLDER} names one; `onefold pool list DIRECTORY` looks at \
             the files of a directory"
        );
    }
    let mut table = TextTable::new(["pool", "label", "size", "used", "mounted at", "by", "last scrub (UTC)"]);
    for row in rows {
        table.row(row.cells());
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_found_in_fstab_and_in_settings_of_the_unit() {
        let table = "# /data/no.pool /mnt fuse.onefold\n/dev/sda1 / ext4 defaults 0 1\n\
                     /data/my\\040images.pool\t/mnt/a fuse.onefold memory=2G 0 0\n#/data/x /mnt/x fuse.onefold\nshort\n";
        assert_eq!(pools_of_fstab(table), [PathBuf::from("/data/my images.pool")]);
        assert_eq!(
            pool_of_unit("# POOL=/no\nPOOL=\"/data/a b.pool\"\nOPTIONS=--memory 2G\n"),
            Some("/data/a b.pool".into())
        );
        assert_eq!(pool_of_unit("OPTIONS=\nPOOL=\n"), None);
    }

    #[test]
    fn a_pool_without_mount_or_numbers_has_a_line() {
        let stat = PoolStat { device_bytes: 4 << 30, free_bytes: 3 << 30, ..PoolStat::default() };
        let row = PoolListRow { pool: "/data/a.pool".into(), mount: None, stat: Some(stat) };
        assert_eq!(row.cells(), ["/data/a.pool", "-", "4.00 GiB", "25 %", "-", "-", "never"]);
        assert_eq!(row.json()["used_bytes"], 1_u64 << 30);
        let row = PoolListRow { stat: None, ..row };
        assert_eq!(row.cells(), ["/data/a.pool", "?", "?", "?", "-", "-", "?"]);
    }
}
