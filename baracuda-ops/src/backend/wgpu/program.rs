//! A plan's dispatches, and how operands become bindings.
//!
//! A binding starts at a multiple of the device's alignment at or before its operand; the words in between reach the kernel as an
//! offset. Ranges of one buffer of which one is written are all bound for reading and writing, since wgpu counts uses per buffer.

use std::sync::Arc;

use super::device::{Device, MAX_BINDINGS, Pipeline, Props};
use super::queue::Queue;
use super::text::{OperandText, Source};
use crate::backend::{Located, Location};
use crate::error::{Error, Result};

/// Chunks that kernels load and store at once, in words.
const CHUNK_WORDS: u32 = 4;

/// Where a binding's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the operand at a position.
    Operand(usize),
    /// In a range of the workspace, which starts at a multiple of [`Props::workspace_align`].
    Workspace { offset: u64, bytes: u64 },
}

/// One operand of a dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    pub(crate) name: &'static str,
    /// `None` for an operand that the descriptor does not declare.
    pub(crate) place: Option<Place>,
    /// The accessor where every operand's chunks are aligned, and the one for any word.
    pub(crate) accessors: [&'static str; 2],
}

impl Binding {
    /// An operand that is not there.
    pub(crate) fn absent(name: &'static str, accessor: &'static str) -> Self {
        Self { name, place: None, accessors: [accessor; 2] }
    }
}

