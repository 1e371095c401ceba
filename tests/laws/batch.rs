//! The bits of a sample depend on no other of its batch, where a plan promises it: [`Determinism::BatchInvariant`]. What promises is in the table of
//! docs/numerics.md.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use baracuda_ops::{
    Access, Activation, ActivationDescriptor, AnyDescriptor, AttentionDescriptor, Backend, CausalMask,
    ConcatDescriptor, CopyDescriptor, CrossEntropyDescriptor, DType, Descriptor, Determinism, Device, DeviceProps,
    Error, FftDescriptor, Function, GatherDescriptor, GemmDescriptor, GemmFactor, IndexSelectDescriptor,
    IrfftDescriptor, LayerNormBackwardDescriptor, LayerNormDescriptor, LossReduction, Mem, MemMut, OPS, Operand,
    PadDescriptor, PadMode, PlanOptions, PointwiseDescriptor, ReduceDescriptor, Reduction, RfftDescriptor,
    RmsNormBackwardDescriptor, RmsNormDescriptor, Scan, ScanDescriptor, SoftmaxDescriptor, TensorDesc, Workspace,
};
use baracuda_ops_tests::ops::SUBJECTS;
use baracuda_ops_tests::values::scatter;

use crate::products::element;

/// Samples of the whole batch, and on adapters that are software, whose shaders take long.
const SAMPLES: [u64; 2] = [257, 40];
/// Numbers of samples for which choices are compared.
const COUNTS: [u64; 9] = [1, 2, 3, 7, 33, 132, 257, 1000, 5000];

/// Classes, positions and keys that indices name.
const CLASSES: u64 = 23;

/// Descriptors that differ in the number of samples alone.
struct Family {
    name: String,
    of: Box<dyn Fn(u64) -> Result<AnyDescriptor, Error>>,
    /// The backends that refuse it: shaders have no f64, and some kernels no promise.
    refused_on: &'static [Backend],
    /// Whether elements are moved, or computed one by one, so that forms may differ in how they are addressed.
    is_elementwise: bool,
}

impl Family {
    fn whole(name: &str, of: impl Fn(u64) -> Result<AnyDescriptor, Error> + 'static) -> Self {
        Self { name: name.into(), of: Box::new(of), refused_on: &[], is_elementwise: false }
    }

    fn refused_on(self, refused_on: &'static [Backend]) -> Self {
        Self { refused_on, ..self }
    }

    fn by_elements(self) -> Self {
        Self { is_elementwise: true, ..self }
    }
}

fn any<D: Descriptor>(descriptor: D) -> Result<AnyDescriptor, Error> {
    Ok(AnyDescriptor::new(descriptor))
}

const OF_GPUS: &[Backend] = &[Backend::Wgpu, Backend::Cuda];

/// At least one family of every op that promises.
fn families() -> Vec<Family> {
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        rows_and_lines(dtype, &mut all);
        elements(dtype, &mut all);
        products(dtype, &mut all);
    }
    transforms(&mut all);
    let f64s = |dims: &[u64]| TensorDesc::contiguous(DType::F64, dims);
    all.push(
        Family::whole("gemm of f64", move |n| any(GemmDescriptor::new(f64s(&[n, 65])?, f64s(&[65, 34])?)?.alpha(0.7)?))
            .refused_on(&[Backend::Wgpu]),
    );
    all.push(
        Family::whole("softmax of f64", move |n| any(SoftmaxDescriptor::new(f64s(&[n, 65])?, 1)?)).refused_on(OF_GPUS),
    );
    all.push(
        Family::whole("layer_norm of f64", move |n| any(LayerNormDescriptor::new(f64s(&[n, 65])?, 1)?))
            .refused_on(&[Backend::Wgpu]),
    );
    all
}

