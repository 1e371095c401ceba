//! A case: a descriptor and the data it is run on.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Context, Result, ensure};
use baracuda_ops::{
    Access, AnyDescriptor, AnyPlan, Backend, DType, Device, DeviceProps, Error, OPS, PlanOptions, Slot,
};
use serde::de::IgnoredAny;

use crate::ops::{before_accumulation, has_elements, subject, with_all_outputs};
use crate::values::{Tensors, greatest, scatter};

/// What the main input looks like. Other operands are random where the op does not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// Standard normal.
    Normal,
    /// Mean 1000, standard deviation 0.1.
    LargeMean,
    /// 1000.1 everywhere.
    Constant,
    /// Standard normal but for one element of 10000 a row.
    Outlier,
    /// One NaN in the second row.
    Nan,
    /// One +infinity in the second row.
    Inf,
    /// One -infinity in the second row.
    NegInf,
    /// Numbers whose squares vanish.
    Tiny,
    /// Standard deviation 10000.
    Large,
    /// 50 in the first sixteenth of a row, or in the first 256 elements of a long one, then 0 with a standard deviation of 0.001: far from
    /// what moments in one pass are taken about.
    Step,
    /// Rows of the greatest magnitudes that the op takes: see [`Huge`].
    Huge,
    /// Seven of eight elements are 0, a third of those -0; the others are standard normal.
    Sparse,
    /// Neighbours as far apart as the type allows, subnormal numbers among them: see [`Wide`].
    Wide,
    /// Normal with a standard deviation of 1/64, and biases of one of 1000: sums that start at the bias are rounded at its magnitude.
    LargeBias,
    /// One number in the first half of a row, another of the other sign in the second: see [`Data::STRUCTURED`].
    Halves,
    /// From a number to its negative in equal steps.
    Ramp,
    /// One magnitude, with a sign that alternates from column to column: equal terms of sums along a column.
    Stripes,
    /// The numbers of `Halves` in turn, in each eighth of a row.
    Blocks,
}

/// Rows of [`Data::Huge`], of six kinds in turn: numbers near 1e9, numbers near 1e30, the least one throughout, the largest one throughout,
/// both at random, and a standard normal row a quarter of which is the least one, as masks write it. All are clipped to what the op takes.
#[derive(Clone, Copy, Debug)]
pub struct Huge {
    /// The greatest magnitude.
    pub largest: f64,
    /// The greatest magnitude of a row of one number.
    pub constant: f64,
}

impl Huge {
    /// Up to the greatest finite number of a type.
    pub fn of(dtype: DType) -> Self {
        Self { largest: greatest(dtype), constant: greatest(dtype) }
    }

    /// No more than these magnitudes of rows in general and of rows of one number.
    pub fn at_most(self, largest: f64, constant: f64) -> Self {
        let largest = self.largest.min(largest);
        Self { largest, constant: self.constant.min(constant).min(largest) }
    }

    fn value(self, row: u64, random: &mut Random) -> f64 {
        let normal = random.normal();
        let value = match row % 6 {
            0 => 1e9 * normal,
            1 => 1e30 * normal,
            2 => -self.constant,
            3 => self.constant,
            4 => self.largest.copysign(normal),
            // A quarter of all standard normal numbers is below this one.
            _ if normal < -0.6745 => -self.largest,
            _ => normal,
        };
        value.clamp(-self.largest, self.largest)
    }
}

/// Magnitudes of [`Data::Wide`], as powers of two from and to which they are spread evenly.
#[derive(Clone, Copy, Debug)]
pub struct Wide {
    large: [i32; 2],
    small: [i32; 2],
    /// One element of so many is small. They lie on diagonals, so that sums along rows and along columns have large terms.
    period: u64,
}

impl Wide {
    /// Of a product's first factor: every other element is small, down to the least subnormal number.
    pub fn first(dtype: DType) -> Self {
        let (large, small) = match dtype {
            DType::F16 => ([6, 14], [-24, -6]),
            DType::F64 => ([600, 800], [-1074, -600]),
            DType::BF16 => ([60, 100], [-133, -60]),
            _ => ([60, 100], [-149, -60]),
        };
        Self { large, small, period: 2 }
    }

