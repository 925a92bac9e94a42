//! A simulated file system that any number of simulated hosts have mounted.