/// Norms, softmax, cross-entropy, reductions and scans.
fn rows_and_lines(dtype: DType, all: &mut Vec<Family>) {
    let of = move |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
    for cols in [100, 4096] {
        all.push(Family::whole(&format!("layer_norm, {cols} columns of {dtype}"), move |n| {
            any(LayerNormDescriptor::new(of(&[n, cols])?, 1)?.weight(dtype)?.bias(dtype)?.stats()?)
        }));
    }
    all.push(Family::whole(&format!("rms_norm of {dtype}"), move |n| {
        any(RmsNormDescriptor::new(of(&[n, 2, 3, 96])?, 2)?.weight(dtype)?.residual()?)
    }));
    all.push(
        Family::whole(&format!("layer_norm_backward of {dtype}"), move |n| {
            any(LayerNormBackwardDescriptor::new(of(&[n, 200])?, 1)?.weight(dtype, false)?)
        })
        .refused_on(&[Backend::Cuda]),
    );
    all.push(
        Family::whole(&format!("rms_norm_backward of {dtype}"), move |n| {
            any(RmsNormBackwardDescriptor::new(of(&[n, 64])?, 1)?)
        })
        .refused_on(&[Backend::Cuda]),
    );
    for cols in [77, 1024] {
        let softmax = move |n| SoftmaxDescriptor::new(of(&[n, cols])?, 1);
        all.push(Family::whole(&format!("softmax, {cols} columns of {dtype}"), move |n| any(softmax(n)?)));
        all.push(Family::whole(&format!("softmax_backward, {cols} columns of {dtype}"), move |n| {
            any(softmax(n)?.backward()?)
        }));
    }
    let channels = move |n| SoftmaxDescriptor::new(of(&[n, 5, 40])?, 1)?.log();
    all.push(
        Family::whole(&format!("softmax across {dtype}"), move |n| any(channels(n)?)).refused_on(&[Backend::Cuda]),
    );
    all.push(
        Family::whole(&format!("softmax_backward across {dtype}"), move |n| any(channels(n)?.backward()?))
            .refused_on(&[Backend::Cuda]),
    );
    all.push(
        Family::whole(&format!("softmax of few lines across {dtype}"), move |n| {
            any(SoftmaxDescriptor::new(of(&[n, 5, 3])?, 1)?)
        })
        .refused_on(&[Backend::Cuda]),
    );
    all.push(Family::whole(&format!("causal softmax of {dtype}"), move |n| {
        any(SoftmaxDescriptor::new(of(&[n, 6, 33])?, 2)?.causal()?)
    }));
    let loss = move |n| {
        CrossEntropyDescriptor::new(of(&[n, CLASSES])?, 1, DType::I64)?.reduction(LossReduction::None)?.stats()
    };
    all.push(Family::whole(&format!("cross_entropy of {dtype}"), move |n| any(loss(n)?)));
    all.push(Family::whole(&format!("cross_entropy_backward of {dtype}"), move |n| any(loss(n)?.backward()?)));
    for reduction in [Reduction::Sum, Reduction::LogSumExp] {
        let name = reduction.name();
        all.push(Family::whole(&format!("{name} of rows of {dtype}"), move |n| {
            any(ReduceDescriptor::of(of(&[n, 1000])?, &[1], reduction)?)
        }));
        all.push(Family::whole(&format!("{name} of columns of {dtype}"), move |n| {
            any(ReduceDescriptor::of(of(&[n, 70, 9])?, &[1], reduction)?)
        }));
    }
    all.push(Family::whole(&format!("scan of rows of {dtype}"), move |n| {
        any(ScanDescriptor::of(of(&[n, 300])?, 1, Scan::Sum)?)
    }));
    all.push(Family::whole(&format!("scan of columns of {dtype}"), move |n| {
        any(ScanDescriptor::of(of(&[n, 90, 5])?, 1, Scan::Sum)?)
    }));
}

/// Fourier transforms, which f32 and f64 have.
fn transforms(all: &mut Vec<Family>) {
    let of = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims);
    // In one pass, in two, and as a convolution; lines side by side.
    for points in [60, 6000, 101] {
        all.push(Family::whole(&format!("fft of {points} points"), move |n| {
            any(FftDescriptor::new(of(&[n, points, 2])?, 1)?)
        }));
    }
    all.push(Family::whole("fft of columns", move |n| any(FftDescriptor::new(of(&[n, 30, 3, 2])?, 1)?)));
    all.push(Family::whole("rfft", move |n| any(RfftDescriptor::new(of(&[n, 48])?, 1)?)));
    all.push(Family::whole("irfft", move |n| any(IrfftDescriptor::new(of(&[n, 25, 2])?, 1, 48)?)));
}

