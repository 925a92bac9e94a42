//! Tests of the tree over pages in memory. Each file tests one kind of property.

mod fill;
mod forest;
mod hostile;
mod memory;
mod model;
mod retry;
mod scan;
mod speed;
