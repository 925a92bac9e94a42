//! The readers of guests against real file systems, made by these file systems' own tools, and their programs as oracles.

mod fixtures;