/// What computes or moves each element by itself.
fn elements(dtype: DType, all: &mut Vec<Family>) {
    let of = move |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
    let gelu = move |n| ActivationDescriptor::new(of(&[n, 37])?, Activation::GeluErf);
    all.push(Family::whole(&format!("activation of {dtype}"), move |n| any(gelu(n)?)));
    all.push(Family::whole(&format!("activation_backward of {dtype}"), move |n| any(gelu(n)?.backward()?)));
    all.push(Family::whole(&format!("exponentials of {dtype}"), move |n| {
        any(PointwiseDescriptor::unary(Function::Exp, of(&[n, 35])?)?)
    }));
    let repeated = Family::whole(&format!("products with repeated {dtype}"), move |n| {
        any(PointwiseDescriptor::binary(Function::Mul, of(&[n, 35])?, of(&[35])?)?)
    });
    all.push(repeated.refused_on(&[Backend::Cuda]).by_elements());
    let indices = |dims: &[u64]| TensorDesc::contiguous(DType::I64, dims);
    let mut moved = |name: &str, of: Box<dyn Fn(u64) -> Result<AnyDescriptor, Error>>| {
        all.push(Family { name: format!("{name} of {dtype}"), of, refused_on: &[], is_elementwise: true });
    };
    moved("copy", Box::new(move |n| any(CopyDescriptor::new(of(&[n, 6])?)?)));
    moved("pad", Box::new(move |n| any(PadDescriptor::new(of(&[n, 6])?, vec![0, 2], vec![0, 4], PadMode::Reflect)?)));
    moved("concat", Box::new(move |n| any(ConcatDescriptor::new(vec![of(&[n, 6])?, of(&[n, 4])?], 1)?)));
    moved("index_select", Box::new(move |n| any(IndexSelectDescriptor::new(of(&[CLASSES, 8])?, 0, indices(&[n])?)?)));
    moved("gather", Box::new(move |n| any(GatherDescriptor::new(of(&[n, CLASSES])?, 1, indices(&[n, 6])?)?)));
}

/// Products and attention.
fn products(dtype: DType, all: &mut Vec<Family>) {
    let of = move |dims: &[u64]| TensorDesc::contiguous(dtype, dims);
    for (k, n) in [(300, 70), (64, 130), (129, 1)] {
        all.push(Family::whole(&format!("gemm, {k} terms and {n} columns of {dtype}"), move |m| {
            let gemm = GemmDescriptor::new(of(&[m, k])?, of(&[k, n])?)?.bias(dtype)?;
            any(gemm.activation(Activation::GeluErf)?)
        }));
    }
    all.push(Family::whole(&format!("gemm with a transposed factor of {dtype}"), move |m| {
        any(GemmDescriptor::new(of(&[m, 96])?, GemmFactor::transposed(of(&[40, 96])?))?)
    }));
    all.push(Family::whole(&format!("gemm of a batch of {dtype}"), move |b| {
        any(GemmDescriptor::new(of(&[b, 5, 64])?, of(&[b, 64, 34])?)?)
    }));
    let attention = move |n| {
        let (q, kv) = (of(&[n, 2, 5, 32])?, of(&[n, 1, 20, 32])?);
        AttentionDescriptor::new(q, kv, kv)?.causal(CausalMask::BottomRight)?.stats()
    };
    all.push(Family::whole(&format!("attention of {dtype}"), move |n| any(attention(n)?)));
    all.push(Family::whole(&format!("attention_backward of {dtype}"), move |n| {
        any(attention(n)?.backward(&["q", "k", "v"])?)
    }));
}

fn invariant() -> PlanOptions {
    PlanOptions::default().determinism(Determinism::BatchInvariant)
}

/// Bytes of an operand, those of one sample after those of another, or those that all samples share.
struct Bytes {
    all: Vec<u8>,
    of_sample: Option<usize>,
}

/// A family with the operands of its whole batch.
struct Batch<'f> {
    family: &'f Family,
    operands: Vec<Bytes>,
}

