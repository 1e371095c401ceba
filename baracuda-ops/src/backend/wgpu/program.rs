//! A plan's dispatches, and how operands become bindings.
//!
//! A binding starts at a multiple of the device's alignment at or before its operand; the shader gets the words in between as an offset. wgpu
//! tracks uses by buffer: if ranges of one buffer are read and another one of it is written, all of them are bound for reading and writing.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

use super::device::{Device, MAX_BINDINGS, Pipeline, Props};
use super::queue::Queue;
use super::text::{MAX_IMMEDIATE_BYTES, Numbers, OperandText, Source};
use crate::backend::{Located, Location};
use crate::error::{Error, Result, Start};
use crate::narrow::word;
use crate::slots::{Names, WORKSPACE};

/// Words that a kernel loads and stores at once as a chunk.
const CHUNK_WORDS: u32 = 4;

/// Where a binding's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the operand of a row of the family's table.
    Operand(usize),
    /// In the operand of a slot of a set after the first, with its name.
    OfSet(usize, &'static str),
    /// In a range of that operand.
    Piece { index: usize, offset: u64, bytes: u64 },
    /// In a range of the workspace, which starts at a multiple of [`Props::workspace_align`].
    Workspace { offset: u64, bytes: u64 },
}

/// One operand of a dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    pub(crate) name: &'static str,
    /// `None` for an operand that the descriptor does not declare.
    pub(crate) place: Option<Place>,
    /// Two accessors: for runs in which every operand's chunks are aligned, and for runs in which an operand starts at any word.
    pub(crate) accessors: [&'static str; 2],
}

impl Binding {
    /// An operand that takes no binding: it is not declared, or this dispatch does not use it.
    pub(crate) fn absent(name: &'static str, accessor: &'static str) -> Self {
        Self { name, place: None, accessors: [accessor; 2] }
    }

    fn is_written(&self) -> bool {
        !self.accessors[0].ends_with("_in")
    }

    /// The operand if the dispatch uses it, otherwise an absent one.
    pub(crate) fn bound_if(self, is_used: bool, absent: &'static str) -> Self {
        if is_used { self } else { Self::absent(self.name, absent) }
    }

    /// Partial results in a range of the workspace; absent where there are none.
    pub(crate) fn partials(name: &'static str, offset: u64, bytes: u64, accessor: &'static str) -> Self {
        match bytes {
            0 => Self::absent(name, "absent_partials"),
            _ => Self { name, place: Some(Place::Workspace { offset, bytes }), accessors: [accessor; 2] },
        }
    }
}

/// The `Params` of a shader, as bytes: its fields in the order of the WGSL struct, each with its type and its value.
macro_rules! params {
    ($($field:ident: $ty:ty = $value:expr,)*) => {{
        #[repr(C)]
        #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        struct Params {
            $($field: $ty,)*
        }

        const _: () = assert!(size_of::<Params>().is_multiple_of(16), "a uniform is whole vectors");
        bytemuck::bytes_of(&Params { $($field: $value,)* }).to_vec()
    }};
}
pub(crate) use params;