/// What a dispatch is made from.
pub(crate) struct StepBuilder {
    pub(crate) entry: &'static str,
    /// Files where chunks are aligned and elsewhere alike.
    pub(crate) files: Vec<&'static str>,
    pub(crate) constants: Vec<(&'static str, u32)>,
    pub(crate) flags: Vec<(&'static str, bool)>,
    pub(crate) bindings: Vec<Binding>,
    /// Whether the layouts keep chunks aligned if the operands' first elements are.
    pub(crate) can_chunk: bool,
    /// The `Params` of the text.
    pub(crate) params: Vec<u8>,
    pub(crate) grid: [u32; 2],
    /// Where an output lies in the place of an input, the params and grids of dispatches that are made one after the other instead.
    pub(crate) in_place: Vec<(Vec<u8>, [u32; 2])>,
}

impl StepBuilder {
    /// The text where chunks are aligned, or the one for any word.
    pub(crate) fn source(&self, is_chunked: bool) -> Source {
        let accessor = |b: &Binding| b.accessors[usize::from(!is_chunked)];
        let mut flags = self.flags.clone();
        flags.push(("WHOLE_CHUNKS", is_chunked));
        Source {
            entry: self.entry,
            files: self.files.clone(),
            constants: self.constants.clone(),
            flags,
            operands: self.bindings.iter().map(|b| OperandText { name: b.name, accessor: accessor(b) }).collect(),
            params_bytes: self.params.len() as u64,
        }
    }

    /// The texts that serve aligned chunks, if there are any, and any word.
    fn sources(&self) -> impl Iterator<Item = Source> {
        let forms: &[bool] = if self.can_chunk { &[true, false] } else { &[false] };
        forms.iter().map(|&is_chunked| self.source(is_chunked))
    }

    /// `forms`: the pipelines of its sources.
    fn build(self, device: &Device, forms: Vec<[Pipeline; 2]>) -> Result<Step> {
        let mut bindings = Vec::with_capacity(self.bindings.len());
        for binding in &self.bindings {
            if let Some(place) = binding.place {
                let [chunked, words] =
                    binding.accessors.map(|accessor| OperandText { name: binding.name, accessor }.element_bytes());
                bindings.push(Use {
                    place,
                    is_written: !binding.accessors[0].ends_with("_in"),
                    has_chunks: chunked > words,
                });
            }
        }
        let dispatch = |(params, grid): &(Vec<u8>, [u32; 2])| Ok((device.params(params)?, *grid));
        let whole = dispatch(&(self.params, self.grid))?;
        let in_place = self.in_place.iter().map(dispatch).collect::<Result<_>>()?;
        Ok(Step { forms, bindings, whole, in_place })
    }
}

/// How `groups` workgroups are spread over two dimensions, unless there are too many.
pub(crate) fn grid(groups: u64, props: &Props) -> Option<[u32; 2]> {
    let most = u64::from(props.max_groups);
    let x = groups.clamp(1, most);
    let y = groups.div_ceil(x);
    (y <= most).then_some([x as u32, y as u32])
}

/// The dispatches of a plan, in order.
#[derive(Debug)]
pub(crate) struct Program {
    device: Device,
    steps: Vec<Step>,
}

/// One dispatch.
#[derive(Debug)]
struct Step {
    /// For aligned chunks the first, for operands at any word the last, which may be the same; each with inputs only read, and with all
    /// operands bound alike.
    forms: Vec<[Pipeline; 2]>,
    bindings: Vec<Use>,
    whole: Dispatch,
    /// What takes its place where an output lies in that of an input; mostly nothing.
    in_place: Vec<Dispatch>,
}

/// The uniform and the grid.
type Dispatch = (Arc<::wgpu::Buffer>, [u32; 2]);

#[derive(Clone, Copy, Debug)]
struct Use {
    place: Place,
    is_written: bool,
    has_chunks: bool,
}

impl Program {
    pub(crate) fn new(device: &Device, steps: Vec<StepBuilder>) -> Result<Self> {
        let sources: Vec<Source> = steps.iter().flat_map(StepBuilder::sources).collect();
        let mut pipelines = device.pipelines(&sources)?.into_iter();
        let build = |step: StepBuilder| {
            let forms = pipelines.by_ref().take(1 + usize::from(step.can_chunk)).collect();
            step.build(device, forms)
        };
        let steps = steps.into_iter().map(build).collect::<Result<_>>()?;
        Ok(Self { device: device.clone(), steps })
    }

    /// The bindings of the steps whose operands have elements.
    fn resolved<'a>(&'a self, located: &Located<'a>) -> impl Iterator<Item = Resolved<'a>> {
        let props = self.device.props();
        self.steps.iter().filter_map(move |step| step.resolve(props, located))
    }
}

/// The bindings of one step for given operands.
struct Resolved<'a> {
    ranges: [Option<Range<'a>>; MAX_BINDINGS],
    /// From the start of each binding to its operand, in words.
    offsets: [u32; MAX_BINDINGS],
    count: usize,
    pipeline: &'a Pipeline,
    dispatches: &'a [Dispatch],
}

#[derive(Clone, Copy)]
struct Range<'a> {
    buffer: &'a ::wgpu::Buffer,
    start: u64,
    bytes: u64,
    operand: Option<usize>,
}

impl Step {
    fn resolve<'a>(&'a self, props: &Props, located: &Located<'a>) -> Option<Resolved<'a>> {
        let align = u64::from(props.binding_align).max(4 * u64::from(CHUNK_WORDS));
        let mut ranges = [None; MAX_BINDINGS];
        let mut offsets = [0; MAX_BINDINGS];
        let mut has_whole_chunks = true;
        for (i, binding) in self.bindings.iter().enumerate() {
            let (location, skipped, part, operand) = match binding.place {
                Place::Operand(position) => (located.operands[position], 0, None, Some(position)),
                Place::Workspace { offset, bytes } => (located.workspace, offset, Some(bytes), None),
            };
            let Location { buffer: Some(buffer), start: offset, end, .. } = location else { return None };
            let (first, bytes) = (offset + skipped, end - offset);
            let start = first / align * align;
            offsets[i] = ((first - start) / 4) as u32;
            has_whole_chunks &= !binding.has_chunks || offsets[i].is_multiple_of(CHUNK_WORDS);
            let bytes = (first - start + part.unwrap_or(bytes)).next_multiple_of(4);
            ranges[i] = Some(Range { buffer, start, bytes, operand });
        }
        let count = self.bindings.len();
        let is_mixed = |written: usize, other: usize| {
            self.bindings[written].is_written
                && !self.bindings[other].is_written
                && matches!((&ranges[written], &ranges[other]), (Some(a), Some(b)) if a.buffer == b.buffer)
        };
        let is_shared = (0..count).any(|written| (0..count).any(|other| is_mixed(written, other)));
        let is_one = |written: usize, other: usize| {
            let place = |at: usize| ranges[at].map(|range| range.start + 4 * u64::from(offsets[at]));
            is_mixed(written, other) && place(written) == place(other)
        };
        let is_apart =
            self.in_place.is_empty() || !(0..count).any(|written| (0..count).any(|other| is_one(written, other)));
        let dispatches = if is_apart { std::slice::from_ref(&self.whole) } else { &self.in_place };
        let form = if has_whole_chunks { self.forms.first()? } else { self.forms.last()? };
        Some(Resolved { ranges, offsets, count, pipeline: &form[usize::from(is_shared)], dispatches })
    }
}

impl Resolved<'_> {
    /// The bind group. `offsets` is the uniform that holds them where there are no immediates.
    fn bind_group(
        &self,
        device: &Device,
        params: &::wgpu::Buffer,
        offsets: Option<&::wgpu::Buffer>,
    ) -> ::wgpu::BindGroup {
        let whole = |buffer| ::wgpu::BufferBinding { buffer, offset: 0, size: None };
        let count = 1 + self.count + usize::from(offsets.is_some());
        // In place, without the heap: past `count` they are not used.
        let entries: [_; MAX_BINDINGS + 2] = std::array::from_fn(|i| {
            let binding = match i.checked_sub(1).and_then(|at| self.ranges.get(at).copied().flatten()) {
                Some(Range { buffer, start, bytes, .. }) => {
                    ::wgpu::BufferBinding { buffer, offset: start, size: ::wgpu::BufferSize::new(bytes) }
                }
                None => whole(if i == 0 { params } else { offsets.unwrap_or(params) }),
            };
            ::wgpu::BindGroupEntry { binding: i as u32, resource: ::wgpu::BindingResource::Buffer(binding) }
        });
        device.device.create_bind_group(&::wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.layout,
            entries: &entries[..count],
        })
    }
}

