//! Mending: what hosts that died in the middle of a share have left as holes is filled again.
//!
//! Only where a share may leave some ([`ShareSteps::Declared`](crate::policy::ShareSteps)). What was about to be shared
//! is declared before, with the slots that hold the same bytes (`state::intents`). The order of steps, each of which
//! may be the last one that a host does:
//!
//! 1. The dead host's intent is locked, the image's owner lock taken, and exclusive use of the image: nobody fills it
//!    twice, or changes it meanwhile.
//! 2. Where the content changed last when the intent says, nobody has written since, and a hole is what the share left.
//!    Otherwise it may be somebody's wish: that is told, and left.
//! 3. Holes are filled from the slots, the time of the content is set back, and what is read is compared.
//! 4. That is made durable, and then the intent retired.
//!
//! Who dies at it leaves the intent. Who comes next finds fewer holes.

mod fill;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use onefold_block::{BLOCK_BYTES_U64, Clock};
use onefold_substrate::{Access, Substrate};

pub(crate) use self::fill::{FillError, Filled, Holed, check_exclusive, fill, has_hole};
use crate::format::FormatError;
use crate::format::intent::{DeclaredIntent, Intent};
use crate::state::intents::{LeftIntent, TakenIntent};
use crate::state::locks::Subject;
use crate::state::{Notice, State, StateError};

/// How long it takes until whoever has an image at the moment is looked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// How long is waited for other hosts. One that mends has an image for a moment, one that shares for as long as its
/// pass takes.
pub struct Patience<'a> {
    /// For waiting.
    pub clock: &'a dyn Clock,
    /// The longest time, for all images together.
    pub most: Duration,
    /// Returns whether the user wants it to end.
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// What is done about images to which somebody may have written since their host died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubtful {
    /// They are told of, and left.
    Keep,
    /// Their holes are filled, too, and they are never told of again.
    Fill,
}

/// What is done about intents of another identity: that of the state folder was lost, or replaced, since they were
/// declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// They are reported, and left. Their slots stay.
    Keep,
    /// Their holes are filled as those of all others: a person has said that they belong here.
    Mend,
    /// They are reported and removed. Holes stay holes, and what was in them is lost with the next sweep.
    GiveUp,
}

/// What a person has decided about images that mending alone does not decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MendRules {
    /// Images to which somebody may have written since.
    pub doubtful: Doubtful,
    /// Intents of another identity.
    pub foreign: Foreign,
}

impl From<Doubtful> for MendRules {
    fn from(doubtful: Doubtful) -> MendRules {
        MendRules { doubtful, foreign: Foreign::Keep }
    }
}

/// What mending came to.
#[derive(Debug, Default)]
pub struct Mended {
    /// All images that dead hosts were about to share in.
    pub images: Vec<MendedImage>,
}

impl Mended {
    /// Returns the images that may have holes still.
    pub fn waiting(&self) -> impl Iterator<Item = &MendedImage> {
        self.images.iter().filter(|image| image.became.is_waiting())
    }

    /// Returns the images that may have holes still, and that no other host has, which would see to them.
    pub fn left(&self) -> impl Iterator<Item = &MendedImage> {
        self.waiting().filter(|image| !matches!(image.became, Became::Elsewhere))
    }
}

/// An image that a dead host was about to share in.
#[derive(Debug)]
pub struct MendedImage {
    /// Where it was then, below the root of the file system.
    pub path: PathBuf,
    /// Which bytes were about to be shared: offsets and lengths.
    pub ranges: Vec<(u64, u64)>,
    /// Holes that were filled, in bytes.
    pub filled: u64,
    /// What became of it.
    pub became: Became,
}

/// What became of an image.
#[derive(Debug)]
pub enum Became {
    /// It holds what it did.
    Whole,
    /// It is no more.
    Gone,
    /// Somebody has it open. It is left for another time.
    Busy,
    /// Another host, or another run on this one, works on it. It is left to that, or for another time.
    Elsewhere,
    /// Somebody has changed it since. It is left until somebody says that it is to be filled.
    Changed,
    /// Somebody has changed it since, though not its time. As above.
    Differing,
    /// The arena does not hold any more what was there.
    Lost,
    /// It was declared under another identity. It is left until a person decides about it.
    Foreign,
    /// It was declared under another identity, and its holes were given up.
    GivenUp,
    /// Something failed. It is left for another time.
    Failed(io::Error),
}

