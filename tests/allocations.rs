//! A run of a CUDA plan allocates nothing on the host. A binary of its own, because its allocator counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use baracuda_ops::{Access, AnyDescriptor, Device, Mem, MemMut, Operand, PlanOptions, Workspace};
use baracuda_ops_tests::target::target;
use libtest_mimic::{Arguments, Trial};

struct Counting;

thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all work is the system allocator's; counting touches a constant-initialised thread local, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
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

fn runs_on(device: &Device, line: &str) -> usize {
    let plan = AnyDescriptor::parse_line(line).unwrap().plan(device, &PlanOptions::default()).unwrap();
    let buffers: Vec<_> = plan.slots().iter().map(|s| device.alloc(s.span_bytes).unwrap()).collect();
    let workspace = device.alloc(plan.workspace().bytes).unwrap();
    let of = |(slot, buffer): (&baracuda_ops::Slot, _)| match slot.access {
        Access::In => Mem::from(buffer).into(),
        _ => MemMut::from(buffer).into(),
    };
    let mut operands: Vec<Operand<'_>> = plan.slots().iter().zip(&buffers).map(of).collect();
    let mut queue = device.queue();
    plan.run(&mut queue, &mut operands, Workspace::new(&workspace)).unwrap();
    let allocations = count(|| {
        for _ in 0..100 {
            plan.run(&mut queue, &mut operands, Workspace::new(&workspace)).unwrap();
        }
    });
    queue.finish().unwrap();
    allocations
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
                    let allocations = runs_on(&device, &line);
                    if allocations > 0 {
                        return Err(format!("{allocations} allocations in 100 runs of {line}").into());
                    }
                }
            }
        }
        for (op, tensor) in [("softmax", "x"), ("softmax_backward", "y")] {
            for (dims, axis) in [("[8,256]", 1), ("[2,100003]", 1), ("[2,21,4096]", 1), ("[1,70001,4]", 1)] {
                let line = format!(r#"{op} {{"{tensor}":{{"dtype":"bf16","dims":{dims}}},"axis":{axis}}}"#);
                let allocations = runs_on(&device, &line);
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
    libtest_mimic::run(&args, vec![runs, control]).exit();
}
