//! A transformer of characters: its text, its parameters by name, and its ops, over whole pieces of text or over one letter behind those in caches.

use std::path::PathBuf;

use baracuda_ops::{
    AttentionDescriptor, CausalMask, Combine, DType, Device, Function, GemmDescriptor, GemmFactor, IndexAddDescriptor,
    IndexSelectDescriptor, PointwiseDescriptor, Queue, RmsNormDescriptor, SoftmaxDescriptor, TensorDesc, stock,
};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::graph::{Graph, Random, Result, Tensor};

/// How large a model is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// How many letters a letter sees, itself included.
    pub(crate) length: u64,
    pub(crate) width: u64,
    pub(crate) heads: u64,
    pub(crate) hidden: u64,
    pub(crate) layers: usize,
}

/// The model that the examples `transformer` and `generate` share.
pub(crate) const SMALL: Size = Size { length: 64, width: 128, heads: 4, hidden: 256, layers: 2 };

impl Size {
    /// Elements of a head.
    fn head(&self) -> u64 {
        self.width / self.heads
    }

    /// Pairs of elements of a head, which are turned by their position.
    fn pairs(&self) -> u64 {
        self.head() / 2
    }

    /// `10000^(-2 i / head)` for each pair i of a head.
    pub(crate) fn frequencies(&self) -> Vec<f32> {
        (0..self.pairs()).map(|pair| 10000f32.powf(-(pair as f32) / self.pairs() as f32)).collect()
    }
}

/// The Jargon File, as numbers of the letters that are in it.
pub(crate) struct Text {
    alphabet: Vec<u8>,
    pub(crate) letters: Vec<u32>,
}

impl Text {
    pub(crate) fn read() -> Self {
        let text = include_str!("../jargon.txt");
        let mut alphabet: Vec<u8> = text.bytes().collect();
        alphabet.sort_unstable();
        alphabet.dedup();
        let mut read = Self { alphabet, letters: vec![] };
        read.letters = read.numbers(text);
        read
    }

    /// How many letters there are.
    pub(crate) fn count(&self) -> u64 {
        self.alphabet.len() as u64
    }

    /// What to learn from; the last tenth is held out.
    pub(crate) fn parts(&self) -> (&[u32], &[u32]) {
        self.letters.split_at(self.letters.len() / 10 * 9)
    }

    /// The numbers of those bytes that are letters.
    pub(crate) fn numbers(&self, text: &str) -> Vec<u32> {
        text.bytes().filter_map(|byte| Some(self.alphabet.binary_search(&byte).ok()? as u32)).collect()
    }

    pub(crate) fn written(&self, letters: &[u32]) -> String {
        letters.iter().map(|&letter| char::from(self.alphabet[letter as usize])).collect()
    }
}

/// Where the parameters lie between the examples: beside their programs.
pub(crate) fn saved_path() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("transformer.safetensors"))
}

/// What a letter sees.
#[expect(clippy::large_enum_variant, reason = "a model has one, while it is made")]
#[derive(Clone, Copy)]
pub(crate) enum Context {
    /// Those before it in its piece of text, by cosines and sines of all positions.
    Piece { cos: Tensor, sin: Tensor },
    /// Those whose keys and values are in caches. Its own go to `row`; `length` rows have some, and its position is known to the device alone.
    Caches { position: Tensor, frequency: Tensor, row: Tensor, length: Tensor },
}

/// The parameters of a model as they are made or read, and the ops that read them.
pub(crate) struct Model {
    pub(crate) graph: Graph,
    pub(crate) random: Random,
    names: Vec<String>,
    pub(crate) parameters: Vec<Tensor>,
    size: Size,
    /// The type of parameters and of all that is between ops.
    dtype: DType,
    /// Whether attention is two products and a softmax, and not one op.
    pub(crate) is_composed: bool,
    /// A file of parameters.
    saved: Option<Vec<u8>>,
}

impl Model {
    /// A model whose parameters are random, or those of a file.
    pub(crate) fn new(device: &Device, size: Size, dtype: DType, saved: Option<Vec<u8>>) -> Self {
        let (graph, random, names, parameters) = (Graph::new(device), Random(1), vec![], vec![]);
        Self { graph, random, names, parameters, size, dtype, is_composed: false, saved }
    }

