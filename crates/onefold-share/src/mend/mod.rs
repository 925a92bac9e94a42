//! Mending: fills the holes that hosts have left which died during a share.
//!
//! Used only if a share may leave holes ([`ShareSteps::Declared`](crate::policy::ShareSteps)). Shares are declared
//! first, with the slots that hold the same bytes (`state::intents`). A host may die after any of these steps:
//!
//! 1. Lock the dead host's intent, and take the image's owner lock and exclusive use of the image: no other process
//!    fills it again, or changes it meanwhile.
//! 2. If the content last changed when the intent says, nobody has written since, and a hole was left by the share.
//!    Otherwise it may be intended: this is reported, and the hole is left.
//! 3. Fill the holes from the slots, set the time of the content back, and compare the content.
//! 4. Make that durable, and then retire the intent.
//!
//! A host that dies during this leaves the intent. The next host finds fewer holes.

mod fill;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use onefold_block::{BLOCK_BYTES_U64, Clock};
use onefold_substrate::{Access, Substrate};

pub(crate) use self::fill::{FillCounts, FillError, HoledImage, check_exclusive, fill, has_hole};
use crate::format::FormatError;
use crate::format::intent::{DeclaredIntent, Intent};
use crate::state::intents::{LeftIntent, TakenIntent};
use crate::state::locks::Subject;
use crate::state::{Notice, State, StateError};

/// Pause between two checks whether another host still has an image.
const PAUSE: Duration = Duration::from_millis(100);

/// How long to wait for other hosts. A mending host has an image for a moment, a sharing host for as long as its pass
/// takes.
pub struct Patience<'a> {
    /// Clock for waiting.
    pub clock: &'a dyn Clock,
    /// Maximum time, for all images together.
    pub most: Duration,
    /// Returns whether the user wants the waiting to end.
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// Treatment of images to which a process may have written since their host died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubtfulImagePolicy {
    /// They are reported, and left.
    Keep,
    /// Their holes are filled, too, and they are never reported again.
    Fill,
}

/// Treatment of intents of another identity: that of the state folder was lost, or replaced, since they were declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignIntentPolicy {
    /// They are reported, and left. Their slots stay.
    Keep,
    /// Their holes are filled like all others: a person has said that they belong here.
    Mend,
    /// They are reported and removed. Holes stay holes, and their content is lost with the next sweep.
    GiveUp,
}

/// A person's decisions about images that mending alone does not decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MendRules {
    /// Images to which a process may have written since.
    pub doubtful: DoubtfulImagePolicy,
    /// Intents of another identity.
    pub foreign: ForeignIntentPolicy,
}

impl From<DoubtfulImagePolicy> for MendRules {
    fn from(doubtful: DoubtfulImagePolicy) -> MendRules {
        MendRules { doubtful, foreign: ForeignIntentPolicy::Keep }
    }
}

/// Result of mending.
#[derive(Debug, Default)]
pub struct MendReport {
    /// All images in which dead hosts were about to share.
    pub images: Vec<MendedImage>,
}

impl MendReport {
    /// Returns the images that may still have holes.
    pub fn waiting(&self) -> impl Iterator<Item = &MendedImage> {
        self.images.iter().filter(|image| image.became.is_waiting())
    }

    /// Returns the images that may still have holes, except those that another host has, which handles them.
    pub fn left(&self) -> impl Iterator<Item = &MendedImage> {
        self.waiting().filter(|image| !matches!(image.became, MendOutcome::Elsewhere))
    }
}

/// An image in which a dead host was about to share.
#[derive(Debug)]
pub struct MendedImage {
    /// Its path then, below the root of the file system.
    pub path: PathBuf,
    /// The bytes that were about to be shared: offsets and lengths.
    pub ranges: Vec<(u64, u64)>,
    /// Holes that were filled, in bytes.
    pub filled: u64,
    /// Its outcome.
    pub became: MendOutcome,
}

/// Outcome for an image.
#[derive(Debug)]
pub enum MendOutcome {
    /// It has its previous content.
    Whole,
    /// It no longer exists.
    Gone,
    /// A process has it open. It is left for another time.
    Busy,
    /// Another host, or another run on this one, works on it. It is left to that one, or for another time.
    Elsewhere,
    /// Somebody has changed it since. It is left until a person decides to fill it.
    Changed,
    /// Somebody has changed it since, though not its time. It is treated as `Changed`.
    Differing,
    /// The arena no longer holds its content.
    Lost,
    /// It was declared under another identity. It is left until a person decides about it.
    Foreign,
    /// It was declared under another identity, and its holes were given up.
    GivenUp,
    /// Something failed. It is left for another time.
    Failed(io::Error),
}

impl MendOutcome {
    /// Returns whether the image may still have holes.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !matches!(self, MendOutcome::Whole | MendOutcome::Gone)
    }
}