impl<'f> Batch<'f> {
    fn new(family: &'f Family, samples: u64) -> Result<Self> {
        let [one, two, whole] = [1, 2, samples].map(|count| (family.of)(count));
        let (one, two, whole) = (one?, two?, whole?);
        let mut operands = Vec::new();
        for (at, slot) in whole.slots().iter().enumerate() {
            let [of_one, of_two] = [&one, &two].map(|descriptor| descriptor.slots()[at].span_bytes);
            ensure!([of_one, 2 * of_one].contains(&of_two), "{}: {} has {of_two} bytes", family.name, slot.name);
            let of_sample = (of_two != of_one).then_some(usize::try_from(of_one)?);
            let mut all = vec![0; usize::try_from(slot.span_bytes)?];
            if slot.access != Access::Out {
                let value = |index: u64| {
                    let (value, bits) = element(index ^ ((at as u64 + 1) << 40));
                    match slot.desc.dtype() {
                        DType::I64 => (bits % CLASSES) as f64,
                        _ if slot.name == "rstd" => value.abs() + 0.5,
                        // Not a multiple of a power of two, so that sums are rounded.
                        _ => value * 1.1,
                    }
                };
                let values: Vec<f64> = (0..slot.desc.elements()).map(value).collect();
                scatter(&slot.desc, &values, &mut all);
            }
            operands.push(Bytes { all, of_sample });
        }
        Ok(Self { family, operands })
    }

    /// The outputs of some samples, which are a batch, by their operands.
    fn run(
        &self,
        (device, options): (&Device, &PlanOptions),
        first: u64,
        count: u64,
    ) -> Result<BTreeMap<&'static str, Vec<u8>>> {
        let descriptor = (self.family.of)(count)?;
        let plan = descriptor.plan(device, options)?;
        ensure!(plan.info().determinism == Determinism::BatchInvariant, "{:?}", plan.info());
        let (first, count) = (usize::try_from(first)?, usize::try_from(count)?);
        let mut buffers = Vec::new();
        for Bytes { all, of_sample } in &self.operands {
            let mut bytes = match of_sample {
                Some(bytes) => all[first * bytes..(first + count) * bytes].to_vec(),
                None => all.clone(),
            };
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            let buffer = device.alloc(bytes.len() as u64)?;
            device.write(&buffer, 0, &bytes)?;
            buffers.push(buffer);
        }
        let operand = |(slot, buffer): (&baracuda_ops::Slot, _)| -> Operand<'_> {
            match slot.access {
                Access::In => Mem::buffer(buffer, 0, slot.span_bytes).into(),
                _ => MemMut::buffer(buffer, 0, slot.span_bytes).into(),
            }
        };
        let mut operands: Vec<Operand<'_>> = plan.slots().iter().zip(&buffers).map(operand).collect();
        let workspace = device.alloc(plan.workspace().bytes)?;
        let mut queue = device.queue();
        plan.run(&mut queue, &mut operands, Workspace::new(&workspace))?;
        let mut outputs = BTreeMap::new();
        for (slot, buffer) in plan.slots().iter().zip(&buffers).filter(|(slot, _)| slot.access != Access::In) {
            let words = queue.download::<u32>(buffer)?;
            let mut bytes: Vec<u8> = bytemuck::cast_slice(&words).to_vec();
            bytes.truncate(usize::try_from(slot.span_bytes)?);
            outputs.insert(slot.name, bytes);
        }
        Ok(outputs)
    }

    /// What differs between samples of the whole batch and those of a batch of `count` from `first` on.
    fn difference(
        &self,
        whole: &BTreeMap<&'static str, Vec<u8>>,
        part: &BTreeMap<&'static str, Vec<u8>>,
        first: u64,
    ) -> Option<String> {
        let operands = (self.family.of)(1).ok()?;
        operands.slots().iter().find_map(|slot| {
            let (whole, part) = (whole.get(slot.name)?, part.get(slot.name)?);
            let of_sample = usize::try_from(slot.span_bytes).ok()?;
            let first = usize::try_from(first).ok()?;
            let expected = whole[first * of_sample..].chunks(of_sample);
            let at = part.chunks(of_sample).zip(expected).position(|(part, whole)| part != whole)?;
            let count = part.len() / of_sample;
            Some(format!(
                "{}: {} of sample {} has other bits in a batch of {count} than in the whole one",
                self.family.name,
                slot.name,
                first + at
            ))
        })
    }
}