impl Became {
    /// Returns whether it may have holes still.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !matches!(self, Became::Whole | Became::Gone)
    }
}

/// Mends what hosts that died have left, as far as it can be. Quick where there is nothing to be done.
///
/// # Errors
/// Errors of the device, where they are of the state folder; `Newer`.
pub fn mend<S: Substrate>(state: &State<'_, S>, rules: impl Into<MendRules>) -> Result<Mended, StateError> {
    mend_within(state, rules.into(), None)
}

/// As [`mend`]; but who has an image elsewhere is waited for.
///
/// # Errors
/// As [`mend`].
pub fn mend_patiently<S: Substrate>(
    state: &State<'_, S>,
    rules: impl Into<MendRules>,
    patience: &Patience<'_>,
) -> Result<Mended, StateError> {
    mend_within(state, rules.into(), Some(patience))
}

fn mend_within<S: Substrate>(
    state: &State<'_, S>,
    rules: MendRules,
    patience: Option<&Patience<'_>>,
) -> Result<Mended, StateError> {
    let mut mended = Mended::default();
    if !state.policy().is_declared() {
        return Ok(mended);
    }
    let ends = patience.map(|patience| patience.clock.monotonic().saturating_add(patience.most));
    for path in state.intent_paths()? {
        loop {
            let image = match state.take_intent(&path)? {
                TakenIntent::Gone | TakenIntent::Alive => break,
                TakenIntent::Taken(left) => mend_left(state, left, rules)?,
                // Another host mends it, and is not done: the image may have holes still.
                TakenIntent::Elsewhere(intent) => intent.map(|intent| untouched(&intent, Became::Elsewhere)),
            };
            let is_elsewhere = image.as_ref().is_some_and(|image| matches!(image.became, Became::Elsewhere));
            match (patience, ends) {
                // Without the lock of its file: whoever has the image may be about to mend it. What he has mended is
                // gone.
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

/// Returns what is told of an image in which nothing was done.
fn untouched(intent: &Intent, became: Became) -> MendedImage {
    let ranges = intent.runs.iter();
    let ranges = ranges.map(|run| (run.first.0 * BLOCK_BYTES_U64, u64::from(run.count) * BLOCK_BYTES_U64)).collect();
    MendedImage { path: intent.path.clone(), ranges, filled: 0, became }
}

/// Deals with what a dead host has declared. None where that was nothing.
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
    let mut image = untouched(&intent, Became::Busy);
    match foreign {
        Foreign::Keep if is_foreign => {
            image.became = Became::Foreign;
            return Ok(Some(image));
        }
        Foreign::GiveUp if is_foreign => {
            state.retire_intent(left)?;
            image.became = Became::GivenUp;
            return Ok(Some(image));
        }
        _ => {}
    }
    // Held until the intent is retired.
    let lock = state.try_lock(&Subject::File(intent.handle.clone()))?;
    if lock.is_none() {
        image.became = Became::Elsewhere;
        return Ok(Some(image));
    }
    let file = match open(state, &intent) {
        Ok(file) => file,
        Err(error) => {
            image.became = became_of(error);
            if let Became::Gone = image.became {
                state.retire_intent(left)?;
            }
            return Ok(Some(image));
        }
    };
    match state.substrate().try_exclusive(&file) {
        Ok(true) => {}
        Ok(false) => return Ok(Some(image)),
        Err(error) => {
            image.became = Became::Failed(error);
            return Ok(Some(image));
        }
    }
    image.became = mend_image(state, &file, &intent, doubtful, &mut image.filled);
    // What was seen of an image that another process has by now is no reason to forget what was declared.
    if let Err(why) = check_exclusive(state.substrate(), &file)
        && !matches!(image.became, Became::Failed(_))
    {
        image.became = Became::Failed(why);
    }
    let is_done = !image.became.is_waiting();
    // What is lost stays lost, and need not be told of for ever.
    let is_settled = matches!(image.became, Became::Changed | Became::Differing | Became::Lost);
    if is_done || (is_settled && doubtful == Doubtful::Fill) {
        state.retire_intent(left)?;
    }
    state.substrate().leave_exclusive(&file);
    Ok(Some(image))
}

/// Fills the holes of an image that its user has for himself.
fn mend_image<S: Substrate>(
    state: &State<'_, S>,
    file: &S::File,
    intent: &Intent,
    doubtful: Doubtful,
    filled: &mut u64,
) -> Became {
    let substrate = state.substrate();
    let stat = match substrate.stat(file) {
        Ok(stat) => stat,
        Err(error) => return Became::Failed(error),
    };
    if stat.handle != intent.handle {
        return Became::Failed(io::ErrorKind::NotFound.into());
    }
    if stat.modified != intent.modified && doubtful == Doubtful::Keep {
        return Became::Changed;
    }
    let holed = Holed { file, length: stat.length, modified: stat.modified };
    let (mut became, mut differing) = (Became::Whole, 0);
    for run in &intent.runs {
        match fill(state, &holed, run) {
            Ok(of_run) => {
                *filled += of_run.filled * BLOCK_BYTES_U64;
                differing += of_run.differing;
            }
            Err(FillError::Lost) => became = Became::Lost,
            Err(FillError::Io(error)) => return Became::Failed(error),
        }
    }
    if let Err(error) = substrate.sync_shares(file) {
        return Became::Failed(error);
    }
    match became {
        Became::Whole if differing > 0 => Became::Differing,
        became => became,
    }
}

/// Opens an image by what stands for it, or by its name where that cannot be done.
fn open<S: Substrate>(state: &State<'_, S>, intent: &Intent) -> io::Result<S::File> {
    let substrate = state.substrate();
    let by_handle = match substrate.open_handle(&intent.handle, Access::Write) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => error,
        opened => return opened,
    };
    // It may have been renamed: then whoever may open it by its handle is waited for.
    let cannot = || io::Error::new(by_handle.kind(), format!("it cannot be opened: {by_handle}"));
    let file = substrate.open(&intent.path, Access::Write).map_err(|_| cannot())?;
    if substrate.stat(&file)?.handle == intent.handle { Ok(file) } else { Err(cannot()) }
}

fn became_of(error: io::Error) -> Became {
    match error.kind() {
        io::ErrorKind::NotFound => Became::Gone,
        io::ErrorKind::WouldBlock => Became::Busy,
        _ => Became::Failed(error),
    }
}

/// Deals with an intent that cannot be read. Damaged it is where its host died while it wrote it: then it had not begun
/// to share, or was done. One of a newer version, or of another state folder, speaks of an image that may have holes.
fn refuse<S: Substrate>(
    state: &State<'_, S>,
    left: LeftIntent<S>,
    foreign: Foreign,
) -> Result<Option<MendedImage>, StateError> {
    let unread = |path, became| Ok(Some(MendedImage { path, ranges: Vec::new(), filled: 0, became }));
    let path = left.path.clone();
    match &left.intent {
        Err(FormatError::Foreign) if foreign == Foreign::GiveUp => {
            state.retire_intent(left)?;
            unread(path, Became::GivenUp)
        }
        Err(why @ (FormatError::Foreign | FormatError::Newer { .. })) => {
            let why = io::Error::other(format!("what is declared there cannot be read: {why}"));
            unread(path, Became::Failed(why))
        }
        _ => match left.intent {
            Err(FormatError::Io(source)) => Err(StateError::Io { path, source }),
            Err(why) => state.refuse(path, why).map(|()| None),
            Ok(_) => Ok(None),
        },
    }
}

/// What is declared of an image, as who only looks sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The image.
    pub path: PathBuf,
    /// How many bytes of it.
    pub bytes: u64,
}

/// Returns what is declared at the moment: by hosts that share, or that have died at it.
///
/// # Errors
/// Errors of the device; `Newer`.
pub fn declared<S: Substrate>(state: &State<'_, S>) -> Result<Vec<Declared>, StateError> {
    let intents = match state.intents() {
        Err(StateError::Damaged { path, why }) => {
            state.notice(Notice::LeftAlone { path, why });
            Vec::new()
        }
        intents => intents?,
    };
    let bytes = |intent: &Intent| intent.runs.iter().map(|run| u64::from(run.count) * BLOCK_BYTES_U64).sum();
    Ok(intents.iter().map(|intent| Declared { path: intent.path.clone(), bytes: bytes(intent) }).collect())
}
