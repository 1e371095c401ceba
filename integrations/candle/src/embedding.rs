//! candle-nn's `embedding`.

use candle_core::{Module, Result, Tensor};
use candle_nn::{Init, VarBuilder};

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
