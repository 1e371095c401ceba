//! What a run allocates on the host: nothing on CUDA, what wgpu itself allocates on wgpu, on the CPU no more for inputs that repeat elements.
//! A binary of its own, because its allocator counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use baracuda_ops::{
    Access, AnyDescriptor, AnyPlan, Buffer, Device, Mem, MemMut, Operand, PlanOptions, Queue, Workspace,
};
use baracuda_ops_tests::target::target;
use libtest_mimic::{Arguments, Trial};

struct Counting;

thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// Bytes of them together.
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all work is the system allocator's; counting touches a constant-initialised thread local, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(work: impl FnOnce()) -> usize {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

/// Allocations of runs on an owned queue.
fn runs_of(device: &Device, line: &str, runs: usize) -> usize {
    let plan = AnyDescriptor::parse_line(line).unwrap().plan(device, &PlanOptions::default()).unwrap();
    let buffers: Vec<_> = plan.slots().iter().map(|s| device.alloc(s.span_bytes).unwrap()).collect();
    let workspace = device.alloc(plan.workspace().bytes).unwrap();
    let mut queue = device.queue();
    let allocations = counted_runs(&plan, &buffers, &workspace, &mut queue, runs);
    queue.finish().unwrap();
    allocations
}

/// Allocations of runs after the first one.
fn counted_runs(plan: &AnyPlan, buffers: &[Buffer], workspace: &Buffer, queue: &mut Queue<'_>, runs: usize) -> usize {
    let of = |(slot, buffer): (&baracuda_ops::Slot, _)| match slot.access {
        Access::In => Mem::from(buffer).into(),
        _ => MemMut::from(buffer).into(),
    };
    let mut operands: Vec<Operand<'_>> = plan.slots().iter().zip(buffers).map(of).collect();
    plan.run(queue, &mut operands, Workspace::new(workspace)).unwrap();
    count(|| {
        for _ in 0..runs {
            plan.run(queue, &mut operands, Workspace::new(workspace)).unwrap();
        }
    })
}