/// What a dispatch is made from.
#[derive(Clone, Default)]
pub(crate) struct StepBuilder {
    pub(crate) entry: &'static str,
    /// Files of the text, whatever the accessors.
    pub(crate) files: Vec<&'static str>,
    /// As [`Source::generated`].
    pub(crate) generated: String,
    pub(crate) constants: Vec<(&'static str, u32)>,
    pub(crate) flags: Vec<(&'static str, bool)>,
    pub(crate) bindings: Vec<Binding>,
    /// Whether all chunks are aligned if the operands' first elements are.
    pub(crate) can_chunk: bool,
    /// Whether the text for any word is the same whatever the layouts.
    pub(crate) ignores_layouts: bool,
    /// The `Params` of the text.
    pub(crate) params: Vec<u8>,
    /// As [`Source::keeps_uniform`].
    pub(crate) keeps_uniform: bool,
    pub(crate) grid: [u32; 2],
    /// For runs in which an output lies in the place of an input: the params and grids of the dispatches that replace this one. A grid of [`NO_GROUPS`] is none.
    pub(crate) in_place: Vec<(Vec<u8>, [u32; 2])>,
}

/// The grid of a dispatch that there is no need for.
pub(crate) const NO_GROUPS: [u32; 2] = [0; 2];

impl StepBuilder {
    /// A dispatch without operands, constants and flags.
    pub(crate) fn new(entry: &'static str, files: Vec<&'static str>, params: Vec<u8>, grid: [u32; 2]) -> Self {
        Self { entry, files, params, grid, ..Self::default() }
    }

    /// The text for aligned chunks, or the one for operands at any word.
    pub(crate) fn source(&self, is_chunked: bool) -> Source {
        let accessor = |b: &Binding| b.accessors[usize::from(!is_chunked)];
        let mut flags = self.flags.clone();
        // It depends on the layouts, not on the addresses, so that both texts compute the same bits.
        if !self.ignores_layouts {
            flags.push(("WHOLE_CHUNKS", self.can_chunk));
        }
        Source {
            entry: self.entry,
            files: self.files.clone(),
            generated: self.generated.clone(),
            constants: self.constants.clone(),
            flags,
            operands: self.bindings.iter().map(|b| OperandText { name: b.name, accessor: accessor(b) }).collect(),
            params_bytes: self.params.len() as u64,
            keeps_uniform: self.keeps_uniform,
        }
    }

    /// The entry, the grid, the constants, and the flags that are set.
    pub(crate) fn words(&self) -> String {
        let constants = self.constants.iter().map(|(name, value)| format!(" {name} {value}"));
        let flags = self.flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| format!(" {name}"));
        let numbers: String = constants.chain(flags).collect();
        format!("{} {}x{}{numbers}", self.entry, self.grid[0], self.grid[1])
    }

    /// The entry and the files of its texts.
    pub(crate) fn form(&self) -> String {
        format!("{}: {}", self.entry, self.files.join(" "))
    }

    /// Whether it writes anything: an operand, or partial results.
    pub(crate) fn writes(&self) -> bool {
        self.bindings.iter().any(|binding| binding.place.is_some() && binding.is_written())
    }

    /// The texts: for aligned chunks, if the layouts have them, and for operands at any word.
    fn sources(&self) -> impl Iterator<Item = Source> {
        let forms: &[bool] = if self.can_chunk { &[true, false] } else { &[false] };
        forms.iter().map(|&is_chunked| self.source(is_chunked))
    }

    /// `forms`: the pipelines of its texts.
    fn build(self, device: &Device, forms: Vec<[Pipeline; 2]>) -> Result<Step> {
        let mut bindings = Vec::with_capacity(self.bindings.len());
        for binding in &self.bindings {
            if let Some(place) = binding.place {
                let [chunked, words] =
                    binding.accessors.map(|accessor| OperandText { name: binding.name, accessor }.element_bytes());
                bindings.push(Use { place, is_written: binding.is_written(), has_chunks: chunked > words });
            }
        }
        let is_immediate = forms.iter().flatten().all(|pipeline| pipeline.numbers == Numbers::Immediate);
        let dispatch = |(params, grid): &(Vec<u8>, [u32; 2])| {
            let params = match is_immediate {
                true => Params::Immediate(params.as_slice().into()),
                false => Params::Uniform(device.params(params)?),
            };
            Ok(Dispatch { params, grid: *grid })
        };
        let whole = dispatch(&(self.params, self.grid))?;
        let in_place = self.in_place.iter().map(dispatch).collect::<Result<_>>()?;
        Ok(Step { forms, bindings, whole, in_place })
    }
}

/// The dispatches of a plan, in order: a handle, so that what is recorded keeps them.
#[derive(Clone, Debug)]
pub(crate) struct Program(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    device: Device,
    steps: Vec<Step>,
}

impl Deref for Program {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// One dispatch, or a few with the same operands.
#[derive(Debug)]
struct Step {
    /// For aligned chunks, if the layouts have them, and for operands at any word; each with inputs that are only read, and with all operands bound
    /// for reading and writing.
    forms: Vec<[Pipeline; 2]>,
    bindings: Vec<Use>,
    whole: Dispatch,
    /// The dispatches that replace it where an output lies in the place of an input; mostly none.
    in_place: Vec<Dispatch>,
}

#[derive(Debug)]
struct Dispatch {
    params: Params,
    grid: [u32; 2],
}

/// The `Params` of the text.
#[derive(Debug)]
enum Params {
    Immediate(Box<[u8]>),
    Uniform(Arc<::wgpu::Buffer>),
}

#[derive(Clone, Copy, Debug)]
struct Use {
    place: Place,
    is_written: bool,
    has_chunks: bool,
}

impl Program {
    pub(crate) fn new(device: &Device, steps: Vec<StepBuilder>) -> Result<Self> {
        device.alive()?;
        let sources: Vec<Source> = steps.iter().flat_map(StepBuilder::sources).collect();
        let mut pipelines = device.pipelines(&sources)?.into_iter();
        let build = |step: StepBuilder| {
            let forms = pipelines.by_ref().take(1 + usize::from(step.can_chunk)).collect();
            step.build(device, forms)
        };
        let steps = steps.into_iter().map(build).collect::<Result<_>>()?;
        Ok(Self(Arc::new(Inner { device: device.clone(), steps })))
    }

