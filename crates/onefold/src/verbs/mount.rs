//! `onefold pool mount`

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::device::{DeviceError, FileDevice, OpenMode};
use onefold_block::processors::SystemProcessors;
use onefold_block::{Processors, Show};
use onefold_export::{
    AccessTimes, Daemon, DiscardPolicy, FailureLog, FileBelow, MountAccess, MountHolder, MountOptions, PoolPlace,
    ServeError, StderrLog,
};
use onefold_pool::{Environment, OpenOptions, Pool, Provisioning};
use sd_notify::NotifyState;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::allocator;
use crate::cli::pool::MountArgs;
use crate::cli::values::{DiscardWhen, Switch};
use crate::daemon::{self, SystemLog};
use crate::dead_mount;
use crate::failure::{Failure, Outcome};
use crate::host;
use crate::locate::{self, PoolTarget};
use crate::mount_helper;
use crate::mounts::{self, PoolMount};
use crate::output::{Report, machine_name};
use crate::store::open_device;

/// How long an invisible daemon may keep its lock on the pool: a killed one, or one that closes the pool after an
/// unmount that did not wait for it.
const DYING_TIME_MAX: Duration = Duration::from_secs(10);
const DYING_POLL: Duration = Duration::from_millis(20);
/// Longer than [`DYING_POLL`], because each look connects to the daemon while that accepts clients.
const SERVED_POLL: Duration = Duration::from_millis(200);
/// How long mount namespaces of other processes may take to release a pool that was unmounted here.
const HOLDERS_WAIT_MAX: Duration = Duration::from_secs(2);

pub(super) fn run(arguments: &MountArgs) -> Outcome<Report> {
    if arguments.report_ready {
        return in_background(arguments);
    }
    let places = MountPaths::find(arguments)?;
    if arguments.foreground {
        let log: Arc<dyn FailureLog> = Arc::new(StderrLog);
        let mounted = mount(arguments, &places, &log)?;
        eprintln!("mounted {} at {}", places.pool.shown(), places.mountpoint.shown());
        serve(mounted, &places, &log)?;
        return Ok(Report::done("", json!({ "mountpoint": machine_name(&places.mountpoint), "unmounted": true })));
    }
    let mut again: Vec<_> = mount_helper::translate(std::env::args_os().collect())?.into_iter().skip(1).collect();
    again.push("--report-ready".into());
    let process = daemon::start(again)?;
    Ok(Report::done(
        "",
        json!({ "pool": machine_name(&places.pool), "mountpoint": machine_name(&places.mountpoint), "process": process }),
    ))
}

/// The daemon: reports the outcome of the mount to the command that started it, and then serves.
fn in_background(arguments: &MountArgs) -> Outcome<Report> {
    let system_log = Arc::new(SystemLog::connect());
    let log: Arc<dyn FailureLog> = Arc::clone(&system_log) as Arc<dyn FailureLog>;
    let mounted = daemon::detach()
        .map_err(|error| Failure::of_io("cannot leave the terminal", &error))
        .and_then(|()| MountPaths::find(arguments))
        .and_then(|places| Ok((mount(arguments, &places, &log)?, places)));
    let (mounted, places) = match mounted {
        Ok(mounted) => mounted,
        Err(failure) => {
            daemon::say_failed(&failure);
            // The command that started this process prints the failure.
            std::process::exit(1);
        }
    };
    if daemon::say_ready().is_err() {
        // The command that started it was killed meanwhile, so its user wants no mount.
        return serve_stopped(mounted, &places, &log);
    }
    system_log.info(&format!("mounted {} at {}", places.pool.shown(), places.mountpoint.shown()));
    let served = serve(mounted, &places, &log);
    match &served {
        Ok(()) => system_log.info(&format!("unmounted {}", places.mountpoint.shown())),
        Err(failure) => log.error(&failure.line()),
    }
    served.map(|()| Report::done("", json!({})))
}

fn serve_stopped(mounted: Daemon, places: &MountPaths, log: &Arc<dyn FailureLog>) -> Outcome<Report> {
    let stopper = mounted.stopper();
    let stopping = thread::spawn(move || stopper.stop());
    serve(mounted, places, log)?;
    match stopping.join() {
        Ok(Err(error)) => Err(Failure::new("cannot end the mount").because(&error)),
        _ => Ok(Report::done("", json!({}))),
    }
}

