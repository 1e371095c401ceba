//! candle-nn's `embedding`.

use baracuda_ops::{AnyDescriptor, IndexSelectDescriptor};
use candle_core::{CpuStorage, CustomOp1, DType, Error, Layout, Module, Result, Shape, Storage, Tensor};
use candle_nn::{Init, VarBuilder};

use crate::error::refused;
use crate::storage::{self, Input, Source};

const OP: &str = "embedding";

/// A table of rows that indices name, with the constructor of candle-nn's.
#[derive(Clone, Debug)]
pub struct Embedding {
    embeddings: Tensor,
    hidden_size: usize,
}

impl Embedding {
    /// With a table of rows of `hidden_size` elements.
    pub fn new(embeddings: Tensor, hidden_size: usize) -> Self {
        Self { embeddings, hidden_size }
    }

    /// The table.
    pub fn embeddings(&self) -> &Tensor {
        &self.embeddings
    }

    /// The elements of a row.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }
}

impl Module for Embedding {
    fn forward(&self, indexes: &Tensor) -> Result<Tensor> {
        crate::ops::embedding(&self.embeddings, indexes)
    }
}

/// An embedding with the variable `weight`.
///
/// # Errors
/// The builder lacks a variable of this shape.
pub fn embedding(in_size: usize, out_size: usize, vb: VarBuilder) -> Result<Embedding> {
    let embeddings = vb.get_with_hints((in_size, out_size), "weight", Init::Randn { mean: 0.0, stdev: 1.0 })?;
    Ok(Embedding::new(embeddings, out_size))
}

/// The rows of a table `[rows, columns]` that indices name: [`ops::embedding`](crate::ops::embedding).
pub(crate) fn rows(table: &Tensor, indices: &Tensor) -> Result<Tensor> {
    table.dims2()?;
    let indices = if indices.dtype() == DType::U8 { indices.to_dtype(DType::U32)? } else { indices.clone() };
    if !matches!(indices.dtype(), DType::U32 | DType::I64 | DType::I32) {
        return Err(Error::UnsupportedDTypeForOp(indices.dtype(), OP).bt());
    }
    if !table.device().same_device(indices.device()) {
        let [lhs, rhs] = [table, &indices].map(|tensor| tensor.device().location());
        return Err(Error::DeviceMismatchBinaryOp { lhs, rhs, op: OP }.bt());
    }
    table.apply_op1(Rows { indices: indices.contiguous()? })
}

/// Forward by a plan; the gradient of the table adds up what arrives by candle's own `index_add`.
struct Rows {
    indices: Tensor,
}

impl CustomOp1 for Rows {
    fn name(&self) -> &'static str {
        OP
    }

    fn cpu_fwd(&self, table: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        use candle_core::backend::BackendStorage;
        let (storage, of_indices) = self.indices.storage_and_layout();
        let table_desc = storage::describe(OP, table.dtype(), layout)?;
        let indices_desc = storage::describe(OP, self.indices.dtype(), of_indices)?;
        let select = IndexSelectDescriptor::new(table_desc, 0, indices_desc);
        let select = select.and_then(IndexSelectDescriptor::count_missing).map_err(refused(OP))?;
        let table = Input { storage: Source::Cpu(table), offset: layout.start_offset() };
        let indices = Input { storage: Source::of(OP, &storage)?, offset: of_indices.start_offset() };
        let outputs = storage::run(OP, &AnyDescriptor::new(select), &[Some(table), Some(indices), None, None])?;
        let mut dims = self.indices.dims().to_vec();
        dims.push(layout.shape().dims2()?.1);
        let mut outputs = outputs.into_iter();
        match (outputs.next(), outputs.next()) {
            (Some(Storage::Cpu(_)), Some(Storage::Cpu(CpuStorage::U32(missing)))) if missing.iter().any(|&n| n > 0) => {
                let (missing, rows) = (missing[0], layout.dims()[0]);
                candle_core::bail!("baracuda-candle {OP}: {missing} indices are no rows of a table of {rows}")
            }
            (Some(Storage::Cpu(rows)), _) => Ok((rows, dims.into())),
            _ => candle_core::bail!("baracuda-candle {OP}: has no output"),
        }
    }

    fn bwd(&self, table: &Tensor, _: &Tensor, grad_res: &Tensor) -> Result<Option<Tensor>> {
        if !table.track_op() {
            return Ok(None);
        }
        let columns = table.dim(1)?;
        let arriving = grad_res.contiguous()?.reshape(((), columns))?;
        let indices = self.indices.flatten_all()?;
        table.zeros_like()?.index_add(&indices, &arriving, 0).map(Some)
    }
}
