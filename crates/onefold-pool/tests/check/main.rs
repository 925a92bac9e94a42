//! Check, repair and scrub from outside: sound pools are clean, damage is found and named, nothing hostile stops them.

mod clean;
mod common;
mod damage;
mod mutations;