/// Mends the images of dead hosts, as far as possible. Quick if there is nothing to do.
///
/// # Errors
/// Errors of the device that concern the state folder; `Newer`.
pub fn mend<S: Substrate>(state: &State<'_, S>, rules: impl Into<MendRules>) -> Result<MendReport, StateError> {
    mend_within(state, rules.into(), None)
}

/// Does the same as [`mend`], but waits for other hosts that have an image.
///
/// # Errors
/// As [`mend`].
pub fn mend_patiently<S: Substrate>(
    state: &State<'_, S>,
    rules: impl Into<MendRules>,
    patience: &Patience<'_>,
) -> Result<MendReport, StateError> {
    mend_within(state, rules.into(), Some(patience))
}

fn mend_within<S: Substrate>(
    state: &State<'_, S>,
    rules: MendRules,
    patience: Option<&Patience<'_>>,
) -> Result<MendReport, StateError> {
    let mut mended = MendReport::default();
    if !state.policy().is_declared() {
        return Ok(mended);
    }
    let ends = patience.map(|patience| patience.clock.monotonic().saturating_add(patience.most));
    for path in state.intent_paths()? {
        loop {
            let image = match state.take_intent(&path)? {
                TakenIntent::Gone | TakenIntent::Alive => break,
                TakenIntent::Taken(left) => mend_left(state, left, rules)?,
                // Another host is mending it, and is not done: the image may still have holes.
                TakenIntent::Elsewhere(intent) => intent.map(|intent| untouched(&intent, MendOutcome::Elsewhere)),
            };
            let is_elsewhere = image.as_ref().is_some_and(|image| matches!(image.became, MendOutcome::Elsewhere));
            match (patience, ends) {
                // Without the lock of its file: a host that has the image may be about to mend it. Its intent is gone
                // once it is mended.
                (Some(Patience { clock, is_stopped, .. }), Some(ends))
                    if is_elsewhere && clock.monotonic() < ends && !is_stopped() =>
                {
                    clock.sleep(PAUSE);
                }
                _ => {
                    mended.images.extend(image);
                    break;
                }
            }
        }
    }
    Ok(mended)
}

/// Returns the report for an image in which nothing was done.
fn untouched(intent: &Intent, became: MendOutcome) -> MendedImage {
    let ranges = intent.runs.iter();
    let ranges = ranges.map(|run| (run.first.0 * BLOCK_BYTES_U64, u64::from(run.count) * BLOCK_BYTES_U64)).collect();
    MendedImage { path: intent.path.clone(), ranges, filled: 0, became }
}

/// Handles the declared shares of a dead host. `None` if there were none.
fn mend_left<S: Substrate>(
    state: &State<'_, S>,
    left: LeftIntent<S>,
    MendRules { doubtful, foreign }: MendRules,
) -> Result<Option<MendedImage>, StateError> {
    let (intent, is_foreign) = match &left.intent {
        Ok(Some(DeclaredIntent { intent, is_foreign })) => (intent.clone(), *is_foreign),
        Ok(None) => return state.retire_intent(left).map(|()| None),
        Err(_) => return refuse(state, left, foreign),
    };
    let mut image = untouched(&intent, MendOutcome::Busy);
    match foreign {
        ForeignIntentPolicy::Keep if is_foreign => {
            image.became = MendOutcome::Foreign;
            return Ok(Some(image));
        }
        ForeignIntentPolicy::GiveUp if is_foreign => {
            state.retire_intent(left)?;
            image.became = MendOutcome::GivenUp;
            return Ok(Some(image));
        }
        _ => {}
    }
    // Held until the intent is retired.
    let lock = state.try_lock(&Subject::File(intent.handle.clone()))?;
    if lock.is_none() {
        image.became = MendOutcome::Elsewhere;
        return Ok(Some(image));
    }
    let file = match open(state, &intent) {
        Ok(file) => file,
        Err(error) => {
            image.became = became_of(error);
            if let MendOutcome::Gone = image.became {
                state.retire_intent(left)?;
            }
            return Ok(Some(image));
        }
    };
    match state.substrate().try_exclusive(&file) {
        Ok(true) => {}
        Ok(false) => return Ok(Some(image)),
        Err(error) => {
            image.became = MendOutcome::Failed(error);
            return Ok(Some(image));
        }
    }
    image.became = mend_image(state, &file, &intent, doubtful, &mut image.filled);
    // If another process has the image by now, the observations are no reason to forget the intent.
    if let Err(why) = check_exclusive(state.substrate(), &file)
        && !matches!(image.became, MendOutcome::Failed(_))
    {
        image.became = MendOutcome::Failed(why);
    }
    let is_done = !image.became.is_waiting();
    // A loss is final, and need not be reported for ever.
    let is_settled = matches!(image.became, MendOutcome::Changed | MendOutcome::Differing | MendOutcome::Lost);
    if is_done || (is_settled && doubtful == DoubtfulImagePolicy::Fill) {
        state.retire_intent(left)?;
    }
    state.substrate().leave_exclusive(&file);
    Ok(Some(image))
}

