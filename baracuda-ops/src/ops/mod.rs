//! The ops, by family.

pub mod norm;
