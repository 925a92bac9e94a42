//! Volumes: FAT, and LVM2, swap and named kinds on a disk. The seeds are small real images, made by
//! `seeds/make-volumes.sh`; changes overlay a seed.

mod disk;
mod fat;
mod lvm;

pub(super) use fat::run as run_fat;
pub(super) use lvm::run as run_volumes;