/// Records the plan's dispatches.
pub(crate) fn enqueue(
    program: &Program,
    queue: &mut Queue<'_>,
    op: &'static str,
    names: &'static [&'static str],
    located: &Located<'_>,
) -> Result<()> {
    let device = &program.device;
    let props = device.props();
    let no_offsets = if props.has_immediates() {
        None
    } else {
        program.resolved(located).try_for_each(|resolved| demand_aligned(&resolved, props, op, names))?;
        Some(&device.no_offsets)
    };
    record(&bind_steps(program, op, names, located, |_| no_offsets)?, queue)
}

/// The steps of a program with their bind groups; `offsets` gives the uniform with a step's offsets where there are no immediates. No step
/// can fail after an earlier one has been recorded, since the bind groups of all come first.
fn bind_steps<'a>(
    program: &Program,
    op: &'static str,
    names: &'static [&'static str],
    located: &Located<'_>,
    offsets: impl Fn(usize) -> Option<&'a ::wgpu::Buffer>,
) -> Result<Vec<BoundStep>> {
    let device = &program.device;
    let bound = device.guarded("create_bind_group", || {
        let mut steps = Vec::with_capacity(program.steps.len());
        for (i, resolved) in program.resolved(located).enumerate() {
            for (params, grid) in resolved.dispatches {
                steps.push(BoundStep {
                    pipeline: resolved.pipeline.pipeline.clone(),
                    group: resolved.bind_group(device, params, offsets(i)),
                    offsets: resolved.offsets,
                    count: if device.props().has_immediates() { resolved.count } else { 0 },
                    grid: *grid,
                });
            }
        }
        steps
    });
    bound.map_err(|error| match error {
        Error::Backend { .. } => {
            let mut steps = program.resolved(located);
            steps.find_map(|resolved| foreign_operand(&resolved, device, op, names)).unwrap_or(error)
        }
        other => other,
    })
}