    /// Of what the first factor is multiplied by: at most 1, so that the sums of their products are finite. One element of four is subnormal.
    pub fn second(dtype: DType) -> Self {
        let (large, small) = match dtype {
            DType::F16 => ([-6, 0], [-24, -14]),
            DType::F64 => ([-300, 0], [-1074, -1022]),
            DType::BF16 => ([-40, 0], [-133, -126]),
            _ => ([-40, 0], [-149, -126]),
        };
        Self { large, small, period: 4 }
    }

    /// `rows` rows of `cols` values.
    pub fn rows(self, rows: u64, cols: u64, random: &mut Random) -> Vec<f64> {
        let value = |i: u64| {
            let is_small = (i / cols + i % cols).is_multiple_of(self.period);
            let [from, to] = if is_small { self.small } else { self.large }.map(f64::from);
            let magnitude = (from + (to - from) * random.uniform()).exp2();
            magnitude.copysign(random.normal())
        };
        (0..rows * cols).map(value).collect()
    }
}

impl Data {
    /// Every kind that each op is given.
    pub const ALL: [Self; 11] = [
        Self::Normal,
        Self::LargeMean,
        Self::Constant,
        Self::Outlier,
        Self::Nan,
        Self::Inf,
        Self::NegInf,
        Self::Tiny,
        Self::Large,
        Self::Step,
        Self::Huge,
    ];

    /// Every further kind: those of the factors of products and convolutions.
    pub const OF_FACTORS: [Self; 3] = [Self::Sparse, Self::Wide, Self::LargeBias];

    /// Every further kind: those of the terms of sums whose roundings have one sign for as long as the sum grows in one direction, so that errors
    /// add up where those of random terms cancel. What a row begins with moves on from row to row, so that columns look like rows.
    pub const STRUCTURED: [Self; 4] = [Self::Halves, Self::Ramp, Self::Stripes, Self::Blocks];

