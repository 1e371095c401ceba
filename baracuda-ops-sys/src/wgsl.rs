//! The text of every WGSL file, by the folders and stems of `csrc`.

macro_rules! text {
    ($path:literal) => {
        include_str!(concat!(env!("BARACUDA_CSRC"), "/", $path))
    };
}

/// Every file as (path under `csrc`, text).
pub const FILES: &[(&str, &str)] = &[];