/// Fills the holes of an image of which the caller has exclusive use.
fn mend_image<S: Substrate>(
    state: &State<'_, S>,
    file: &S::File,
    intent: &Intent,
    doubtful: DoubtfulImagePolicy,
    filled: &mut u64,
) -> MendOutcome {
    let substrate = state.substrate();
    let stat = match substrate.stat(file) {
        Ok(stat) => stat,
        Err(error) => return MendOutcome::Failed(error),
    };
    if stat.handle != intent.handle {
        return MendOutcome::Failed(io::ErrorKind::NotFound.into());
    }
    if stat.modified != intent.modified && doubtful == DoubtfulImagePolicy::Keep {
        return MendOutcome::Changed;
    }
    let holed = HoledImage { file, length: stat.length, modified: stat.modified };
    let (mut became, mut differing) = (MendOutcome::Whole, 0);
    for run in &intent.runs {
        match fill(state, &holed, run) {
            Ok(of_run) => {
                *filled += of_run.filled * BLOCK_BYTES_U64;
                differing += of_run.differing;
            }
            Err(FillError::Lost) => became = MendOutcome::Lost,
            Err(FillError::Io(error)) => return MendOutcome::Failed(error),
        }
    }
    // The shares may be those of a host that failed and lives. What this host syncs of the file system does not include
    // them, but a sync of the file does. Otherwise a crash of that host could leave holes that no intent names.
    if let Err(error) = substrate.sync(file).and_then(|()| substrate.sync_shares(file)) {
        return MendOutcome::Failed(error);
    }
    match became {
        MendOutcome::Whole if differing > 0 => MendOutcome::Differing,
        became => became,
    }
}

/// Opens an image by its handle, or by its name if that is not possible.
fn open<S: Substrate>(state: &State<'_, S>, intent: &Intent) -> io::Result<S::File> {
    let substrate = state.substrate();
    let by_handle = match substrate.open_handle(&intent.handle, Access::Write) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => error,
        opened => return opened,
    };
    // If it was renamed, only a process that may open it by its handle can mend it.
    let cannot = || io::Error::new(by_handle.kind(), format!("it cannot be opened: {by_handle}"));
    let file = substrate.open(&intent.path, Access::Write).map_err(|_| cannot())?;
    if substrate.stat(&file)?.handle == intent.handle { Ok(file) } else { Err(cannot()) }
}

fn became_of(error: io::Error) -> MendOutcome {
    match error.kind() {
        io::ErrorKind::NotFound => MendOutcome::Gone,
        io::ErrorKind::WouldBlock => MendOutcome::Busy,
        _ => MendOutcome::Failed(error),
    }
}

/// Handles an unreadable intent. It is damaged if its host died while writing it: then the host had not begun to share,
/// or was done. An intent of a newer version, or of another state folder, names an image that may have holes.
fn refuse<S: Substrate>(
    state: &State<'_, S>,
    left: LeftIntent<S>,
    foreign: ForeignIntentPolicy,
) -> Result<Option<MendedImage>, StateError> {
    let unread = |path, became| Ok(Some(MendedImage { path, ranges: Vec::new(), filled: 0, became }));
    let path = left.path.clone();
    match &left.intent {
        Err(FormatError::Foreign) if foreign == ForeignIntentPolicy::GiveUp => {
            state.retire_intent(left)?;
            unread(path, MendOutcome::GivenUp)
        }
        Err(why @ (FormatError::Foreign | FormatError::Newer { .. })) => {
            let why = io::Error::other(format!("what is declared there cannot be read: {why}"));
            unread(path, MendOutcome::Failed(why))
        }
        _ => match left.intent {
            Err(FormatError::Io(source)) => Err(StateError::Io { path, source }),
            Err(why) => state.refuse(path, why).map(|()| None),
            Ok(_) => Ok(None),
        },
    }
}

/// Declared shares of an image, for read-only queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredShares {
    /// The image.
    pub path: PathBuf,
    /// Number of bytes.
    pub bytes: u64,
}

/// Returns the shares that are declared at the moment, by hosts that share, or that died during it.
///
/// # Errors
/// Errors of the device; `Newer`.
pub fn declared<S: Substrate>(state: &State<'_, S>) -> Result<Vec<DeclaredShares>, StateError> {
    let intents = match state.intents() {
        Err(StateError::Damaged { path, why }) => {
            state.notice(Notice::LeftAlone { path, why });
            Vec::new()
        }
        intents => intents?,
    };
    let bytes = |intent: &Intent| intent.runs.iter().map(|run| u64::from(run.count) * BLOCK_BYTES_U64).sum();
    Ok(intents.iter().map(|intent| DeclaredShares { path: intent.path.clone(), bytes: bytes(intent) }).collect())
}
