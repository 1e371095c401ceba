//! Every kind of shader of the family, without a device.

use super::super::{ForwardFields, RowNorm, Valid};
use super::backward::Backward;
use super::forward::Forward;
use crate::backend::wgpu::{Props, Variants};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Ask;
use crate::ops::norm::INPUTS;
use crate::tensor::TensorDesc;

/// Rows of each kind: many, few, and so few that long ones are split.
const ROWS: [u64; 3] = [1000, 100, 10];
/// Columns up to beyond what a workgroup holds: a team in each table holds one of these and not the one before.
const LOG2_COLS: std::ops::RangeInclusive<u32> = 3..=17;

pub(in crate::ops) fn add_variants(variants: &mut Variants) {
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for kind in [RowNorm::Layer, RowNorm::Rms] {
                let mut add = |rows, cols, options: &Options| options.add(variants, kind, dtype, rows, cols, props);
                // Every team, without parameters and with all operands.
                for rows in ROWS {
                    for cols in LOG2_COLS.map(|log2| 1 << log2) {
                        add(rows, cols, &Options::plain());
                        add(rows, cols, &Options::all(dtype));
                        add(rows, cols, &Options::all(DType::F32));
                    }
                }
                // Every set of operands, on chip and split.
                for options in Options::each(dtype) {
                    add(1000, 1024, &options);
                    add(10, 1 << 17, &options);
                }
            }
        }
    }
}

/// What a forward declares besides x and y, and the gradients that its backward is asked for.
#[derive(Clone, Debug)]
struct Options {
    weight: Option<DType>,
    bias: Option<DType>,
    stats: bool,
    residual: bool,
    wanted: Vec<&'static str>,
}

impl Options {
    fn plain() -> Self {
        Self { weight: None, bias: None, stats: false, residual: false, wanted: INPUTS.into() }
    }

    fn all(parameters: DType) -> Self {
        Self { weight: Some(parameters), bias: Some(parameters), stats: true, residual: true, wanted: INPUTS.into() }
    }

    /// Every set of options.
    fn each(dtype: DType) -> Vec<Self> {
        let parameters = [None, Some(dtype), Some(DType::F32)];
        let mut sets = Vec::new();
        for weight in parameters {
            for bias in parameters {
                for flags in 0..32u32 {
                    let [stats, residual, dx, dweight, dbias] = std::array::from_fn(|i| flags >> i & 1 == 1);
                    let wanted = [("x", dx), ("weight", dweight), ("bias", dbias)];
                    let wanted = wanted.into_iter().filter_map(|(name, is_wanted)| is_wanted.then_some(name)).collect();
                    sets.push(Self { weight, bias, stats, residual, wanted });
                }
            }
        }
        sets
    }

    /// Adds the shaders of a forward and its backward, if the options are valid.
    fn add(&self, variants: &mut Variants, kind: RowNorm, dtype: DType, rows: u64, cols: u64, props: &Props) {
        let name = format!("{kind:?} norm of {dtype} {rows} x {cols}, {self:?}");
        let Ok(forward) = self.forward(kind, dtype, rows, cols) else { return };
        // The work of the form that is chosen.
        let work = |form: Forward| form.work(&forward, props, Ask::Chosen).ok();
        if let Some(work) = Forward::ALL.into_iter().find_map(work) {
            variants.add_work(&name, Ok(work), props);
        }
        let Ok(backward) = forward.backward(&self.wanted, true) else { return };
        let work = |form: Backward| form.work(&backward, props, Ask::Chosen).ok();
        if let Some(work) = Backward::ALL.into_iter().find_map(work) {
            variants.add_work(&name, Ok(work), props);
        }
    }

    fn forward(&self, kind: RowNorm, dtype: DType, rows: u64, cols: u64) -> Result<Valid<ForwardFields>> {
        let x = TensorDesc::contiguous(dtype, &[rows, cols])?;
        Valid::new(kind.forward(), ForwardFields::plain(x, 1))?.with(|fields| {
            fields.weight = self.weight;
            fields.bias = self.bias.filter(|_| kind == RowNorm::Layer);
            fields.stats = self.stats;
            fields.residual = self.residual;
        })
    }
}