/// Finds the operand whose buffer this device does not know, by binding each alone.
#[cold]
fn foreign_operand(
    resolved: &Resolved<'_>,
    device: &Device,
    op: &'static str,
    names: &'static [&'static str],
) -> Option<Error> {
    resolved.ranges.iter().flatten().find_map(|range| {
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
            let resource =
                ::wgpu::BindingResource::Buffer(::wgpu::BufferBinding { buffer: range.buffer, offset: 0, size: None });
            device.device.create_bind_group(&::wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &[::wgpu::BindGroupEntry { binding: 0, resource }],
            })
        });
        match alone {
            // The one other reason for which a buffer cannot be bound from its start.
            Err(Error::Backend { call, code, detail })
                if !range.buffer.usage().contains(::wgpu::BufferUsages::STORAGE) =>
            {
                Some(Error::Backend { call, code, detail })
            }
            Err(_) => Some(Error::WrongDevice {
                op,
                operand: range.operand.map_or("workspace", |position| names[position]),
                expected: device.to_string(),
                got: "another wgpu device".into(),
            }),
            Ok(_) => None,
        }
    })
}

/// Without immediates, a run has nowhere to put offsets.
fn demand_aligned(
    resolved: &Resolved<'_>,
    props: &Props,
    op: &'static str,
    names: &'static [&'static str],
) -> Result<()> {
    for (range, words) in resolved.ranges.iter().flatten().zip(resolved.offsets) {
        if words != 0 {
            return Err(Error::Misaligned {
                op,
                operand: range.operand.map_or("workspace", |position| names[position]),
                need_bytes: props.workspace_align(),
                at: range.start + 4 * u64::from(words),
            });
        }
    }
    Ok(())
}

/// A program with its operands: bind groups once, replays nearly free.
pub(crate) struct BoundProgram(Vec<BoundStep>);

struct BoundStep {
    pipeline: ::wgpu::ComputePipeline,
    group: ::wgpu::BindGroup,
    offsets: [u32; MAX_BINDINGS],
    /// Of the offsets that are immediates.
    count: usize,
    grid: [u32; 2],
}

/// Makes the bind groups, and the uniforms with the offsets where there are no immediates.
pub(crate) fn bind(
    program: &Program,
    device: &Device,
    op: &'static str,
    names: &'static [&'static str],
    located: &Located<'_>,
) -> Result<BoundProgram> {
    let uniform = |resolved: Resolved<'_>| {
        let mut contents = [0; 4 * MAX_BINDINGS];
        contents[..4 * resolved.count].copy_from_slice(bytemuck::cast_slice(&resolved.offsets[..resolved.count]));
        let usage = ::wgpu::BufferUsages::UNIFORM;
        device.create_buffer("baracuda-ops offsets", contents.len() as u64, usage, Some(&contents))
    };
    let uniforms = match device.props().has_immediates() {
        true => Vec::new(),
        false => program.resolved(located).map(uniform).collect::<Result<_>>()?,
    };
    bind_steps(program, op, names, located, |step| uniforms.get(step)).map(BoundProgram)
}

/// Records a bound program's dispatches.
pub(crate) fn replay(bound: &BoundProgram, queue: &mut Queue<'_>) -> Result<()> {
    record(&bound.0, queue)
}

fn record(steps: &[BoundStep], queue: &mut Queue<'_>) -> Result<()> {
    queue.record(steps.len() as u32, |pass| {
        for step in steps {
            pass.set_pipeline(&step.pipeline);
            pass.set_bind_group(0, &step.group, &[]);
            if step.count > 0 {
                pass.set_immediates(0, bytemuck::cast_slice(&step.offsets[..step.count]));
            }
            pass.dispatch_workgroups(step.grid[0], step.grid[1], 1);
        }
    })
}