/// Batches of other sizes, and samples at other places of them: the first, and how many.
fn parts(samples: u64) -> Vec<(u64, u64)> {
    let all = [(0, 1), (samples - 1, 1), (17, 1), (5, 2), (10, 3), (13, 7), (6, 33), (120, 33), (50, 200)];
    all.into_iter().filter(|(first, count)| first + count <= samples).collect()
}

/// Whether nothing but the missing promise, or f64 in shaders, is why a plan is refused.
fn is_refusal(error: &Error) -> bool {
    let is_known = |words: &str| words.contains("ask for run_to_run") || words.contains("f64");
    matches!(error, Error::Unsupported { tried, .. } if tried.iter().any(|rejection| is_known(&rejection.reason.to_string())))
}

/// The names of the families, in their order.
pub(super) fn names() -> Vec<String> {
    families().into_iter().map(|family| family.name).collect()
}

/// The law of a family on a device.
pub(super) fn same_bits(name: &str, device: &Device) -> Result<()> {
    let family = &families().into_iter().find(|family| family.name == name).context("no such family")?;
    let samples = SAMPLES[usize::from(device.is_software())];
    let batch = Batch::new(family, samples)?;
    let whole = batch.run((device, &invariant()), 0, samples);
    if family.refused_on.contains(&device.backend()) {
        let error = whole.err().context("it is served, where the promise is not given")?;
        ensure!(error.downcast_ref::<Error>().is_some_and(is_refusal), "{error:#}");
        return Ok(());
    }
    holds(&batch, (device, &invariant()), whole?, samples)?;
    // And of every other kernel that promises, asked for by its name.
    let descriptor = (family.of)(samples)?;
    let chosen = descriptor.supported_by(device, &invariant())?;
    for kernel in kernels(&descriptor, device.backend()).filter(|kernel| *kernel != chosen) {
        let options = invariant().kernel(kernel);
        if descriptor.supported_by(device, &options).is_ok() {
            let whole = batch.run((device, &options), 0, samples)?;
            holds(&batch, (device, &options), whole, samples).with_context(|| kernel)?;
        }
    }
    Ok(())
}

/// The kernels of an op on a backend.
fn kernels(descriptor: &AnyDescriptor, backend: Backend) -> impl Iterator<Item = &'static str> {
    let entry = OPS.iter().find(|entry| entry.name == descriptor.name());
    let kernels = entry.map(|entry| entry.kernels()).unwrap_or_default();
    kernels.into_iter().filter(move |(of, _)| *of == backend).map(|(_, name)| name)
}

/// Whether parts of a batch have the bits of the whole one.
fn holds(
    batch: &Batch<'_>,
    on: (&Device, &PlanOptions),
    whole: BTreeMap<&'static str, Vec<u8>>,
    samples: u64,
) -> Result<()> {
    ensure!(whole.values().any(|bytes| bytes.iter().any(|byte| *byte != 0)), "nothing was written");
    for (first, count) in parts(samples) {
        let part = batch.run(on, first, count)?;
        if let Some(difference) = batch.difference(&whole, &part, first) {
            bail!(difference);
        }
    }
    // A bit that differs is seen.
    let mut disturbed = whole.clone();
    if let Some(byte) = disturbed.values_mut().next().and_then(|bytes| bytes.last_mut()) {
        *byte ^= 1;
    }
    ensure!(batch.difference(&whole, &disturbed, 0).is_some(), "no bit is compared");
    Ok(())
}

/// What was chosen, without what may follow from the number of samples: the grid, whether launches overlap, the workspace, and loops over extents.
fn without_counts(words: &str) -> String {
    let mut kept = words.to_string();
    for name in
        ["launches ", "workspace ", "grid: ", "overlaps: ", "lets_next_overlap: ", "totals: ", "partials: ", "AXES "]
    {
        let parts: Vec<&str> = kept.split(name).collect();
        let mut joined = parts[0].to_string();
        for part in &parts[1..] {
            joined += part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '/');
        }
        kept = joined;
    }
    let is_grid = |word: &&str| {
        let word = word.trim_end_matches(';');
        word.split_once('x').is_some_and(|(x, y)| x.parse::<u64>().is_ok() && y.parse::<u64>().is_ok())
    };
    kept.split(' ').filter(|word| !is_grid(word)).collect::<Vec<_>>().join(" ")
}