    /// Every kind.
    pub fn every() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(Self::OF_FACTORS).chain(Self::STRUCTURED)
    }

    /// Whether it is one of [`Data::STRUCTURED`].
    pub fn is_structured(self) -> bool {
        Self::STRUCTURED.contains(&self)
    }

    /// The word for it in repro lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::LargeMean => "large_mean",
            Self::Constant => "constant",
            Self::Outlier => "outlier",
            Self::Nan => "nan",
            Self::Inf => "inf",
            Self::NegInf => "neg_inf",
            Self::Tiny => "tiny",
            Self::Large => "large",
            Self::Step => "step",
            Self::Huge => "huge",
            Self::Sparse => "sparse",
            Self::Wide => "wide",
            Self::LargeBias => "large_bias",
            Self::Halves => "halves",
            Self::Ramp => "ramp",
            Self::Stripes => "stripes",
            Self::Blocks => "blocks",
        }
    }

    /// Whether outputs may be the same number nearly everywhere.
    fn may_be_constant(self) -> bool {
        !matches!(self, Self::Normal | Self::Outlier)
    }

    /// `rows` rows of `cols` values.
    pub fn rows(self, dtype: DType, rows: u64, cols: u64, random: &mut Random) -> Vec<f64> {
        self.rows_within(Huge::of(dtype), dtype, rows, cols, random)
    }

    /// The same for an op that does not take every magnitude.
    pub fn rows_within(self, huge: Huge, dtype: DType, rows: u64, cols: u64, random: &mut Random) -> Vec<f64> {
        if self == Self::Wide {
            return Wide::first(dtype).rows(rows, cols, random);
        }
        if self.is_structured() {
            return self.structured_rows(dtype, rows, cols);
        }
        let tiny = match dtype {
            DType::F16 => 1e-7,
            DType::F64 => 1e-160,
            _ => 1e-30,
        };
        let step = if cols < 65536 { cols.div_ceil(16) } else { 256 };
        let mut values: Vec<f64> = (0..rows * cols)
            .map(|i| match self {
                Self::LargeMean => 1000.0 + 0.1 * random.normal(),
                Self::Constant => 1000.1,
                Self::Tiny => tiny * random.normal(),
                Self::Large => 10000.0 * random.normal(),
                Self::Step if i % cols < step => 50.0,
                Self::Step => 0.001 * random.normal(),
                Self::Huge => huge.value(i / cols, random),
                Self::LargeBias => random.normal() / 64.0,
                Self::Sparse => match random.uniform() {
                    share if share < 0.125 => random.normal(),
                    share if share < 0.41 => -0.0,
                    _ => 0.0,
                },
                _ => random.normal(),
            })
            .collect();
        let special = match self {
            Self::Nan => f64::NAN,
            Self::Inf => f64::INFINITY,
            Self::NegInf => f64::NEG_INFINITY,
            Self::Outlier => {
                for row in 0..rows * u64::from(cols > 0) {
                    values[(row * cols + (row * 7 + cols / 3) % cols) as usize] = 10000.0;
                }
                return values;
            }
            _ => return values,
        };
        let row = 1.min(rows.saturating_sub(1));
        if let Some(value) = values.get_mut((row * cols + cols / 2) as usize) {
            *value = special;
        }
        values
    }

    /// Rows of structured data. The sums of the two numbers, times what [`equal_factor`] gives, are rounded in one direction in f32.
    fn structured_rows(self, dtype: DType, rows: u64, cols: u64) -> Vec<f64> {
        let [first, second] = if dtype.size_bytes() == 2 { [1.0, -0.69921875] } else { [0.1, -0.07] };
        let value = |i: u64| {
            let (row, col) = (i / cols, i % cols);
            // How far along its row an element is, further by one row's share from row to row.
            let along = ((col * rows + row * cols) % (rows * cols)) as f64 / (rows * cols) as f64;
            match self {
                Self::Ramp => first * (1.0 - 2.0 * along),
                Self::Stripes if col.is_multiple_of(2) => first,
                Self::Stripes => -first,
                Self::Blocks if ((8.0 * along) as u64).is_multiple_of(2) => first,
                Self::Halves if along < 0.5 => first,
                _ => second,
            }
        };
        (0..rows * cols).map(value).collect()
    }
}

/// What structured data are multiplied with: one number throughout.
pub fn equal_factor(dtype: DType) -> f64 {
    if dtype.size_bytes() == 2 { 0.1 } else { 1.1 }
}

/// A number that depends on a text alone (FNV-1a).
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Random numbers that are the same on every machine.
pub struct Random(fastrand::Rng);

impl Random {
    /// From a text, such as a repro line.
    pub fn of(text: &str) -> Self {
        Self(fastrand::Rng::with_seed(hash(text)))
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.0.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.0.f64()).cos()
    }

    /// From 0 to before 1, evenly.
    pub fn uniform(&mut self) -> f64 {
        self.0.f64()
    }
}

/// The most bytes that a case of a user may take, by [`Case::judged_bytes`]: a few numbers can ask for all the memory there is.
pub const MOST_BYTES: u64 = 8 << 30;

/// Bytes of an element's value, and of its budget.
const VALUE_BYTES: u64 = 8;

/// What stands before the JSON of options in a repro line.
const OPTIONS: &str = "options=";

/// Bytes of the JSON object with which a text begins.
fn json_length(text: &str) -> Result<usize> {
    ensure!(text.starts_with('{'), "must be a JSON object, begins with {:?}", text.chars().next().unwrap_or(' '));
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next().transpose()?;
    Ok(values.byte_offset())
}

/// A descriptor, what is asked of its plan, and the data it is run on.
#[derive(Clone)]
pub struct Case {
    /// The descriptor.
    pub descriptor: AnyDescriptor,
    /// What is asked of the plan.
    pub options: PlanOptions,
    /// The data.
    pub data: Data,
    /// Runs in every mode; the others in `values` only, on CUDA also in `bitwise`.
    pub is_core: bool,
    /// A layout that only the CPU serves.
    pub is_cpu_only: bool,
    /// Outputs may be the same number nearly everywhere.
    pub may_be_constant: bool,
}