/// Gradients of parameters alone, whose inputs have 2^16 elements a segment, or 3 * 2^12 that no stride is common to, in the memory of a few.
fn of_repeated_inputs() -> Vec<String> {
    let mut lines = Vec::new();
    for (dims, strides) in [("[1,2,65536]", "[0,1,0]"), ("[2,2,64,3,64]", "[0,3,0,1,0]")] {
        let x = format!(r#"{{"dtype":"f32","dims":{dims},"strides":{strides}}}"#);
        let rest = r#""weight":"f32","bias":"f32","dweight":true,"dbias":true"#;
        let layouts = format!(r#""layouts":{{"dy":{x}}}"#);
        lines.extend([
            format!(r#"batch_norm_backward {{"x":{x},{rest},{layouts}}}"#),
            format!(r#"group_norm_backward {{"x":{x},"groups":2,"activation":"silu",{rest},{layouts}}}"#),
            format!(r#"instance_norm_backward {{"x":{x},{rest},{layouts}}}"#),
            format!(
                r#"batch_norm_backward {{"x":{x},"activation":"silu","residual":true,{rest},"layouts":{{"dy":{x},"residual":{x}}}}}"#
            ),
            format!(
                r#"batch_norm_backward {{"x":{x},"activation":"relu","from_y":true,{rest},"layouts":{{"dy":{x},"y":{x}}}}}"#
            ),
        ]);
    }
    lines
}

/// Bytes that this thread allocates in a run after the first one.
fn bytes_of_run(device: &Device, line: &str) -> usize {
    let plan = AnyDescriptor::parse_line(line).unwrap().plan(device, &PlanOptions::default()).unwrap();
    let buffers: Vec<_> = plan.slots().iter().map(|s| device.alloc(s.span_bytes).unwrap()).collect();
    let mut operands: Vec<Operand<'_>> = buffers.iter().map(Operand::from).collect();
    let mut queue = device.queue();
    plan.run(&mut queue, &mut operands, Workspace::none()).unwrap();
    let before = BYTES.get();
    plan.run(&mut queue, &mut operands, Workspace::none()).unwrap();
    BYTES.get() - before
}

fn main() {
    let mut args = Arguments::from_args();
    args.test_threads = Some(1);
    let cuda = target("cuda").expect("a target");
    let device = cuda.device.clone();
    let runs = Trial::test("a_run_on_cuda_allocates_nothing_on_the_host", move || {
        let device = device?;
        let shapes = ["[8,256]", "[2048,1024]", "[2,100003]", "[3,17]"];
        let channels = ["[8,64,14,14]", "[2,64,3,129]", "[1,8,100003]", "[64,1024]"];
        for (op, shapes, fields) in [
            (
                "layer_norm",
                shapes,
                r#""normalized_dims":1,"weight":"f32","bias":"f32","eps":1e-5,"stats":true,"residual":true"#,
            ),
            ("rms_norm", shapes, r#""normalized_dims":1,"weight":"f32","eps":1e-5,"stats":true"#),
            (
                "layer_norm_backward",
                shapes,
                r#""normalized_dims":1,"weight":"f32","dx":true,"dweight":true,"dbias":"f32""#,
            ),
            ("rms_norm_backward", shapes, r#""normalized_dims":1,"weight":"f32","dx":true,"dweight":true"#),
            ("batch_norm", channels, r#""weight":"f32","bias":"f32","eps":1e-5,"momentum":0.1,"stats":true"#),
            (
                "batch_norm_backward",
                channels,
                r#""weight":"f32","bias":"f32","activation":"relu","residual":true,"from_y":true,"dx":true,"dresidual":true,"dweight":true,"dbias":true"#,
            ),
            ("group_norm", channels, r#""groups":8,"weight":"f32","bias":"f32","eps":1e-5,"activation":"silu","stats":true"#),
            (
                "group_norm_backward",
                channels,
                r#""groups":8,"weight":"f32","bias":"f32","activation":"silu","dx":true,"dweight":true,"dbias":true"#,
            ),
        ] {
            for dims in shapes {
                for dtype in ["f32", "bf16"] {
                    let line = format!(r#"{op} {{"x":{{"dtype":"{dtype}","dims":{dims}}},{fields}}}"#);
                    let allocations = runs_of(&device, &line, 100);
                    if allocations > 0 {
                        return Err(format!("{allocations} allocations in 100 runs of {line}").into());
                    }
                }
            }
        }
        for (op, tensor) in [("softmax", "x"), ("softmax_backward", "y")] {
            for (dims, axis) in [("[8,256]", 1), ("[2,100003]", 1), ("[2,21,4096]", 1), ("[1,70001,4]", 1)] {
                let line = format!(r#"{op} {{"{tensor}":{{"dtype":"bf16","dims":{dims}}},"axis":{axis}}}"#);
                let allocations = runs_of(&device, &line, 100);
                if allocations > 0 {
                    return Err(format!("{allocations} allocations in 100 runs of {line}").into());
                }
            }
        }
        // Many operands: parameters that are scaled, the norm of all gradients, and a concatenation of 64 tensors.
        let [few, many] = [3, 300].map(|count| vec![r#"[{"dtype":"f32","dims":[257]}]"#; count].join(","));
        let x = r#""inputs":[{"dtype":"f32","dims":[8,256]}"#;
        let scaled = r#"{"inputs":["x","y"],"let":[["z","mul","x","y"]],"outputs":["z"]}"#;
        for sets in [few, many] {
            for line in [
                format!(r#"pointwise {{"program":{scaled},{x},{{"dtype":"f32","dims":[]}}],"sets":[{sets}]}}"#),
                format!(r#"reduce {{{x}],"axes":[0,1],"reduce":"norm2","sets":[{sets}]}}"#),
                format!(r#"concat {{{x},{}],"axis":1}}"#, vec![r#"{"dtype":"f32","dims":[8,7]}"#; 63].join(",")),
            ] {
                let allocations = runs_of(&device, &line, 100);
                if allocations > 0 {
                    return Err(format!("{allocations} allocations in 100 runs of {line}").into());
                }
            }
        }
        Ok(())
    })
    .with_ignored_flag(cuda.device.is_err());
    let control = Trial::test("the_allocator_counts", || {
        let allocations = count(|| drop(std::hint::black_box(vec![1u8; 100])));
        if allocations == 1 { Ok(()) } else { Err(format!("{allocations} counted").into()) }
    });
    let repeated = Trial::test("gradients_of_parameters_on_the_cpu_keep_nothing_of_repeated_inputs", || {
        for line in of_repeated_inputs() {
            let bytes = bytes_of_run(&Device::cpu(), &line);
            if bytes > 4096 {
                return Err(format!("{bytes} bytes allocated by a run of {line}").into());
            }
        }
        Ok(())
    });
    #[allow(unused_mut, reason = "only wgpu adds a trial")]
    let mut trials = vec![runs, control, repeated];
    #[cfg(feature = "wgpu")]
    trials.extend(wgpu_trials());
    libtest_mimic::run(&args, trials).exit();
}

/// Runs whose allocations are counted: fewer dispatches than a device takes before it submits.
#[cfg(feature = "wgpu")]
const WGPU_RUNS: usize = 100;

#[cfg(feature = "wgpu")]
fn wgpu_trials() -> [Trial; 1] {
    let target = target("wgpu").expect("a target");
    let device = target.device.clone();
    let law = move || {
        let device = device?;
        let [raw, raw_kept] = [false, true].map(|is_kept| raw_calls(&device, is_kept));
        let line = r#"layer_norm {"x":{"dtype":"f32","dims":[8,256]},"normalized_dims":1,"weight":"f32","bias":"f32","eps":1e-5,"stats":true}"#;
        let lent = recorded(&device, line);
        let owned = runs_of(&device, line, WGPU_RUNS);
        println!(
            "{WGPU_RUNS} times: {raw} and {raw_kept} by wgpu calls, {lent} by runs into a pass, {owned} by runs on an owned queue"
        );
        if lent > raw || owned > raw_kept {
            let found = format!("runs allocate {lent} times into a pass, {owned} times on an owned queue");
            return Err(format!("{WGPU_RUNS} {found}; the same wgpu calls {raw} and {raw_kept} times").into());
        }
        Ok(())
    };
    [Trial::test("a_run_through_wgpu_allocates_what_its_wgpu_calls_do", law).with_ignored_flag(target.device.is_err())]
}

/// Allocations of runs recorded into one pass.
#[cfg(feature = "wgpu")]
fn recorded(device: &Device, line: &str) -> usize {
    let (raw, _) = device.wgpu_handles().expect("a wgpu device");
    let mut encoder = raw.create_command_encoder(&Default::default());
    let mut queue = Queue::wgpu(device, &mut encoder).unwrap();
    let plan = AnyDescriptor::parse_line(line).unwrap().plan(device, &PlanOptions::default()).unwrap();
    let buffers: Vec<_> = plan.slots().iter().map(|s| device.alloc(s.span_bytes).unwrap()).collect();
    let workspace = device.alloc(plan.workspace().bytes).unwrap();
    counted_runs(&plan, &buffers, &workspace, &mut queue, WGPU_RUNS)
}

/// Bytes of the parameters and of the offsets of the 6 operands of the run that is counted.
#[cfg(feature = "wgpu")]
const PARAMS_BYTES: u32 = 112;
#[cfg(feature = "wgpu")]
const OFFSETS_BYTES: u32 = 6 * 4;

/// Allocations of the wgpu calls that a run of 6 operands is made of: a bind group, made in scopes that catch its errors, which would
/// else end the process, immediates and a dispatch. Parameters are immediates, too, or a uniform where there is no room for them. wgpu keeps what
/// a pass is made of in lists, whose growth is a part of what many dispatches allocate: here they grow as those of runs do.
///
/// Kept: those of a run on an owned queue, which encodes when it submits: bind groups, kept in a list beside a list of runs.
///
/// Of 100 runs that is 19 each, for the bind group and its scopes. The rest, 49 and 52 on llvmpipe, are lists that double: of the bind groups of each
/// of 7 buffers, of wgpu's own tables, and of the pass or of those kept. Buffers are new to each call, since their lists never shrink.
#[cfg(feature = "wgpu")]
fn raw_calls(device: &Device, is_kept: bool) -> usize {
    use wgpu::{BindGroupDescriptor, BindGroupEntry, BindGroupLayoutEntry, BufferUsages, ErrorFilter};
    let (raw, _) = device.wgpu_handles().expect("a wgpu device");
    let (numbers, immediate_bytes): (usize, u32) = match raw.limits().max_immediate_size {
        most if most >= PARAMS_BYTES + OFFSETS_BYTES => (0, PARAMS_BYTES + OFFSETS_BYTES),
        _ => (1, OFFSETS_BYTES),
    };
    let bindings = numbers + 6;
    let buffers: Vec<_> = (0..bindings)
        .map(|binding| {
            let usage = if binding < numbers { BufferUsages::UNIFORM } else { BufferUsages::STORAGE };
            raw.create_buffer(&wgpu::BufferDescriptor { label: None, size: 8192, usage, mapped_at_creation: false })
        })
        .collect();
    let layouts: Vec<_> = (0..bindings)
        .map(|binding| BindGroupLayoutEntry {
            binding: binding as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match binding.checked_sub(numbers) {
                    Some(operand) => wgpu::BufferBindingType::Storage { read_only: operand < 3 },
                    None => wgpu::BufferBindingType::Uniform,
                },
                has_dynamic_offset: false,
                min_binding_size: wgpu::BufferSize::new(16),
            },
            count: None,
        })
        .collect();
    let layout = raw.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &layouts });
    let pipeline_layout = raw.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: immediate_bytes,
    });
    let text = "@compute @workgroup_size(1) fn nothing() {}";
    let module = raw.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("nothing"),
        compilation_options: Default::default(),
        cache: None,
    });
    let entry = |i: usize| BindGroupEntry { binding: i as u32, resource: buffers[i].as_entire_binding() };
    let bind = || {
        let memory = raw.push_error_scope(ErrorFilter::OutOfMemory);
        let validation = raw.push_error_scope(ErrorFilter::Validation);
        let entries: [_; 7] = std::array::from_fn(|i| entry(i.min(bindings - 1)));
        let entries = &entries[..bindings];
        let group = raw.create_bind_group(&BindGroupDescriptor { label: None, layout: &layout, entries });
        drop((validation.pop(), memory.pop()));
        group
    };
    if is_kept {
        let (mut groups, mut runs) = (vec![bind()], vec![0]);
        return count(|| {
            for _ in 0..WGPU_RUNS {
                groups.push(bind());
                runs.push(groups.len());
            }
        });
    }
    let mut encoder = raw.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    let mut record = || {
        let group = bind();
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.set_immediates(0, &[0; (PARAMS_BYTES + OFFSETS_BYTES) as usize][..immediate_bytes as usize]);
        pass.dispatch_workgroups(1, 1, 1);
    };
    record();
    let allocations = count(|| (0..WGPU_RUNS).for_each(|_| record()));
    drop(pass);
    // A pass takes no more commands after a wrong one, and says so here.
    let validation = raw.push_error_scope(ErrorFilter::Validation);
    drop(encoder.finish());
    assert_eq!(pollster::block_on(validation.pop()).map(|error| error.to_string()), None);
    allocations
}