/// No choice that is promised for depends on the number of samples, on any device.
pub(super) fn same_choices() -> Result<()> {
    for family in families().iter().filter(|family| !family.is_elementwise) {
        for props in DeviceProps::examples() {
            let is_expected = !family.refused_on.contains(&props.backend());
            let mut first: Option<(u64, String)> = None;
            for count in COUNTS {
                let words = match (family.of)(count)?.chosen_with(&props, &invariant()) {
                    Ok(words) => without_counts(&words),
                    Err(error) if !is_expected && is_refusal(&error) => "refused".into(),
                    Err(error) => bail!("{}, {count} samples on {props}: {error}", family.name),
                };
                ensure!(is_expected || words == "refused", "{} is served on {props}", family.name);
                match &first {
                    None => first = Some((count, words)),
                    Some((of, before)) if *before != words => {
                        bail!("{} on {props}: {of} samples: {before}\n{count} samples: {words}", family.name)
                    }
                    Some(_) => {}
                }
            }
        }
    }
    Ok(())
}

/// The kernels that promise, by op and backend: of the families on every kind of device.
fn promised() -> Result<BTreeMap<&'static str, BTreeMap<String, BTreeSet<&'static str>>>> {
    let mut table: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
    for family in families() {
        for props in DeviceProps::examples() {
            for count in COUNTS {
                let descriptor = (family.of)(count)?;
                let of_op = table.entry(descriptor.name()).or_default();
                let of_backend = of_op.entry(props.backend().to_string()).or_default();
                let promises =
                    |kernel: &&'static str| descriptor.supported_with(&props, &invariant().kernel(*kernel)).is_ok();
                of_backend.extend(kernels(&descriptor, props.backend()).filter(promises));
            }
        }
    }
    Ok(table)
}

/// The table of docs/numerics.md has what promises and nothing else, and no op promises that no family tests.
pub(super) fn table() -> Result<()> {
    let table = promised()?;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/numerics.md");
    let text = std::fs::read_to_string(path)?;
    let (_, section) =
        text.split_once("## The same bits in every batch").context("docs/numerics.md has no such section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let backends = ["cpu", "wgpu", "cuda"];
    let mut expected = String::new();
    for (op, of_op) in &table {
        let cells = backends.map(|backend| match of_op.get(backend) {
            None => None,
            Some(kernels) => Some(kernels.iter().map(|kernel| format!("`{kernel}`")).collect::<Vec<_>>().join(", ")),
        });
        let cells = cells.map(|cell| cell.map(|cell| if cell.is_empty() { "refused".into() } else { cell }));
        let row = section.lines().find(|line| line.starts_with(&format!("| `{op}` |")));
        let found: Vec<&str> = row.unwrap_or_default().split('|').map(str::trim).skip(2).take(3).collect();
        let same = cells.iter().zip(&found).all(|(cell, found)| cell.as_ref().is_none_or(|cell| cell == found));
        if found.len() < 3 || !same {
            let cells = cells.map(|cell| cell.unwrap_or_else(|| "(not in this build)".into()));
            expected += &format!("| `{op}` | {} |\n", cells.join(" | "));
        }
    }
    ensure!(expected.is_empty(), "docs/numerics.md must say under 'The same bits in every batch':\n{expected}");
    let rows = section.lines().filter(|line| line.starts_with("| `")).count();
    ensure!(rows == table.len(), "docs/numerics.md has {rows} rows of ops that promise, there are {}", table.len());

    for subject in SUBJECTS {
        for case in (subject.cases)().iter().step_by(11) {
            for props in DeviceProps::examples() {
                let is_served = case.descriptor.supported_with(&props, &invariant()).is_ok();
                let op = case.descriptor.name();
                // Where nothing is written, every op promises.
                let writes = |slot: &baracuda_ops::Slot| slot.access != Access::In && !slot.desc.is_empty();
                if is_served && case.descriptor.slots().iter().any(writes) {
                    ensure!(table.contains_key(op), "{op} promises on {props}, and nothing tests it: {}", case.line());
                }
            }
        }
    }
    Ok(())
}