impl Case {
    /// A case that does not run in every mode.
    pub fn new(descriptor: AnyDescriptor, data: Data) -> Self {
        let subject = subject(descriptor.name()).ok();
        let is_cpu_only = subject.is_some_and(|s| (s.is_cpu_only)(&descriptor));
        let may_be_constant = data.may_be_constant() || subject.is_some_and(|s| (s.may_be_constant)(&descriptor));
        let options = PlanOptions::default();
        Self { descriptor, options, data, is_core: false, is_cpu_only, may_be_constant }
    }

    /// The same case, planned with these options.
    pub fn with(self, options: PlanOptions) -> Self {
        Self { options, ..self }
    }

    /// A plan of it.
    ///
    /// # Errors
    /// The library's.
    pub fn plan(&self, device: &Device) -> Result<AnyPlan, Error> {
        self.descriptor.plan(device, &self.options)
    }

    /// The same case, in every mode or not.
    pub fn core(self, is_core: bool) -> Self {
        Self { is_core, ..self }
    }

    /// The repro line: op, JSON, the data unless it is normal, and the options unless they are the default.
    pub fn line(&self) -> String {
        let line = self.data_line();
        if self.options == PlanOptions::default() {
            return line;
        }
        // Options hold words and numbers only, which always serialise.
        format!("{line} {OPTIONS}{}", serde_json::to_string(&self.options).unwrap_or_default())
    }

    /// What the data follows from: every kernel is given the same.
    fn data_line(&self) -> String {
        let line = self.descriptor.line();
        if self.data == Data::Normal { line } else { format!("{line} {}", self.data.name()) }
    }

    /// The case of a repro line, `op {descriptor} [data] [options={..}]`, or of a trial's name. Errors name the byte of the line where what
    /// is wrong begins, counted from 1.
    pub fn parse(line: &str) -> Result<Self> {
        let start =
            line.find(" {").with_context(|| format!("{line:?} is no repro line: an op, a space, its JSON"))? + 1;
        let op = line[..start].trim().rsplit('/').next().unwrap_or_default();
        let length = json_length(&line[start..]).with_context(|| format!("byte {}: the descriptor", start + 1))?;
        let descriptor = AnyDescriptor::parse(op, &line[start..start + length])?;

        let mut at = start + length;
        let mut data = None;
        while let Some(skipped) = line[at..].find(|c: char| !c.is_whitespace()) {
            ensure!(skipped > 0, "byte {}: a space is missing", at + 1);
            at += skipped;
            let rest = &line[at..];
            if let Some(json) = rest.strip_prefix(OPTIONS) {
                let of_json = at + OPTIONS.len();
                let length = json_length(json).with_context(|| format!("byte {}: the options", of_json + 1))?;
                let options = serde_json::from_str(&json[..length]);
                let options = options.with_context(|| format!("byte {}: the options", of_json + 1))?;
                let after = json[length..].trim();
                ensure!(after.is_empty(), "byte {}: nothing follows the options, got {after:?}", of_json + length + 1);
                return Ok(Self::new(descriptor, data.unwrap_or(Data::Normal)).with(options));
            }
            let word = rest.split_whitespace().next().unwrap_or_default();
            let known = || Data::every().map(Data::name).collect::<Vec<_>>().join(", ");
            ensure!(data.is_none(), "byte {}: after the data only options={{..}} may follow, got {word:?}", at + 1);
            data = Data::every().find(|d| d.name() == word);
            ensure!(data.is_some(), "byte {}: unknown data {word:?}; known: {}", at + 1, known());
            at += word.len();
        }
        Ok(Self::new(descriptor, data.unwrap_or(Data::Normal)))
    }

    /// The slots.
    pub fn slots(&self) -> &[Slot] {
        self.descriptor.slots()
    }