    /// Encodes the steps of a run.
    pub(super) fn encode<S: Borrow<BoundStep>>(
        &self,
        bound: impl Iterator<Item = S>,
        pass: &mut ::wgpu::ComputePass<'_>,
    ) {
        let Inner { device, steps } = &*self.0;
        let has_immediates = device.props().has_immediates();
        for bound in bound {
            let BoundStep { at, part, group, form, offsets } = bound.borrow();
            let step = &steps[*at];
            pass.set_pipeline(&step.pipeline(*form).pipeline);
            pass.set_bind_group(0, group, &[]);
            let Dispatch { params, grid: [x, y] } = &step.dispatches(*form)[*part];
            let offsets: &[u8] = bytemuck::cast_slice(&offsets[..step.bindings.len()]);
            match params {
                Params::Immediate(params) => {
                    let mut immediates = [0; MAX_IMMEDIATE_BYTES as usize];
                    let bytes = params.len() + offsets.len();
                    immediates[..params.len()].copy_from_slice(params);
                    immediates[params.len()..bytes].copy_from_slice(offsets);
                    pass.set_immediates(0, &immediates[..bytes]);
                }
                Params::Uniform(_) if has_immediates && !offsets.is_empty() => pass.set_immediates(0, offsets),
                Params::Uniform(_) => {}
            }
            pass.dispatch_workgroups(*x, *y, 1);
        }
    }

    /// The steps whose operands have elements, with the ranges that they bind.
    fn resolved<'a>(&'a self, located: &Located<'a>) -> impl Iterator<Item = Resolved<'a>> {
        self.steps.iter().filter_map(move |step| {
            let mut resolved = Resolved::new(step);
            resolved.locate(self.device.props(), located).then_some(resolved)
        })
    }
}

/// The bindings of one step for given operands.
struct Resolved<'a> {
    step: &'a Step,
    ranges: [Option<Range<'a>>; MAX_BINDINGS],
    /// Words from the start of each binding to its operand.
    offsets: [u32; MAX_BINDINGS],
    form: Form,
}

#[derive(Clone, Copy)]
struct Range<'a> {
    buffer: &'a ::wgpu::Buffer,
    start: u64,
    bytes: u64,
}

impl<'a> Range<'a> {
    fn binding(&self) -> ::wgpu::BufferBinding<'a> {
        let size = ::wgpu::BufferSize::new(self.bytes);
        ::wgpu::BufferBinding { buffer: self.buffer, offset: self.start, size }
    }
}

/// Which of a step's pipelines and dispatches serve its operands.
#[derive(Clone, Copy, Debug)]
struct Form {
    has_whole_chunks: bool,
    /// Whether a buffer of which a range is written has another that is read.
    is_shared: bool,
    /// Whether both start at the same place.
    is_in_place: bool,
}

impl Step {
    fn pipeline(&self, form: Form) -> &Pipeline {
        // For aligned chunks the first, for any word the last, which may be the same.
        let at = if form.has_whole_chunks { 0 } else { self.forms.len() - 1 };
        &self.forms[at][usize::from(form.is_shared)]
    }

    fn dispatches(&self, form: Form) -> &[Dispatch] {
        if form.is_in_place && !self.in_place.is_empty() { &self.in_place } else { std::slice::from_ref(&self.whole) }
    }
}

impl<'a> Resolved<'a> {
    /// A step whose operands are not located yet.
    #[inline]
    fn new(step: &'a Step) -> Self {
        let form = Form { has_whole_chunks: true, is_shared: false, is_in_place: false };
        Self { step, ranges: [None; MAX_BINDINGS], offsets: [0; MAX_BINDINGS], form }
    }

