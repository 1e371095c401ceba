//! The bops tool.
fn main(){}