    /// Whether elements of some input lie between one another though none is repeated, so that no order of its extents is that of memory.
    pub fn interleaves(&self) -> bool {
        let is_repeated =
            |slot: &Slot| slot.desc.dims().iter().zip(slot.desc.strides()).any(|(d, s)| *d > 1 && *s == 0);
        self.slots().iter().any(|slot| !slot.desc.is_injective() && !is_repeated(slot))
    }

    /// Bytes that a judged run takes: those of the operands in memory, of their values in f64, and of the values and budgets expected of what
    /// the op writes. The reference writes the statistics of a norm and the pre-activation of a product whether or not the case asks for them,
    /// and there may be many rows of no columns. `None` from 2^64 on.
    pub fn judged_bytes(&self) -> Option<u64> {
        let of = |slots: &[Slot], bytes: &dyn Fn(&Slot) -> Option<u64>| {
            slots.iter().try_fold(0u64, |sum, slot| sum.checked_add(bytes(slot)?))
        };
        let operands =
            of(self.slots(), &|slot| slot.span_bytes.checked_add(slot.desc.elements().checked_mul(VALUE_BYTES)?))?;
        if !has_elements(&self.descriptor) {
            return Some(operands);
        }
        let expected = of(with_all_outputs(&self.descriptor).slots(), &|slot| match slot.access {
            Access::In => Some(0),
            _ => slot.desc.elements().checked_mul(2 * VALUE_BYTES),
        })?;
        operands.checked_add(expected)
    }

    /// Refuses a case whose run would take more than [`MOST_BYTES`].
    ///
    /// # Errors
    /// How much it would take.
    pub fn fits(&self) -> Result<()> {
        let bytes = self.judged_bytes();
        ensure!(
            bytes.is_some_and(|bytes| bytes <= MOST_BYTES),
            "the operands, their values and what is expected of them take {} bytes; at most {MOST_BYTES} are run",
            bytes.map_or("2^64 or more".into(), |bytes| bytes.to_string())
        );
        Ok(())
    }

    /// Bytes of all operands.
    pub fn bytes(&self) -> u64 {
        self.slots().iter().map(|s| s.span_bytes).sum()
    }

    /// Whether it asks for a kernel that this build has none of on the backend.
    pub fn is_pinned_elsewhere(&self, backend: Backend) -> bool {
        let Some(name) = self.options.kernel.as_deref() else { return false };
        let op = OPS.iter().find(|op| op.name == self.descriptor.name());
        !op.is_some_and(|op| op.kernels().contains(&(backend, name)))
    }

    /// Whether it asks for a kernel whose instructions only devices of compute capability 9.0 have.
    pub fn is_pinned_to_sm_90a(&self) -> bool {
        self.options.kernel.as_deref().is_some_and(|name| ["_wgmma", "_stream"].iter().any(|form| name.ends_with(form)))
    }

