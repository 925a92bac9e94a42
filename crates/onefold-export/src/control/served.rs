//! The pool and the mount that requests of the control socket act on.

use std::sync::Arc;

use onefold_pool::Pool;

use super::ending::ServiceEnd;
use crate::fuse::Invalidate;
use crate::mount_table::DeviceNumber;
use crate::stopper::Stopper;

/// The objects that requests act on.
pub(crate) struct ServedPool {
    pub(crate) pool: Arc<Pool>,
    /// The mount of the pool, if it has one.
    pub(crate) mount: Option<ServedMount>,
    pub(crate) stopper: Stopper,
    pub(crate) ending: Arc<ServiceEnd>,
}

/// A mount of the pool, to which open files of clients may belong.
pub(crate) struct ServedMount {
    pub(crate) device: DeviceNumber,
    pub(crate) invalidator: Arc<dyn Invalidate>,
}
