//! Tests of the tree over pages in memory. Each file is one way of doubting it.

mod fill;
mod forest;
mod hostile;
mod memory;
mod model;
mod retry;
mod scan;
mod speed;