    /// Writes the parameters to a file, and returns which.
    pub(crate) fn save(&self, queue: &mut Queue<'_>) -> Result<PathBuf> {
        let (path, mut tensors) = (saved_path()?, Vec::new());
        for parameter in &self.parameters {
            let values: Vec<f32> = queue.download(&self.graph.memory[parameter.memory])?;
            tensors.push(values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
        }
        let mut views = Vec::new();
        for ((name, parameter), bytes) in self.names.iter().zip(&self.parameters).zip(&tensors) {
            let shape = parameter.desc.dims().iter().map(|&extent| extent as usize).collect();
            views.push((name, TensorView::new(Dtype::F32, shape, bytes)?));
        }
        safetensors::serialize_to_file(views, None, &path)?;
        Ok(path)
    }

    /// A parameter, which begins as `first` if it is not in the file.
    fn parameter(&mut self, name: &str, dims: &[u64], first: impl FnOnce(&mut Random) -> Vec<f32>) -> Result<Tensor> {
        let values = match &self.saved {
            None => first(&mut self.random),
            Some(file) => {
                let saved = SafeTensors::deserialize(file)?.tensor(name)?;
                if saved.dtype() != Dtype::F32
                    || !saved.shape().iter().map(|&extent| extent as u64).eq(dims.iter().copied())
                {
                    return Err(format!(
                        "{name} should be F32 {dims:?}, the file has {:?} {:?}",
                        saved.dtype(),
                        saved.shape()
                    )
                    .into());
                }
                let values = saved.data().chunks_exact(4).map(|bytes| Ok(f32::from_le_bytes(bytes.try_into()?)));
                values.collect::<Result<_>>()?
            }
        };
        let tensor = self.graph.parameter(&values, dims, self.dtype)?;
        self.names.push(name.into());
        self.parameters.push(tensor);
        Ok(tensor)
    }

    fn linear(&mut self, name: &str, x: Tensor, columns: u64) -> Result<Tensor> {
        let rows = x.desc.dims()[1];
        let scale = (3.0 / rows as f32).sqrt();
        let weight = self.parameter(name, &[rows, columns], |random| random.around(&[rows, columns], scale))?;
        self.graph.op(GemmDescriptor::new(x.desc, weight.desc)?, &[("a", x), ("b", weight)], "out")
    }

    fn norm(&mut self, name: &str, x: Tensor) -> Result<Tensor> {
        let width = self.size.width;
        let weight = self.parameter(name, &[width], |_| vec![1.0; width as usize])?;
        let norm = RmsNormDescriptor::new(x.desc, 1)?.weight(self.dtype)?.stats()?;
        self.graph.op(norm, &[("x", x), ("weight", weight)], "y")
    }

    fn add(&mut self, x: Tensor, y: Tensor) -> Result<Tensor> {
        let add = PointwiseDescriptor::binary(Function::Add, x.desc, y.desc)?;
        self.graph.op(add, &[("in0", x), ("in1", y)], "out0")
    }

    /// Queries or keys, turned by their positions: products of both halves of each head, `[batch, length, heads, pairs]`, and the halves as an axis of
    /// what comes of them.
    fn turned(&mut self, name: &str, x: Tensor, [batch, length]: [u64; 2], context: Context) -> Result<Tensor> {
        let (half, pairs) = (self.size.width / 2, self.size.pairs());
        let (dims, strides) = ([batch, length, self.size.heads, 2, pairs], [length * half, half, pairs, 0, 1]);
        let pairs = TensorDesc::strided(self.dtype, &dims, &strides)?;
        let x0 = Tensor { desc: pairs, ..self.linear(&format!("{name}.first"), x, half)? };
        let x1 = Tensor { desc: pairs, ..self.linear(&format!("{name}.second"), x, half)? };
        let (program, [c, d]) = match context {
            Context::Piece { cos, sin } => (stock::rope(Some(3))?, [cos, sin]),
            Context::Caches { position, frequency, .. } => (stock::rope_at(Some(3))?, [position, frequency]),
        };
        let rope =
            PointwiseDescriptor::new(program, vec![x0.desc, x1.desc, c.desc, d.desc])?.outputs(vec![self.dtype])?;
        self.graph.op(rope, &[("in0", x0), ("in1", x1), ("in2", c), ("in3", d)], "out0")
    }

    fn attention(&mut self, name: &str, x: Tensor, of: [u64; 2], context: Context) -> Result<Tensor> {
        let ([batch, length], Size { width, heads: count, length: seen, .. }) = (of, self.size);
        let (dtype, head) = (self.dtype, self.size.head());
        let heads =
            |length: u64| TensorDesc::strided(dtype, &[batch, count, length, head], &[length * width, head, width, 1]);
        let own = heads(length)?;
        let q = Tensor { desc: own, ..self.turned(&format!("{name}.query"), x, of, context)? };
        let mut k = Tensor { desc: own, ..self.turned(&format!("{name}.key"), x, of, context)? };
        let mut v = Tensor { desc: own, ..self.linear(&format!("{name}.value"), x, width)? };
        let mixed = match context {
            Context::Piece { .. } if self.is_composed => {
                let scores = GemmDescriptor::new(q.desc, GemmFactor::transposed(k.desc))?;
                let scores = self.graph.op(scores, &[("a", q), ("b", k)], "out")?;
                let softmax = SoftmaxDescriptor::new(scores.desc, 3)?.scale(1.0 / (head as f64).sqrt())?.causal()?;
                let shares = self.graph.op(softmax, &[("x", scores)], "y")?;
                let mixed = GemmDescriptor::new(shares.desc, v.desc)?.layout("out", own)?;
                self.graph.op(mixed, &[("a", shares), ("b", v)], "out")?
            }
            Context::Piece { .. } => {
                let attention = AttentionDescriptor::new(q.desc, k.desc, v.desc)?.causal(CausalMask::BottomRight)?;
                let attention = attention.window(Some(seen as i64 - 1), None)?.layout("y", own)?.stats()?;
                self.graph.op(attention, &[("q", q), ("k", k), ("v", v)], "y")?
            }
            Context::Caches { row, length, .. } => {
                for new in [&mut k, &mut v] {
                    let zeros = vec![0f32; (seen * width) as usize];
                    let cache = Tensor { desc: heads(seen)?, ..self.graph.tensor(&zeros, &[seen, width], false)? };
                    let append = IndexAddDescriptor::new(cache.desc, 2, row.desc, Combine::Set)?.base()?;
                    let operands = [("base", cache), ("source", *new), ("indices", row), ("y", cache)];
                    *new = self.graph.op(append, &operands, "y")?;
                }
                // Each row that has a key is before the letter or its own: there is nothing to hide.
                let attention = AttentionDescriptor::new(q.desc, k.desc, v.desc)?.lengths(DType::U32)?;
                let attention = attention.layout("y", own)?;
                self.graph.op(attention, &[("q", q), ("k", k), ("v", v), ("lengths", length)], "y")?
            }
        };
        self.linear(&format!("{name}.out"), mixed.viewed(&[batch * length, width])?, width)
    }

    fn feed_forward(&mut self, name: &str, x: Tensor) -> Result<Tensor> {
        let gate = self.linear(&format!("{name}.gate"), x, self.size.hidden)?;
        let up = self.linear(&format!("{name}.up"), x, self.size.hidden)?;
        let gated = PointwiseDescriptor::new(stock::swiglu()?, vec![gate.desc, up.desc])?;
        let gated = self.graph.op(gated, &[("in0", gate), ("in1", up)], "out0")?;
        self.linear(&format!("{name}.down"), gated, self.size.width)
    }

    /// Plans all that makes logits `[batch * length, letters]` of letters `[batch, length]`.
    pub(crate) fn logits(&mut self, x: Tensor, letters: u64, context: Context) -> Result<Tensor> {
        let of @ [batch, length] = [x.desc.dims()[0], x.desc.dims()[1]];
        let (scale, dims) = ((3.0 / letters as f32).sqrt(), [letters, self.size.width]);
        let table = self.parameter("embedding", &dims, |random| random.around(&dims, scale))?;
        let embedding = IndexSelectDescriptor::new(table.desc, 0, x.desc)?;
        let h = self.graph.op(embedding, &[("x", table), ("indices", x)], "y")?;
        let mut h = h.viewed(&[batch * length, self.size.width])?;
        for layer in 0..self.size.layers {
            let y = self.norm(&format!("{layer}.attention.norm"), h)?;
            let y = self.attention(&format!("{layer}.attention"), y, of, context)?;
            h = self.add(h, y)?;
            let y = self.norm(&format!("{layer}.feed_forward.norm"), h)?;
            let y = self.feed_forward(&format!("{layer}.feed_forward"), y)?;
            h = self.add(h, y)?;
        }
        let h = self.norm("norm", h)?;
        self.linear("logits", h, letters)
    }

    /// The logits of whole pieces of text.
    pub(crate) fn logits_of_pieces(&mut self, x: Tensor, letters: u64) -> Result<Tensor> {
        let (length, size) = (x.desc.dims()[1], self.size);
        let mut table = |of: fn(f32) -> f32| {
            let angles =
                (0..length).flat_map(|at| size.frequencies().into_iter().map(move |frequency| at as f32 * frequency));
            self.graph.tensor(&angles.map(of).collect::<Vec<f32>>(), &[length, 1, 1, size.pairs()], false)
        };
        let (cos, sin) = (table(f32::cos)?, table(f32::sin)?);
        self.logits(x, letters, Context::Piece { cos, sin })
    }
}