    /// Whether it asks for a kernel of a family by name.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        allow(dead_code, reason = "only GPUs lack what some kernels need")
    )]
    fn is_pinned_to(&self, family: &str, kernel: &str) -> bool {
        self.options.kernel.as_deref().is_some_and(|name| name.starts_with(family) && name.ends_with(kernel))
    }

    /// Whether it asks for a norm's kernel that needs clusters, or copies of the bulk copy engine: those of compute capability 9.0.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only CUDA devices have compute capabilities"))]
    fn is_pinned_to_clusters(&self) -> bool {
        const FORMS: [&str; 4] = ["_relay", "_held", "_channels_last_cluster", "_norm_channels_last_rows"];
        const ROW_FORMS: [&str; 4] =
            ["norm_ring", "norm_backward_ring", "norm_cooperative", "norm_backward_cooperative"];
        let is_one_of = |forms: &[&str]| {
            self.options.kernel.as_deref().is_some_and(|name| forms.iter().any(|form| name.ends_with(form)))
        };
        is_one_of(&FORMS) || is_one_of(&ROW_FORMS)
    }

    /// Whether a device that refuses the case with this error may do so: it names a limit of the device that the case exceeds, and with as much as
    /// devices have at most the device serves it. Such a limit is the shared memory of a block, of which some forms of norms take what an A100
    /// lacks, the number of workgroups, of which `wgpu-plain` has few, and that of storage buffers, of which programs may have 24 and WebGPU promises 8.
    pub fn may_be_refused_on(&self, device: &DeviceProps, error: &Error) -> bool {
        let Error::Unsupported { tried, .. } = error else { return false };
        let name = self.options.kernel.as_deref();
        let exceeded: Option<(DeviceProps, &str)> = match device {
            #[cfg(feature = "cuda")]
            DeviceProps::Cuda(props) => {
                // A block of an A100 has 163 KiB, with which every form has room for the shapes of the cases; one of an H200 has 227 KiB.
                const ENOUGH: u32 = 128 << 10;
                const MOST: u32 = 227 << 10;
                const FORMS: [&str; 7] =
                    ["_ring", "_cooperative", "_persistent", "_resident", "_slabs", "_rows_shared", "_few_channels"];
                let takes_memory = name.is_some_and(|name| FORMS.iter().any(|form| name.ends_with(form)));
                (props.shared_bytes < ENOUGH && takes_memory).then(|| {
                    let mut larger = props.clone();
                    larger.shared_bytes = MOST;
                    (DeviceProps::Cuda(larger), "shared memory")
                })
            }
            #[cfg(feature = "wgpu")]
            DeviceProps::Wgpu(props) => {
                // Of one dimension; every adapter has them.
                const GROUPS: u32 = 65_535;
                // Of the inputs and outputs of a program.
                const BUFFERS: u32 = 24;
                let has_few_buffers = self.slots().len() > props.max_storage_buffers as usize;
                let limit = if has_few_buffers { "storage buffers, the limit" } else { "workgroups, the limit" };
                (has_few_buffers || props.max_groups < GROUPS).then(|| {
                    let mut larger = props.clone();
                    larger.max_groups = larger.max_groups.max(GROUPS);
                    larger.max_storage_buffers = larger.max_storage_buffers.max(BUFFERS);
                    (DeviceProps::Wgpu(larger), limit)
                })
            }
            _ => None,
        };
        let Some((larger, limit)) = exceeded else { return false };
        let is_named = tried
            .iter()
            .any(|tried| name.is_none_or(|name| name == tried.kernel) && tried.reason.to_string().contains(limit));
        is_named && self.descriptor.supported_with(&larger, &self.options).is_ok()
    }

    /// Whether a device must refuse the case.
    pub fn must_be_refused_on(&self, device: &DeviceProps) -> bool {
        let lacks_kernel = match device {
            #[cfg(feature = "cuda")]
            DeviceProps::Cuda(props) => {
                let least_cluster = |form: &str| if form == "softmax_backward" { 16 } else { 4 };
                let lacks_cluster =
                    |form: &str| props.cluster < least_cluster(form) && self.is_pinned_to(form, "rows_shared");
                (!props.sm_90a && self.is_pinned_to_sm_90a())
                    || ["softmax_rows", "softmax_backward"].into_iter().any(lacks_cluster)
                    || (props.capability < 90 && self.is_pinned_to_clusters())
            }
            #[cfg(feature = "wgpu")]
            DeviceProps::Wgpu(props) => props.max_threads < 1024 && self.is_pinned_to("softmax", "rows_twice"),
            _ => false,
        };
        lacks_kernel || self.must_be_refused_by(device.backend())
    }

    /// Whether a backend must refuse the case.
    pub fn must_be_refused_by(&self, backend: Backend) -> bool {
        if self.is_pinned_elsewhere(backend) {
            return true;
        }
        match backend {
            Backend::Cpu => false,
            Backend::Cuda => self.is_cpu_only,
            Backend::Wgpu => self.is_cpu_only || self.is_beyond_words(),
        }
    }

    /// Whether it computes with types that WGSL lacks, or counts further than its words of 32 bits do.
    fn is_beyond_words(&self) -> bool {
        // Moves and orders take elements of 8 bytes as two words.
        let is_scatter = ["index_add", "scatter"].contains(&self.descriptor.name());
        let is_move = ["copy", "pad", "concat", "index_select", "gather", "nonzero", "sort", "top_k", "search_sorted"]
            .contains(&self.descriptor.name())
            || (is_scatter && self.descriptor.line().contains(r#""combine":"set""#));
        let is_program = self.descriptor.name() == "pointwise";
        let lacks = |dtype| match dtype {
            DType::F64 => !is_move,
            DType::I64 | DType::F8E4M3 | DType::F8E5M2 => is_program,
            _ => false,
        };
        // What is combined has no elements of 64 bits; indices may have.
        let combines_long = is_scatter && !is_move && self.dtype() == DType::I64;
        // Reductions write integers of 8 bytes as two words, but products of integers, and read none.
        let is_product = || {
            let line = self.descriptor.line();
            line.contains(r#":"prod""#) && !line.contains(r#""lt""#)
        };
        let is_long_reduction = self.descriptor.name() == "reduce"
            && self.slots().iter().any(|slot| slot.desc.dtype() == DType::I64)
            && self
                .slots()
                .iter()
                .filter(|slot| slot.access == Access::In)
                .any(|slot| slot.desc.dtype() == DType::I64 || (slot.desc.dtype().is_integer() && is_product()));
        // Scans write indices of 64 bits as two words.
        let is_number = |s: &Slot| self.descriptor.name() == "scan" && s.name != "indices";
        let lacks_wide = |s: &Slot| s.desc.dtype() == DType::I64 && is_number(s);
        // Indices out of range are counted along axes whose positions 32 bits tell apart.
        let named = if is_scatter { self.slots().iter().find(|slot| slot.name == "y") } else { self.slots().first() };
        let counts_beyond_words = self.descriptor.name() != "cross_entropy"
            && self.slots().iter().any(|slot| slot.name == "missing")
            && named.map_or(&[][..], |slot| slot.desc.dims()).iter().any(|&dim| dim > u64::from(u32::MAX));
        is_long_reduction
            || combines_long
            || counts_beyond_words
            || self.slots().iter().any(|s| lacks(s.desc.dtype()) || lacks_wide(s))
    }

    /// The element type that names the case in tables: that of the first operand.
    pub fn dtype(&self) -> DType {
        self.slots()[0].desc.dtype()
    }

    /// The inputs, exact in their types, equal where a layout repeats an element. `round` tells several sets of one case apart.
    pub fn inputs(&self, round: u32) -> Result<Tensors> {
        let subject = subject(self.descriptor.name())?;
        let mut inputs = Tensors::default();
        for slot in self.slots().iter().filter(|s| s.access != Access::Out) {
            let mut random = Random::of(&format!("{} {} {round}", self.data_line(), slot.name));
            let values = match before_accumulation(&self.descriptor, slot, &mut random)? {
                Some(before) => before,
                None => (subject.input)(self, slot, &mut random, &inputs)?,
            };
            // Through memory: rounds, and lets repeated elements agree.
            let mut bytes = vec![0; slot.span_bytes as usize];
            scatter(&slot.desc, &values, &mut bytes);
            if slot.desc.dtype() == DType::I64 {
                // Values of f64 leave the last bits of large integers 0.
                for bytes in bytes.as_chunks_mut().0 {
                    let value = i64::from_le_bytes(*bytes);
                    let low = if value.unsigned_abs() >> 53 == 0 { 0 } else { value >> 20 & 0x3ff };
                    *bytes = (value ^ low).to_le_bytes();
                }
            }
            inputs.push_bytes(slot.name, &slot.desc, &bytes);
        }
        Ok(inputs)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

/// Keeps the first of equal cases; it runs in every mode if one of them does.
pub fn distinct(cases: Vec<Case>) -> Vec<Case> {
    let mut seen = HashMap::new();
    let mut kept: Vec<Case> = Vec::new();
    for case in cases {
        let at = *seen.entry(case.line()).or_insert(kept.len());
        match kept.get_mut(at) {
            Some(first) => first.is_core |= case.is_core,
            None => kept.push(case),
        }
    }
    kept
}
