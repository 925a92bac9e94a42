//! The rules by which several hosts change an archive without a lock, each with the place that follows it.
//!
//! A test build can leave one rule out, on one thread: the simulation must notice that.
//! Other builds follow all rules.

/// A rule that the code follows at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Objects are durable before the entry that names them: [`super::Writer::commit`].
    DurableBeforeEntry,
    /// Before an entry adds an image, the writer reads all entries before it, and looks whether the packs that the
    /// image relies on still hold its units: [`super::Writer::commit`].
    ReliedPacksHold,
    /// A reader that misses a pack reads the ledger further: [`super::Archive::read_units`].
    ReadersReadOn,
    /// A collection retires packs at a position where no image needs them: it looks at the images that were added while
    /// it worked (`collect/watch.rs`).
    UnneededAtPosition,
    /// A writer that was given up adds nothing: [`super::Writer::commit`], and the state of every reader.
    GivenUpAddsNothing,
    /// Objects that no entry names belong to their writer until an entry gives it up (`collect/listing.rs`).
    WritersOwnObjects,
    /// A clock decides when an entry gives a writer up, and no clock replaces that entry (`collect/listing.rs`).
    NoClockDeletes,
    /// An entry is never rewritten: it is made by "create if absent".
    EntriesStay,
    /// "Exists" does not say whose object it is. The writer compares the bytes, which have its random token.
    TokensCompared,
    /// A pack that is missing stays until no image lacks a unit without it: it may be put back (`repair/mod.rs`).
    MissingPacksStay,
    /// A damaged pack that cannot be read completely stays likewise: it may have more intact units (`repair/mod.rs`).
    UnreadPacksStay,
    /// Units of packs that came since a repair looked are not lost (`repair/mod.rs`).
    PacksSinceCount,
    /// A collection keeps a pack with the last copy of a needed unit, also if the ledger calls the unit lost
    /// (`collect/need.rs`).
    LastCopiesStay,
    /// An error does not say that an entry was not made. The writer tries the same entry again.
    ErrorsProveNothing,
}

/// Returns whether the code follows a rule.
#[cfg(not(test))]
pub(super) const fn follows(_: Rule) -> bool {
    true
}

#[cfg(test)]
pub(super) use for_tests::{follows, leave_out};

#[cfg(test)]
mod for_tests {
    use std::cell::Cell;

    use super::Rule;

    thread_local! {
        static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    pub(in crate::archive) fn follows(rule: Rule) -> bool {
        LEFT_OUT.get() != Some(rule)
    }

    /// Leaves a rule out on this thread, or follows all of them again.
    pub(in crate::archive) fn leave_out(rule: Option<Rule>) {
        LEFT_OUT.set(rule);
    }
}