/// The pool and its mount point, as canonical paths: a daemon has no working directory that relative paths refer to.
struct MountPaths {
    pool: PathBuf,
    mountpoint: PathBuf,
}

impl MountPaths {
    fn find(arguments: &MountArgs) -> Outcome<MountPaths> {
        let cannot = || format!("cannot mount `{}`", arguments.pool.shown());
        let pool = match locate::locate(&arguments.pool)? {
            PoolTarget::Offline(path) => path,
            // A mount for another user alone is in the table as well.
            PoolTarget::Served(path) => match mount_of(&path)? {
                Some(mount) => return Err(mounted_already(cannot(), &mount)),
                // Its daemon may be about to end.
                None => path,
            },
            PoolTarget::Mounted { mount, .. } => return Err(mounted_already(cannot(), &mount)),
            // Its daemon was killed, so mounting it again suffices.
            PoolTarget::Stale(mount) => {
                fs::canonicalize(&mount.source).map_err(|error| Failure::of_io(cannot(), &error))?
            }
        };
        let mountpoint = find_mountpoint(&arguments.mountpoint, &pool).map_err(|failure| failure.wrap(cannot()))?;
        if pool.starts_with(&mountpoint) {
            return Err(Failure::usage(cannot()).because_of("the mount would cover the pool's own file"));
        }
        Ok(MountPaths { pool, mountpoint })
    }
}

/// Returns the mount of the pool at `pool`, a canonical path, from this process's table.
fn mount_of(pool: &Path) -> Outcome<Option<PoolMount>> {
    let mounts = mounts::mounted().map_err(|error| Failure::of_io("cannot list the mounts", &error))?;
    Ok(mounts::of_pool(&mounts, pool).cloned())
}

fn mounted_already(cannot: String, mount: &PoolMount) -> Failure {
    Failure::new(cannot)
        .because_of(format!("it is mounted already, at `{}`", mount.mountpoint.shown()))
        .hint("a pool is mounted once; `mount --bind` shows it in further places")
}

/// Finds the directory to mount on. A dead mount of the same pool may still cover it; that one is removed later.
fn find_mountpoint(path: &Path, pool: &Path) -> Outcome<PathBuf> {
    let cannot = || format!("cannot use `{}` as a mount point", path.shown());
    let mounts = mounts::mounted().map_err(|error| Failure::of_io("cannot list the mounts", &error))?;
    let at = |path: &Path| mounts.iter().rev().find(|mount| mount.mountpoint == path);
    // A dead mount often cannot be accessed, only named.
    let named = fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    if let Some(mount) = named.ok().and_then(|named| at(&named))
        && mounts::is_of_pool(mount, pool)
        && dead_mount::is_dead(mount)
    {
        return Ok(mount.mountpoint.clone());
    }
    let found = fs::canonicalize(path).and_then(|path| Ok((fs::metadata(&path)?, path)));
    let (metadata, mountpoint) = match found {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::of_io(cannot(), &error).hint(format!("make it with `mkdir -p {}`", path.shown())));
        }
        Err(error) => return Err(Failure::of_io(cannot(), &error)),
    };
    if !metadata.is_dir() {
        return Err(Failure::new(cannot()).because_of("it is not a directory"));
    }
    match at(&mountpoint) {
        Some(mount) => Err(Failure::new(cannot()).because_of(format!("`{}` is mounted there", mount.source.shown()))),
        None => Ok(mountpoint),
    }
}

