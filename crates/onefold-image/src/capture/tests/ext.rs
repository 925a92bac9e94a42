//! ext4: real file systems, made without root.
