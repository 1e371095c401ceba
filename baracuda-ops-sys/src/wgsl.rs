//! The text of every WGSL file, by the folders and stems of `csrc`.

macro_rules! files {
    ($($(#[$doc:meta])* $folder:ident { $($name:ident = $path:literal,)* })*) => {
        $(
            $(#[$doc])*
            pub mod $folder {
                $(
                    #[doc = concat!("`csrc/", $path, "`")]
                    pub const $name: &str = include_str!(concat!(env!("BARACUDA_CSRC"), "/", $path));
                )*
            }
        )*

        /// Every file as (path under `csrc`, text).
        pub const FILES: &[(&str, &str)] = &[$($(($path, $folder::$name),)*)*];
    };
}

files! {
    /// What the kernels of several ops share.
    common {
        BF16 = "common/bf16.wgsl",
        F16 = "common/f16.wgsl",
        F32 = "common/f32.wgsl",
        HALF = "common/half.wgsl",
        NUMBER = "common/number.wgsl",
        OPERAND_ABSENT_IN = "common/operand/absent_in.wgsl",
        OPERAND_ABSENT_OUT = "common/operand/absent_out.wgsl",
        OPERAND_ABSENT_PARTIALS = "common/operand/absent_partials.wgsl",
        OPERAND_ABSENT_QUADS = "common/operand/absent_quads.wgsl",
        OPERAND_ABSENT_STATISTICS = "common/operand/absent_statistics.wgsl",
        OPERAND_CHUNKS_IN = "common/operand/chunks_in.wgsl",
        OPERAND_CHUNKS_OUT = "common/operand/chunks_out.wgsl",
        OPERAND_HALVES_IN = "common/operand/halves_in.wgsl",
        OPERAND_HALVES_OUT = "common/operand/halves_out.wgsl",
        OPERAND_PARTIALS_IN = "common/operand/partials_in.wgsl",
        OPERAND_PARTIALS_OUT = "common/operand/partials_out.wgsl",
        OPERAND_QUADS_F32_IN = "common/operand/quads_f32_in.wgsl",
        OPERAND_QUADS_HALF_IN = "common/operand/quads_half_in.wgsl",
        OPERAND_STATISTICS_IN = "common/operand/statistics_in.wgsl",
        OPERAND_STATISTICS_OUT = "common/operand/statistics_out.wgsl",
        OPERAND_VALUES_F32_IN = "common/operand/values_f32_in.wgsl",
        OPERAND_VALUES_HALF_IN = "common/operand/values_half_in.wgsl",
        OPERAND_WORDS_IN = "common/operand/words_in.wgsl",
        OPERAND_WORDS_OUT = "common/operand/words_out.wgsl",
        REDUCE_LANES = "common/reduce_lanes.wgsl",
        REDUCE_SUBGROUPS = "common/reduce_subgroups.wgsl",
        REDUCE_TREE = "common/reduce_tree.wgsl",
        ROW = "common/row.wgsl",
    }
    /// The yardstick of the benchmarks.
    copy {
        COPY = "copy.wgsl",
    }
    /// Normalization.
    norm {
        LAYER_NORM = "norm/layer_norm.wgsl",
        RMS_NORM = "norm/rms_norm.wgsl",
        ROW_NORM = "norm/row_norm.wgsl",
        ROW_NORM_BACKWARD = "norm/row_norm_backward.wgsl",
        ROW_NORM_BACKWARD_PARAMETERS = "norm/row_norm_backward_parameters.wgsl",
        ROW_NORM_BACKWARD_SPLIT_SUMS = "norm/row_norm_backward_split_sums.wgsl",
        ROW_NORM_SPLIT_APPLY = "norm/row_norm_split_apply.wgsl",
        ROW_NORM_SPLIT_MOMENTS = "norm/row_norm_split_moments.wgsl",
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::fs;
    use std::path::Path;
    use std::string::String;
    use std::vec::Vec;

    fn scan(dir: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                scan(&path, root, found);
            } else if path.extension().is_some_and(|e| e == "wgsl") {
                let inside = path.strip_prefix(root).unwrap();
                let parts: Vec<_> = inside.iter().map(|part| part.to_str().unwrap()).collect();
                found.push(parts.join("/"));
            }
        }
    }

    #[test]
    fn lists_every_wgsl_file() {
        let root = Path::new(env!("BARACUDA_CSRC"));
        let mut found = Vec::new();
        scan(root, root, &mut found);
        found.sort();
        let mut listed: Vec<_> = super::FILES.iter().map(|(path, _)| *path).collect();
        listed.sort();
        assert_eq!(listed, found);
    }
}