/// Opens the pool and mounts it. Closes the pool again if that fails.
fn mount(arguments: &MountArgs, places: &MountPaths, log: &Arc<dyn FailureLog>) -> Outcome<Daemon> {
    let cannot = || format!("cannot mount `{}` at `{}`", places.pool.shown(), places.mountpoint.shown());
    let mode = if arguments.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
    let device = Arc::new(open_device_of_the_dying(&places.pool, mode)?);
    clear_dead_mounts(&places.pool).map_err(|failure| failure.wrap(cannot()))?;
    if !device.is_direct() {
        log.error("the pool's file system has no O_DIRECT: its page cache may hide a failed flush");
    }
    // Before the pool starts its threads, which inherit the setting.
    allocator::give_back_what_is_freed();
    onefold_export::mark_as_io_flusher();
    let processors: Option<Arc<dyn Processors>> = match arguments.polling {
        Switch::On => Some(Arc::new(SystemProcessors::default())),
        Switch::Off => None,
    };
    let open = OpenOptions { processors: processors.clone(), ..open_options(arguments) };
    let place = device.metadata().ok().as_ref().and_then(PoolPlace::of);
    let below = FileBelow::open(&places.pool).map_err(|error| Failure::of_io(cannot(), &error))?.map(Arc::new);
    let options = MountOptions { processors, place, below: below.clone(), ..mount_options(arguments, places, log) };
    let pool = Pool::open(device, open, Environment::system()).map_err(|error| Failure::of_pool(cannot(), &error))?;
    let pool = Arc::new(pool);
    let mut daemon = onefold_export::mount(Arc::clone(&pool), &places.mountpoint, &options).map_err(|error| {
        let failure = Failure::of_mount(cannot(), &error);
        match pool.close() {
            Ok(()) => failure,
            Err(error) => failure.because_of(format!("and the pool could not be closed again: {error}")),
        }
    })?;
    if !arguments.read_only && discards(arguments.discard, below.as_deref()) {
        daemon.discard(DiscardPolicy::new(below));
    }
    Ok(daemon)
}

/// Returns whether the daemon discards freed blocks. By itself it does so in a sparse file only: a file with all of its
/// blocks was made so to have them, and a partition gets discards only on request.
fn discards(when: DiscardWhen, below: Option<&FileBelow>) -> bool {
    match when {
        DiscardWhen::On => true,
        DiscardWhen::Off => false,
        DiscardWhen::Auto => below.is_some_and(|below| below.is_sparse().unwrap_or(false)),
    }
}

/// Opens the pool's device, and waits for a daemon that is about to end. The kernel releases the lock of a killed
/// daemon once the daemon's last request to the device is done.
fn open_device_of_the_dying(pool: &Path, mode: OpenMode) -> Outcome<FileDevice> {
    let started = Instant::now();
    let mut is_served = false;
    while matches!(FileDevice::open(pool, mode), Err(DeviceError::InUse { .. })) && started.elapsed() < DYING_TIME_MAX {
        let located = locate::locate(pool)?;
        match &located {
            PoolTarget::Mounted { .. } => break,
            // The daemon may need the removal of its mount before it can end. By now, another mount command may have
            // removed it, taken the lock, and mounted at the same place. So this clears exactly this mount, or nothing.
            PoolTarget::Stale(mount) if dead_mount::was_killed(mount) => clear_dead_mounts(pool)?,
            PoolTarget::Stale(_) | PoolTarget::Served(_) | PoolTarget::Offline(_) => {}
        }
        if started.elapsed() >= HOLDERS_WAIT_MAX {
            let holders = onefold_export::holders_elsewhere(pool).unwrap_or_default();
            if let Some(holder) = holders.first() {
                return Err(held_elsewhere(pool, holder));
            }
        }
        is_served = matches!(located, PoolTarget::Served(_));
        thread::sleep(if is_served { SERVED_POLL } else { DYING_POLL });
    }
    if is_served && matches!(FileDevice::open(pool, mode), Err(DeviceError::InUse { .. })) {
        return Err(served_out_of_sight(pool));
    }
    open_device(pool, mode)
}

/// Returns the failure for a pool that is mounted in another mount namespace.
fn held_elsewhere(pool: &Path, holder: &MountHolder) -> Failure {
    Failure::new(format!("cannot open `{}`", pool.shown()))
        .because_of(holder.to_string())
        .hint("the pool can be mounted here once that process has ended")
}