    /// Finds the bindings, in place; false if an operand has no elements.
    fn locate(&mut self, props: &Props, located: &Located<'a>) -> bool {
        let align = props.workspace_align();
        for (i, binding) in self.step.bindings.iter().enumerate() {
            let (location, skipped, part) = match binding.place {
                Place::Operand(index) | Place::OfSet(index, _) => (located.at(index), 0, None),
                Place::Piece { index, offset, bytes } => (located.at(index), offset, Some(bytes)),
                Place::Workspace { offset, bytes } => (&located.workspace, offset, Some(bytes)),
            };
            let Location { buffer: Some(buffer), start: offset, end, .. } = *location else { return false };
            let (first, bytes) = (offset + skipped, end - offset);
            // Alignments are powers of two.
            let start = first & !(align - 1);
            let words = word((first - start) / 4);
            let bytes = (first - start + part.unwrap_or(bytes)).next_multiple_of(4);
            self.form.has_whole_chunks &= !binding.has_chunks || words.is_multiple_of(CHUNK_WORDS);
            for (at, other) in self.step.bindings[..i].iter().enumerate() {
                let Some(range) = &self.ranges[at] else { continue };
                if other.is_written != binding.is_written && range.buffer == buffer {
                    self.form.is_shared = true;
                    self.form.is_in_place |= range.start + 4 * u64::from(self.offsets[at]) == first;
                }
            }
            self.ranges[i] = Some(Range { buffer, start, bytes });
            self.offsets[i] = words;
        }
        true
    }

    /// The operand of a binding, for errors.
    fn operand(&self, binding: usize, names: Names) -> &'static str {
        match self.step.bindings[binding].place {
            Place::Operand(index) | Place::Piece { index, .. } => names.table[index].name,
            Place::OfSet(_, name) => name,
            Place::Workspace { .. } => WORKSPACE,
        }
    }

    /// The bind group of a dispatch. `offsets` is the uniform that holds them where there are no immediates.
    fn bind_group(&self, device: &Device, params: &Params, offsets: Option<&::wgpu::Buffer>) -> ::wgpu::BindGroup {
        let params = match params {
            Params::Uniform(buffer) => Some(&**buffer),
            Params::Immediate(_) => None,
        };
        let whole = |buffer| ::wgpu::BufferBinding { buffer, offset: 0, size: None };
        // Number 0 is that of params, also where they take no binding.
        let first = usize::from(params.is_none());
        let count = 1 - first + self.step.bindings.len() + usize::from(offsets.is_some());
        // In place, without the heap: past `count` they are not used.
        let entries: [_; MAX_BINDINGS + 2] = std::array::from_fn(|i| {
            let number = first + i;
            let binding = match number.checked_sub(1).and_then(|at| self.ranges.get(at).copied().flatten()) {
                Some(range) => range.binding(),
                None => whole(if number == 0 { params } else { offsets }.unwrap_or(&device.no_offsets)),
            };
            ::wgpu::BindGroupEntry { binding: word(number as u64), resource: ::wgpu::BindingResource::Buffer(binding) }
        });
        device.device.create_bind_group(&::wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.step.pipeline(self.form).layout,
            entries: &entries[..count],
        })
    }
}

/// Records the plan's dispatches.
pub(crate) fn enqueue(program: &Program, queue: &mut Queue<'_>, names: Names, located: &Located<'_>) -> Result<()> {
    let device = &program.device;
    let props = device.props();
    let no_offsets = if props.has_immediates() {
        None
    } else {
        program.resolved(located).try_for_each(|resolved| demand_aligned(&resolved, props, names))?;
        Some(&device.no_offsets)
    };
    let mut steps = std::mem::take(&mut queue.steps);
    let bound = bind_steps(program, names, located, |_| no_offsets, &mut steps);
    if bound.is_ok() {
        queue.record(program, steps.drain(..));
    }
    steps.clear();
    queue.steps = steps;
    bound
}

/// Adds the steps of a program with their bind groups; `offsets` gives the uniform with a step's offsets where there are no immediates. No
/// step can fail after an earlier one has been recorded, since the bind groups of all come first.
fn bind_steps<'a>(
    program: &Program,
    names: Names,
    located: &Located<'_>,
    offsets: impl Fn(usize) -> Option<&'a ::wgpu::Buffer>,
    steps: &mut Vec<BoundStep>,
) -> Result<()> {
    let device = &program.device;
    let bound = device.guarded("create_bind_group", || {
        let mut count = 0;
        for (at, step) in program.steps.iter().enumerate() {
            let mut resolved = Resolved::new(step);
            if !resolved.locate(device.props(), located) {
                continue;
            }
            let Resolved { form, offsets: words, .. } = resolved;
            for (part, dispatch) in step.dispatches(form).iter().enumerate() {
                if dispatch.grid == NO_GROUPS {
                    continue;
                }
                let group = resolved.bind_group(device, &dispatch.params, offsets(count));
                steps.push(BoundStep { at, part, group, form, offsets: words });
            }
            count += 1;
        }
    });
    bound.map_err(|error| match error {
        Error::Backend { .. } => {
            let mut steps = program.resolved(located);
            steps.find_map(|resolved| unusable_operand(&resolved, device, names)).unwrap_or(error)
        }
        other => other,
    })
}

