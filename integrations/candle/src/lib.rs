#![doc = include_str!("../README.md")]

mod error;
mod op;
mod storage;

pub mod conv;
pub mod embedding;
pub mod group_norm;
pub mod layer_norm;
pub mod linear;
pub mod loss;
pub mod ops;
pub mod rotary_emb;

pub use baracuda_ops;
pub use error::{Refusal, cause};
pub use storage::plans;

// All of candle-nn, of which the names below take the place of its own.
pub use candle_nn::*;

pub use conv::{Conv1d, Conv2d, conv1d, conv1d_no_bias, conv2d, conv2d_no_bias};
pub use embedding::{Embedding, embedding};
pub use group_norm::{GroupNorm, group_norm};
pub use layer_norm::{LayerNorm, RmsNorm, layer_norm, layer_norm_no_bias, rms_norm};
pub use linear::{Linear, linear, linear_b, linear_no_bias};