/// Returns the failure for a pool whose daemon serves on without a mount that this process can see.
fn served_out_of_sight(pool: &Path) -> Failure {
    let daemon = fs::metadata(pool).ok().and_then(|metadata| locate::daemon_of(&metadata).ok().flatten());
    let process = daemon.and_then(|daemon| daemon.process());
    let (process, kill) = match process {
        Some(process) => (format!(" (process {process})"), format!("`kill {process}`")),
        None => (String::new(), "a SIGTERM to its process".to_owned()),
    };
    Failure::new(format!("cannot open `{}`", pool.shown()))
        .because_of(format!("a daemon serves it{process}, and no mount of it can be seen from here"))
        .hint(format!(
            "`onefold pool umount FILE` ends the daemon, unless a program has a file open in it or a container has it \
             mounted; {kill} ends it in spite of them, and they get errors"
        ))
}

/// Removes the mounts that killed daemons of this pool have left. Never removes the mount of a newer daemon, whichever
/// process has the pool's lock.
fn clear_dead_mounts(pool: &Path) -> Outcome<()> {
    let cleared = dead_mount::clear_all_of(pool)
        .map_err(|error| Failure::of_io("cannot remove the mount of a daemon that has died", &error))?;
    for mount in cleared {
        eprintln!("removed the mount at {}, whose daemon had died", mount.mountpoint.shown());
    }
    Ok(())
}

fn open_options(arguments: &MountArgs) -> OpenOptions {
    OpenOptions {
        memory_bytes: arguments.open.memory.0,
        read_only: arguments.read_only,
        verify: arguments.verify.into(),
        prefetch: arguments.prefetch.into(),
        journaling: arguments.journal.into(),
        dedup: arguments.dedup.into(),
        commit_interval_ms: u32::try_from(arguments.commit_interval.as_millis()).unwrap_or(u32::MAX),
        filter_index_bits: arguments.filter_index_bits,
        filter_tag_bits: arguments.filter_tag_bits,
        provisioning: if arguments.thin { Provisioning::Thin } else { Provisioning::Told },
        host: host::identity(),
        ..OpenOptions::default()
    }
}

fn mount_options(arguments: &MountArgs, places: &MountPaths, log: &Arc<dyn FailureLog>) -> MountOptions {
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel gets it as it is; programs that print the table of mounts escape it"
    )]
    let mut options = MountOptions::new(places.pool.to_string_lossy());
    options.read_only = arguments.read_only;
    options.writeback_cache = arguments.writeback_cache;
    options.log = Arc::clone(log);
    if arguments.allow_other {
        options.access = MountAccess::Everyone;
    }
    if arguments.no_allow_other {
        options.access = MountAccess::Owner;
    }
    if arguments.noatime {
        options.access_times = AccessTimes::Never;
    }
    if arguments.strictatime {
        options.access_times = AccessTimes::Strict;
    }
    options.kernel_options = arguments.kernel_option.iter().copied().map(Into::into).collect();
    options.st_blocks = arguments.st_blocks.into();
    let threads = arguments.threads.map_or(MountOptions::threads_within(arguments.open.memory.0), usize::from);
    if let Some(threads) = NonZeroUsize::new(threads.min(MountOptions::THREADS_MAX)) {
        options.threads = threads;
    }
    options
}

/// Serves until an unmount or a signal ends the daemon. Everything is on disk then.
fn serve(mounted: Daemon, places: &MountPaths, log: &Arc<dyn FailureLog>) -> Outcome<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| Failure::of_io("cannot watch for signals", &error))?;
    let handle = signals.handle();
    let stopper = mounted.stopper();
    let log = Arc::clone(log);
    let stopping = thread::spawn(move || {
        for _ in signals.forever() {
            match stopper.stop() {
                Ok(()) => break,
                Err(error) => log.error(&Failure::new("cannot stop at once").because(&error).line()),
            }
        }
    });
    // Notifies a service manager, if one waits. Whether the message arrives does not matter here.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let served = mounted.serve();
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    handle.close();
    // After the unmount, the result of that thread does not matter.
    let _ = stopping.join();
    served.map_err(|error| {
        let failed = format!("the mount at `{}` ended with an error", places.mountpoint.shown());
        match error {
            ServeError::Close(cause) => Failure::of_pool(failed, &cause),
            ServeError::Lost(cause) => Failure::of_pool(
                format!("`{}` is unmounted and its pool closed in good order", places.mountpoint.shown()),
                &cause,
            ),
            ServeError::Door { .. } | ServeError::Control(_) => Failure::new(failed).because(&error),
        }
    })
}