/// Finds the operand whose buffer this device cannot bind, by binding each alone.
#[cold]
fn unusable_operand(resolved: &Resolved<'_>, device: &Device, names: Names) -> Option<Error> {
    resolved.ranges.iter().flatten().enumerate().find_map(|(binding, range)| {
        let (op, operand) = (names.op, resolved.operand(binding, names));
        if range.bytes > device.props().max_binding_bytes {
            return Some(Error::Misaligned {
                op,
                operand,
                need_bytes: device.props().workspace_align(),
                start: Start::Offset(range.start + 4 * u64::from(resolved.offsets[binding])),
                detail: "; it is as large as a binding of this device may be, which leaves no room for bytes before it",
            });
        }
        if !range.buffer.usage().contains(::wgpu::BufferUsages::STORAGE) {
            return Some(Error::UnusableBuffer { op, operand, why: "lacks the usage STORAGE" });
        }
        let alone = device.guarded("create_bind_group", || {
            let ty = ::wgpu::BindingType::Buffer {
                ty: ::wgpu::BufferBindingType::Storage { read_only: true },
                has_dynamic_offset: false,
                min_binding_size: None,
            };
            let entry =
                ::wgpu::BindGroupLayoutEntry { binding: 0, visibility: ::wgpu::ShaderStages::COMPUTE, ty, count: None };
            let layout = device
                .device
                .create_bind_group_layout(&::wgpu::BindGroupLayoutDescriptor { label: None, entries: &[entry] });
            let resource = ::wgpu::BindingResource::Buffer(range.binding());
            device.device.create_bind_group(&::wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &[::wgpu::BindGroupEntry { binding: 0, resource }],
            })
        });
        match alone.err()? {
            // wgpu tells what is wrong in words alone; there is no further reason.
            Error::Backend { detail, .. } if detail.contains("destroyed") => {
                Some(Error::UnusableBuffer { op, operand, why: "has been destroyed" })
            }
            _ => Some(Error::WrongDevice {
                op,
                operand,
                expected: device.to_string(),
                got: "another wgpu device".into(),
            }),
        }
    })
}

/// Without immediates, a run has nowhere to put offsets.
fn demand_aligned(resolved: &Resolved<'_>, props: &Props, names: Names) -> Result<()> {
    for (binding, (range, words)) in resolved.ranges.iter().flatten().zip(resolved.offsets).enumerate() {
        if words != 0 {
            return Err(Error::Misaligned {
                op: names.op,
                operand: resolved.operand(binding, names),
                need_bytes: props.workspace_align(),
                start: Start::Offset(range.start + 4 * u64::from(words)),
                detail: "; bind takes it, and so does run on a device with the feature IMMEDIATES",
            });
        }
    }
    Ok(())
}

/// A dispatch of a program with its operands: what a replay records.
#[derive(Clone, Debug)]
pub(crate) struct BoundStep {
    /// Among the steps of the program.
    at: usize,
    /// Among the dispatches of the step.
    part: usize,
    group: ::wgpu::BindGroup,
    form: Form,
    offsets: [u32; MAX_BINDINGS],
}

impl From<&BoundStep> for BoundStep {
    fn from(step: &BoundStep) -> Self {
        step.clone()
    }
}

/// Makes the bind groups, and the uniforms with the offsets where there are no immediates.
pub(crate) fn bind(program: &Program, names: Names, located: &Located<'_>) -> Result<Vec<BoundStep>> {
    let device = &program.device;
    let uniform = |resolved: Resolved<'_>| {
        let contents: &[u8] = bytemuck::cast_slice(&resolved.offsets);
        let usage = ::wgpu::BufferUsages::UNIFORM;
        device.create_buffer("baracuda-ops offsets", contents.len() as u64, usage, Some(contents))
    };
    let uniforms = match device.props().has_immediates() {
        true => Vec::new(),
        false => program.resolved(located).map(uniform).collect::<Result<_>>()?,
    };
    let mut steps = Vec::with_capacity(program.steps.len());
    bind_steps(program, names, located, |step| uniforms.get(step), &mut steps)?;
    Ok(steps)
}

/// Records a run of a program whose steps are bound.
pub(crate) fn record(program: &Program, bound: &[BoundStep], queue: &mut Queue<'_>) {
    queue.record(program, bound.iter());
}
