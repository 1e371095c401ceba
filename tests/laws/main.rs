//! The promises of the library that no single case shows: typed errors, caches, threads, one choice in every process, and what only a
//! CUDA device can show.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use baracuda_ops::{
    Activation, AnyDescriptor, AnyPlan, AttentionDescriptor, BatchNormArgs, BatchNormBackwardArgs, BatchNormDescriptor,
    Bound, Buffer, CacheStats, ConvBackwardBiasDescriptor, ConvBackwardDataDescriptor, ConvBackwardWeightDescriptor,
    ConvDescriptor, ConvTransposeDescriptor, ConvWindow, CopyArgs, CopyDescriptor, CrossEntropyDescriptor, DType,
    Descriptor, Device, Error, Function, GemmArgs, GemmBackwardArgs, GemmDescriptor, GemmFactor, GemmSaved,
    GroupNormArgs, GroupNormBackwardArgs, GroupNormDescriptor, InstanceNormArgs, InstanceNormBackwardArgs,
    InstanceNormDescriptor, LayerNormArgs, LayerNormBackwardArgs, LayerNormDescriptor, LinearCrossEntropyDescriptor,
    LocalResponseNormArgs, LocalResponseNormBackwardArgs, Mem, MemMut, Operand, Plan, PlanCache, PlanOptions,
    PointwiseArgs, PointwiseDescriptor, Program, Queue, ReduceDescriptor, Reduction, RmsNormArgs, RmsNormBackwardArgs,
    RmsNormDescriptor, SoftmaxArgs, SoftmaxBackwardArgs, SoftmaxDescriptor, Start, TensorDesc, Workspace,
};
use baracuda_ops_tests::ops::SUBJECTS;
use baracuda_ops_tests::target::{TARGETS, target};
use libtest_mimic::{Arguments, Failed, Trial};
use rayon::prelude::*;

mod batch;
mod convolutions;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod products;
#[cfg(feature = "wgpu")]
mod wgpu;

/// Set in the process that only tells its choices.
const TELL: &str = "BOPS_TELL_CHOICES";
/// Set to renew `errors.txt` from what the errors say.
const RENEW: &str = "BOPS_RENEW_ERRORS";

type Outcome = Result<(), Failed>;

fn is_send_and_sync<T: Send + Sync>() {}
fn is_send<T: Send>() {}

/// Plans, devices, descriptors and caches go anywhere; queues and operands move between threads.
const _: fn() = || {
    is_send_and_sync::<Device>();
    is_send_and_sync::<Buffer>();
    is_send_and_sync::<Plan<LayerNormDescriptor>>();
    is_send_and_sync::<Plan<RmsNormDescriptor>>();
    is_send_and_sync::<AnyPlan>();
    is_send_and_sync::<Bound>();
    is_send_and_sync::<AnyDescriptor>();
    is_send_and_sync::<PlanCache>();
    is_send_and_sync::<Error>();
    is_send_and_sync::<PlanOptions>();
    is_send::<Queue<'static>>();
    is_send::<Mem<'static>>();
    is_send::<MemMut<'static>>();
    is_send::<Operand<'static>>();
    is_send::<Workspace<'static>>();
    is_send::<BatchNormArgs<'static>>();
    is_send::<BatchNormBackwardArgs<'static>>();
    is_send::<GemmArgs<'static>>();
    is_send::<GemmBackwardArgs<'static>>();
    is_send::<GroupNormArgs<'static>>();
    is_send::<GroupNormBackwardArgs<'static>>();
    is_send::<InstanceNormArgs<'static>>();
    is_send::<InstanceNormBackwardArgs<'static>>();
    is_send::<LayerNormArgs<'static>>();
    is_send::<LayerNormBackwardArgs<'static>>();
    is_send::<LocalResponseNormArgs<'static>>();
    is_send::<LocalResponseNormBackwardArgs<'static>>();
    is_send::<PointwiseArgs<'static>>();
    is_send::<baracuda_ops::CopyArgs<'static>>();
    is_send::<baracuda_ops::PadArgs<'static>>();
    is_send::<baracuda_ops::ConcatArgs<'static>>();
    is_send::<RmsNormArgs<'static>>();
    is_send::<RmsNormBackwardArgs<'static>>();
    is_send::<SoftmaxArgs<'static>>();
    is_send::<SoftmaxBackwardArgs<'static>>();
    is_send::<baracuda_ops::CrossEntropyArgs<'static>>();
    is_send::<baracuda_ops::CrossEntropyBackwardArgs<'static>>();
    is_send::<baracuda_ops::AttentionArgs<'static>>();
    is_send::<baracuda_ops::AttentionBackwardArgs<'static>>();
    is_send::<baracuda_ops::PoolArgs<'static>>();
    is_send::<baracuda_ops::PoolBackwardArgs<'static>>();
};

/// So that code for any op may rely on it.
#[expect(dead_code, reason = "compiling it is the test")]
fn args_of_any_op_are_send<D: Descriptor>(args: D::Args<'_>) -> impl Send {
    args
}

fn main() -> ExitCode {
    if std::env::var_os(TELL).is_some() {
        print!("{}", choices());
        return ExitCode::SUCCESS;
    }
    #[cfg(feature = "wgpu")]
    if std::env::var_os(wgpu::OPEN).is_some() {
        print!("{}", wgpu::open());
        return ExitCode::SUCCESS;
    }
    #[cfg(feature = "cuda")]
    if let Some(code) = cuda::child_main() {
        return code;
    }
    let args = Arguments::from_args();
    if let Err(missing) = baracuda_ops_tests::target::require() {
        eprintln!("{missing}");
        return ExitCode::FAILURE;
    }
    let mut trials = vec![
        Trial::test("two_processes_choose_the_same", two_processes),
        Trial::test("a_cache_keeps_equal_requests_apart_from_others", cache),
        Trial::test("errors_say_what_is_wrong", errors),
        Trial::test("a_buffer_in_use_is_refused_on_the_cpu", in_use),
        Trial::test("bytes_of_the_host_are_operands", host_bytes),
        Trial::test("options_are_obeyed_or_refused", options),
        Trial::test("no_choice_for_the_same_bits_depends_on_the_number_of_samples", || Ok(batch::same_choices()?)),
        Trial::test("what_promises_the_same_bits_is_in_a_table", || Ok(batch::table()?)),
    ];
    for target in TARGETS.iter() {
        let on = move |name: &str, law: fn(&Device) -> Outcome| {
            let device = target.device.clone();
            let absent = device.as_ref().err().cloned();
            unless(absent, Trial::test(format!("{name}/{}", target.name), move || law(&device?)))
        };
        trials.push(on("refused_runs_touch_nothing", refused_runs));
        trials.push(on("a_part_of_a_buffer_is_downloaded_from_any_element_on", parts));
        trials.push(on("an_offset_that_is_refused_on_one_backend_is_refused_on_all", promises));
        trials.push(on("operands_may_lie_between_each_other_on", interleaved));
        trials.push(on("a_queue_of_another_device_is_refused", other_queue));
        trials.push(on("strides_of_a_factor_without_elements_do_not_matter", |device| Ok(products::empty(device)?)));
        trials.push(on("products_judged_on_samples", |device| Ok(products::sampled(device)?)));
        trials.push(on("convolutions_judged_on_samples", |device| Ok(convolutions::sampled(device)?)));
        for name in batch::names() {
            let (title, device) =
                (format!("the_same_bits_in_every_batch/{name}/{}", target.name), target.device.clone());
            let absent = device.as_ref().err().cloned();
            trials.push(unless(absent, Trial::test(title, move || Ok(batch::same_bits(&name, &device?)?))));
        }
    }
    trials.extend(cpu::LAWS.map(|(name, law)| Trial::test(format!("{name}/cpu"), move || Ok(law()?))));
    #[cfg(feature = "wgpu")]
    for (name, law) in wgpu::LAWS {
        let absent = target("wgpu").and_then(|target| target.device.as_ref().err().cloned());
        trials.push(unless(absent, Trial::test(format!("{name}/wgpu"), move || Ok(law()?))));
    }
    for name in CUDA_LAWS {
        trials.push(unless(cuda_lacks(name), Trial::test(format!("{name}/cuda"), || cuda_law(name))));
    }
    libtest_mimic::run(&args, trials).exit_code()
}

/// The trial, or ignored for a reason that is shown with it.
fn unless(reason: Option<String>, trial: Trial) -> Trial {
    match reason {
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
        None => trial,
    }
}

/// The laws of `cuda.rs`.
const CUDA_LAWS: [&str; 6] = [
    "more_than_2_to_the_31_elements",
    "products_of_more_than_2_to_the_31_elements",
    "convolutions_of_more_than_2_to_the_31_elements",
    "late_blocks_give_what_others_give",
    "kernels_that_differ_by_columns_are_each_prepared",
    "memory_and_streams_of_cudarc",
];

#[cfg(feature = "cuda")]
use cuda::law as cuda_law;

#[cfg(not(feature = "cuda"))]
fn cuda_law(_: &str) -> Outcome {
    Err("built without the feature cuda".into())
}

/// Why a law of `cuda.rs` cannot be tried.
fn cuda_lacks(law: &str) -> Option<String> {
    let device = target("cuda").map_or(Err("no target".into()), |target| target.device.clone());
    #[cfg(feature = "cuda")]
    let device = device.and_then(|_| cuda::has_memory(law));
    let _ = law;
    device.err()
}

/// One line for each case and device: the kernel, its workspace and launches.
fn choices() -> String {
    let mut text = String::new();
    for subject in SUBJECTS {
        for case in (subject.cases)().iter().step_by(5) {
            for device in TARGETS.iter().filter(|t| t.name != "wgpu-plain").filter_map(|t| t.device.as_ref().ok()) {
                let choice = match case.descriptor.supported_by(device, &PlanOptions::default()) {
                    Ok(kernel) => kernel.to_string(),
                    Err(error) => error.to_string(),
                };
                text += &format!("{device} {} {choice}\n", case.line());
            }
        }
        // Workspace and launches come with the plan, which takes longer.
        for case in (subject.cases)().iter().step_by(97) {
            for device in TARGETS.iter().filter(|t| t.name != "wgpu-plain").filter_map(|t| t.device.as_ref().ok()) {
                let Ok(plan) = case.descriptor.plan(device, &PlanOptions::default()) else { continue };
                text += &format!("{device} {} {:?} {}\n", case.line(), plan.workspace(), plan.info().launches);
            }
        }
    }
    text
}

fn two_processes() -> Outcome {
    let tell = || -> Result<String, Failed> {
        let output = Command::new(std::env::current_exe()?).env(TELL, "1").output()?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let (first, second) = (tell()?, tell()?);
    if first.lines().count() < 100 {
        return Err(format!("only {} choices were told", first.lines().count()).into());
    }
    match first.lines().zip(second.lines()).find(|(a, b)| a != b) {
        Some((a, b)) => Err(format!("{a}\n{b}").into()),
        None if first.len() != second.len() => Err("one process told more".into()),
        None => Ok(()),
    }
}

fn x(dims: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(DType::F32, dims).unwrap()
}

fn cache() -> Outcome {
    let (cache, device, options) = (PlanCache::with_capacity(8), Device::cpu(), PlanOptions::default());
    let layer = |rows| LayerNormDescriptor::new(x(&[rows, 8]), 1).unwrap();
    let rms = |rows| RmsNormDescriptor::new(x(&[rows, 8]), 1).unwrap();
    let counts = |stats: CacheStats| (stats.hits, stats.misses, stats.evictions, stats.plans);
    cache.plan(&device, &layer(1), &options)?;
    cache.plan(&device, &rms(1), &options)?;
    cache.plan(&device, &layer(1), &options.clone().workspace_limit(0))?;
    assert_eq!(counts(cache.stats()), (0, 3, 0, 3), "op, options and shape are all of the key");
    cache.plan(&device, &layer(1), &options)?;
    cache.plan(&device, &rms(1), &options)?;
    assert_eq!(counts(cache.stats()), (2, 3, 0, 3));
    // A layout that says what the default says is the same request.
    let same = layer(1).layout("y", x(&[1, 8]))?;
    cache.plan(&device, &same, &options)?;
    assert_eq!(cache.stats().hits, 3);
    for rows in 2..100 {
        cache.plan(&device, &layer(rows), &options)?;
        assert!(cache.stats().plans <= 8);
    }
    // A refusal is not kept.
    let impossible = options.clone().kernel("nonesuch");
    cache.plan(&device, &layer(1), &impossible).unwrap_err();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (1..50).for_each(|rows| drop(cache.plan(&device, &rms(rows), &options).unwrap())));
        }
    });
    assert!(cache.stats().plans <= 8);
    cache.clear();
    assert_eq!(cache.stats().plans, 0);
    Ok(())
}

fn options() -> Outcome {
    let (device, plain) = (Device::cpu(), PlanOptions::default());
    let descriptor = LayerNormDescriptor::new(x(&[2, 8]), 1)?;
    let name = device.supports(&descriptor, &plain)?;
    let pinned = Plan::new(&device, descriptor.clone(), &plain.clone().kernel(name))?;
    assert_eq!(pinned.info().kernel, name);
    let Err(Error::Unsupported { tried, .. }) = Plan::new(&device, descriptor, &plain.kernel("nonesuch")) else {
        return Err("a kernel that does not exist was found".into());
    };
    assert!(tried[0].reason.to_string().contains("nonesuch"));
    // A kernel that exists says why it refuses, and of the others nothing is said.
    #[cfg(feature = "wgpu")]
    for props in
        baracuda_ops::DeviceProps::examples().iter().filter(|props| props.backend() == baracuda_ops::Backend::Wgpu)
    {
        let columns = SoftmaxDescriptor::new(x(&[3, 4, 40]), 1)?;
        let pinned = PlanOptions::default().kernel("softmax_rows_resident");
        let Err(Error::Unsupported { tried, .. }) = props.supports(&columns, &pinned) else {
            return Err("a kernel for rows took columns".into());
        };
        let [rejection] = &tried[..] else { return Err(format!("{tried:?}").into()) };
        assert_eq!(rejection.kernel, "softmax_rows_resident");
        assert_eq!(rejection.reason.to_string(), "it takes rows, and the axis is not dense");
    }
    Ok(())
}

/// Each kind of refusal, by a name for it.
fn refusals() -> Vec<(&'static str, Error)> {
    let mut found = Vec::new();
    let mut add =
        |name, error: Option<Error>| found.push((name, error.unwrap_or_else(|| panic!("{name} was accepted"))));
    tensors(&mut add);
    rows_and_axes(&mut add);
    channel_norms(&mut add);
    products(&mut add);
    convolutions(&mut add);
    transposed_convolutions(&mut add);
    programs(&mut add);
    texts(&mut add);
    operands(&mut add);
    buffers(&mut add);
    found
}

/// Refusals of tensors.
fn tensors(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let f32 = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims);
    add("rank", f32(&[1; 9]).err());
    add("overflow", f32(&[1 << 40, 1 << 40]).err());
    add("strides", TensorDesc::strided(DType::F32, &[2, 2], &[1]).err());
    add("stride overflow", TensorDesc::strided(DType::F32, &[2, 2], &[1 << 63, 1]).err());
    add("align", f32(&[2]).and_then(|d| d.align(3)).err());
    add("offset", f32(&[2]).and_then(|d| d.for_offset(3)).err());
    add("channels_last", TensorDesc::channels_last(DType::F32, &[2]).err());
    add("permute", f32(&[2, 3]).and_then(|d| d.permute(&[1, 1])).err());
    add("narrow of no axis", f32(&[2, 3]).and_then(|d| d.narrow(2, 0, 1)).err());
    add("narrow past the end", f32(&[2, 3]).and_then(|d| d.narrow(1, 2, 2)).err());
    add("broadcast_to", f32(&[2, 3]).and_then(|d| d.broadcast_to(&[2, 2, 4])).err());
    add("name of a type", "float".parse::<DType>().err());
}

/// Refusals of products of matrices.
fn products(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let strided = |dims: &[u64], strides: &[u64]| TensorDesc::strided(DType::F32, dims, strides).unwrap();
    let of = |a: TensorDesc, b: TensorDesc| GemmDescriptor::new(a, b);
    let plain = of(x(&[3, 4]), x(&[4, 5])).unwrap();
    add("product of a vector", of(x(&[4]), x(&[4, 5])).err());
    add("inner extents", of(x(&[3, 4]), x(&[5, 4])).err());
    add("weight as frameworks store it", of(x(&[32, 784]), x(&[128, 784])).err());
    add("a that is stored transposed", of(x(&[784, 32]), x(&[784, 128])).err());
    add("inner extents, transposed", GemmDescriptor::new(x(&[3, 4]), GemmFactor::transposed(x(&[4, 5]))).err());
    add("types of factors", of(x(&[3, 4]), TensorDesc::contiguous(DType::F16, &[4, 5]).unwrap()).err());
    add("vector as b", of(x(&[3, 4]), x(&[4])).err());
    add("batch", of(x(&[2, 3, 4]), x(&[3, 4, 5])).err());
    add("batch, counted from the last", of(x(&[2, 3, 3, 4]), x(&[2, 4, 5])).err());
    add("alpha beyond f32", plain.clone().alpha(1e300).err());
    add("alpha below f32", plain.clone().alpha(1e-60).err());
    add("out type", plain.clone().out(DType::BF16).err());
    let doubles = |dims: &[u64]| TensorDesc::contiguous(DType::F64, dims).unwrap();
    add("bias type of f64", of(doubles(&[3, 4]), doubles(&[4, 5])).and_then(|d| d.bias(DType::F32)).err());
    add("bias length", plain.clone().bias(DType::F32).and_then(|d| d.layout("bias", x(&[4]))).err());
    add("out overlaps itself", plain.clone().layout("out", strided(&[3, 5], &[4, 1])).err());
    add("extents of an output", of(x(&[1 << 40, 1]), x(&[1, 1 << 40])).err());
    let halves = |dims: &[u64]| TensorDesc::contiguous(DType::F16, dims).unwrap();
    let wide = of(halves(&[1 << 61, 1]), halves(&[1, 1])).and_then(|d| d.backward(&["a"]));
    add("bytes of a gradient", wide.and_then(|d| d.da(DType::F32, 0.0)).err());
    let silu = plain.clone().activation(Activation::Silu).unwrap();
    add("no gradient of a product", silu.backward(&[]).err());
    add("no bias, no dbias", silu.backward(&["bias"]).err());
    add("saved output of silu", silu.backward_all().and_then(|d| d.saved(GemmSaved::Out)).err());
    add("beta NaN", silu.backward_all().and_then(|d| d.db(DType::F32, f64::NAN)).err());
    let b_alone = plain.backward(&["b"]);
    add("layout of a factor that is not read", b_alone.and_then(|d| d.layout("pre", x(&[3, 5]))).err());
    add(
        "json of a gradient that is an array",
        AnyDescriptor::parse(
            "gemm_backward",
            r#"{"a":{"dtype":"f32","dims":[3,4]},"b":{"dtype":"f32","dims":[4,5]},"da":["f32",0]}"#,
        )
        .err(),
    );
}

/// Refusals of convolutions.
fn convolutions(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let window = ConvWindow::new;
    let of = |x: TensorDesc, weight: TensorDesc, window: ConvWindow| ConvDescriptor::new(x, weight, window).err();
    let (image, weight) = (x(&[2, 6, 5, 7]), x(&[4, 6, 3, 3]));
    add("convolution without extents", of(x(&[2, 6]), x(&[4, 6]), window()));
    add("rank of a weight", of(image, x(&[4, 6, 3]), window()));
    add("image without a batch", of(x(&[6, 5, 7]), weight, window()));
    add("type of a weight", of(image, TensorDesc::contiguous(DType::F16, &[4, 6, 3, 3]).unwrap(), window()));
    add("channels of a weight", of(image, x(&[4, 5, 3, 3]), window()));
    add("extents in the order of NHWC", of(x(&[2, 5, 7, 6]), weight, window()));
    add("groups and channels in", of(image, x(&[4, 1, 3, 3]), window().groups(4)));
    add("groups and channels out", of(image, x(&[4, 2, 3, 3]), window().groups(3)));
    add("no groups", of(image, weight, window().groups(0)));
    add("strides", of(image, weight, window().stride(&[2])));
    add("stride of 0", of(image, weight, window().stride(&[1, 0])));
    add("stride beyond 31 bits", of(image, weight, window().stride(&[1 << 31, 1])));
    add("dilation of 0", of(image, weight, window().dilation(&[0, 1])));
    add("dilation without end", of(image, weight, window().dilation(&[1, u64::MAX])));
    add("padding without end", of(image, weight, window().padding(&[u64::MAX, 0])));
    add("y without end", of(image, weight, window().padding(&[(1 << 31) - 1; 2])));
    add("empty kernel", of(image, x(&[4, 6, 0, 3]), window()));
    add("kernel larger than the image", of(image, x(&[4, 6, 3, 9]), window().padding_per_side(&[[0, 0], [0, 1]])));
    add("kernel that reaches over the image", of(image, weight, window().dilation(&[3, 1])));
    let plain = ConvDescriptor::new(image, weight, window()).unwrap();
    add("type of a convolution's y", plain.clone().y(DType::BF16).err());
    add("bias of a channel too many", plain.clone().bias(DType::F32).and_then(|d| d.layout("bias", x(&[5]))).err());
    add("no bias of a convolution", plain.backward_bias().err());
    let relu = plain.clone().activation(Activation::Relu).and_then(|d| d.bias(DType::F32)).unwrap();
    add("gradient of the data through an activation", relu.backward_data().err());
    add("gradient of the weight through an activation", relu.backward_weight().err());
    add("gradient of the bias through an activation", relu.backward_bias().err());
    let data = |dy, dx| ConvBackwardDataDescriptor::new(dy, weight, dx, window().stride(&[2, 2])).err();
    add("dy that no dx has", data(x(&[2, 4, 2, 4]), image));
    add("dy of other samples", data(x(&[3, 4, 2, 3]), image));
    let weights = |dweight| ConvBackwardWeightDescriptor::new(image, x(&[2, 4, 3, 5]), dweight, window()).err();
    add("dweight of another kernel", weights(x(&[4, 6, 3, 2])));
    add("dweight of other channels", weights(x(&[4, 3, 3, 3])));
    let bias = |dtype| ConvBackwardBiasDescriptor::new(image).and_then(|d| d.dbias(dtype)).err();
    add("type of a convolution's dbias", bias(DType::F64));
    let image = r#"{"x":{"dtype":"f32","dims":[2,6,5]},"weight":{"dtype":"f32","dims":[4,6,3]}"#;
    add("negative padding", AnyDescriptor::parse("conv", &format!(r#"{image},"padding":[[-1,0]]}}"#)).err());
    add("padding of one side", AnyDescriptor::parse("conv", &format!(r#"{image},"padding":[1]}}"#)).err());
}

/// Refusals of transposed convolutions.
fn transposed_convolutions(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let window = ConvWindow::new;
    let of =
        |x: TensorDesc, weight: TensorDesc, window: ConvWindow| ConvTransposeDescriptor::new(x, weight, window).err();
    let (image, weight) = (x(&[2, 6, 5, 7]), x(&[6, 4, 3, 3]));
    add("transposed convolution without extents", of(x(&[2, 6]), x(&[6, 4]), window()));
    add("rank of a transposed weight", of(image, x(&[6, 4, 3]), window()));
    add("transposed image without a batch", of(x(&[6, 5, 7]), weight, window()));
    add("type of a transposed weight", of(image, TensorDesc::contiguous(DType::F16, &[6, 4, 3, 3]).unwrap(), window()));
    add("weight of a convolution", of(image, x(&[4, 6, 3, 3]), window()));
    add("groups of a transposed convolution", of(image, weight, window().groups(4)));
    add("no groups of a transposed convolution", of(image, weight, window().groups(0)));
    add("channels without end", of(x(&[2, 0, 5]), x(&[0, 1 << 40, 3]), window().groups(1 << 40)));
    add("strides of a transposed convolution", of(image, weight, window().stride(&[2])));
    add("empty kernel of a transposed convolution", of(image, x(&[6, 4, 0, 3]), window()));
    add("image without columns", of(x(&[2, 6, 5, 0]), weight, window()));
    add("padding that leaves nothing", of(image, weight, window().padding_per_side(&[[0, 0], [4, 5]])));
    add("extent without end", of(x(&[1, 1, 1 << 40]), x(&[1, 1, 1]), window().stride(&[1 << 30])));
    let further = |further: &[u64]| {
        ConvTransposeDescriptor::with_output_padding(image, weight, window().stride(&[2, 2]), further)
    };
    add("output padding of a stride", further(&[1, 2]).err());
    add("output padding of one extent", further(&[1]).err());
    add("type of a transposed convolution's y", further(&[]).and_then(|d| d.y(DType::BF16)).err());
}

/// Refusals of attention.
fn attentions(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let of = |dims: &[u64]| TensorDesc::contiguous(DType::F16, dims).unwrap();
    let (q, k) = (of(&[2, 4, 3, 8]), of(&[2, 2, 5, 8]));
    let three = of(&[2, 3, 5, 8]);
    let fits = AttentionDescriptor::new(q, k, k).unwrap();
    add("heads that do not divide", AttentionDescriptor::new(q, three, three).err());
    add("keys of another size", AttentionDescriptor::new(q, of(&[2, 2, 5, 7]), k).err());
    add("values of other keys", AttentionDescriptor::new(q, k, of(&[2, 2, 6, 8])).err());
    add("heads beyond 256", AttentionDescriptor::new(of(&[1, 1, 1, 257]), of(&[1, 1, 1, 257]), k).err());
    add("queries of rank 3", AttentionDescriptor::new(of(&[4, 3, 8]), k, k).err());
    let numbers = |dims: &[u64]| TensorDesc::contiguous(DType::I32, dims).unwrap();
    add("pages of other samples", AttentionDescriptor::paged(q, k, k, numbers(&[3, 4])).err());
    add("pages of rank 1", AttentionDescriptor::paged(q, k, k, numbers(&[2])).err());
    let paged = AttentionDescriptor::paged(q, k, k, numbers(&[2, 4])).unwrap();
    add("gradients of pages", paged.backward(&["k"]).err());
    add("a window below 0", fits.clone().window(Some(-1), None).err());
    add("a soft cap of 0", fits.clone().soft_cap(0.0).err());
    add("a bias that does not broadcast", fits.clone().bias(of(&[4, 5])).err());
    add("lengths that are no integers", fits.clone().lengths(DType::F32).err());
    add("backward without lse", fits.backward(&["q"]).err());
    let backward = fits.stats().and_then(|d| d.backward(&["q"])).unwrap();
    add("gradient of a bias that is not there", backward.dbias(0.0).err());
}

/// Refusals of LayerNorm, RMSNorm, softmax and cross-entropy.
fn rows_and_axes(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let integers = TensorDesc::contiguous(DType::I32, &[2, 2]).unwrap();
    add("not a float", LayerNormDescriptor::new(integers, 1).err());
    let plain = LayerNormDescriptor::new(x(&[2, 3]), 1).unwrap();
    let rms = RmsNormDescriptor::new(x(&[2, 3]), 1).unwrap();
    add("no dims", LayerNormDescriptor::new(x(&[2, 3]), 0).err());
    add("too many dims", LayerNormDescriptor::new(x(&[2, 3]), 3).err());
    add("eps below 0", plain.clone().eps(-1.0).err());
    add("eps NaN", plain.clone().eps(f64::NAN).err());
    add("eps infinite", rms.clone().eps(f64::INFINITY).err());
    add("weight type", plain.clone().weight(DType::F16).err());
    add(
        "bias type",
        LayerNormDescriptor::new(TensorDesc::contiguous(DType::F16, &[2, 3]).unwrap(), 1)
            .and_then(|d| d.weight(DType::F32))
            .and_then(|d| d.bias(DType::F16))
            .err(),
    );
    add("offset without a weight", rms.clone().weight_offset(1.0).err());
    add("layout of nothing", plain.clone().layout("h", x(&[2, 3])).err());
    add("layout of another shape", plain.clone().y(x(&[3, 2])).err());
    add(
        "output written twice",
        TensorDesc::strided(DType::F32, &[2, 3], &[0, 1]).and_then(|d| plain.clone().y(d)).err(),
    );
    add("axis past the rank", SoftmaxDescriptor::new(x(&[2, 3]), 2).err());
    add("scale NaN", SoftmaxDescriptor::new(x(&[2, 3]), 1).and_then(|d| d.scale(f64::NAN)).err());
    add("scale beyond f32", SoftmaxDescriptor::new(x(&[2, 3]), 1).and_then(|d| d.scale(1e39)).err());
    add("an output of f64", SoftmaxDescriptor::new(x(&[2, 3]), 1).and_then(|d| d.output(DType::F64)).err());
    attentions(add);
    let classes = |targets| CrossEntropyDescriptor::new(x(&[2, 3]), 1, targets);
    add("classes past the rank", CrossEntropyDescriptor::new(x(&[2, 3]), 2, DType::I64).err());
    add("no classes", CrossEntropyDescriptor::new(x(&[2, 0]), 1, DType::I64).err());
    add("targets that are neither classes nor probabilities", classes(DType::F16).err());
    add("an ignored index beside probabilities", classes(DType::F32).and_then(|d| d.ignore_index(1)).err());
    add("a count of probabilities out of range", classes(DType::F32).and_then(|d| d.count_missing()).err());
    add("an ignored target that targets cannot have", classes(DType::U32).and_then(|d| d.ignore_index(-100)).err());
    add("a weight of another type", classes(DType::U32).and_then(|d| d.weight(DType::F64)).err());
    let weighted = classes(DType::U32).and_then(|d| d.weight(DType::F32));
    add("a weight of another length", weighted.and_then(|d| d.layout("weight", x(&[4]))).err());
    add("all of the label smoothed", classes(DType::U32).and_then(|d| d.label_smoothing(1.0)).err());
    add("a z-loss below 0", classes(DType::U32).and_then(|d| d.z_loss(-1e-4)).err());
    add("an infinite z-loss", classes(DType::U32).and_then(|d| d.z_loss(f64::INFINITY)).err());
    let backward = r#"{"x":{"dtype":"f32","dims":[2,3]},"axis":1,"targets":"i64","missing":true}"#;
    add("a count of backward's", AnyDescriptor::parse("cross_entropy_backward", backward).err());
    add("gradient of targets", classes(DType::I64).unwrap().gradients(&["loss"], &["targets"]).err());
    let linear = |weight: &[u64], targets| LinearCrossEntropyDescriptor::new(x(&[2, 3]), x(weight), targets);
    add("a layer without classes", linear(&[0, 3], DType::I64).err());
    add("a layer of another width", linear(&[5, 4], DType::I64).err());
    add("a layer of another rank", linear(&[3], DType::I64).err());
    add("a layer whose targets are probabilities", linear(&[5, 3], DType::F32).err());
    add("a layer without a wanted gradient", linear(&[5, 3], DType::I64).and_then(|d| d.backward(&[])).err());
    let backward = || plain.clone().stats().and_then(|d| d.backward(&["x"])).unwrap();
    add("no such gradient to add up", backward().accumulate(&["dweight"]).err());
    add("an input that is to be added up", backward().accumulate(&["dy"]).err());
    let forward = r#"{"x":{"dtype":"f32","dims":[2,3]},"axis":1,"accumulate":["y"]}"#;
    add("a forward that adds up", AnyDescriptor::parse("softmax", forward).err());
    let bias = || ConvBackwardBiasDescriptor::new(x(&[2, 3, 4])).unwrap();
    add("a beta beside a sum", bias().beta(0.5).and_then(|d| d.accumulate(&["dbias"])).err());
    let asked = r#"{"x":{"dtype":"f32","dims":[2,3]},"weight":{"dtype":"f32","dims":[5,3]},"targets":"i64","dx":true}"#;
    add("a gradient that forward is asked for", AnyDescriptor::parse("linear_cross_entropy", asked).err());
    add("eps that is zero in f32", plain.clone().eps(1e-50).err());
    add(
        "no gradient",
        AnyDescriptor::parse("layer_norm_backward", r#"{"x":{"dtype":"f32","dims":[2,3]},"normalized_dims":1}"#).err(),
    );
    add("backward of rows without statistics", rms.backward_all().err());
    add("gradient of no weight", plain.clone().stats().and_then(|d| d.backward(&["x", "weight"])).err());
    let summed = rms.clone().weight(DType::F32).and_then(|d| d.residual()).unwrap();
    add("gradient of no output", summed.gradients(&["y", "rstd"], &["x"]).err());
    add("gradient that no output reaches", summed.gradients(&["h"], &["weight"]).err());
    add(
        "dh without dx",
        plain.clone().weight(DType::F32).and_then(|d| d.stats()?.backward(&["weight"])).and_then(|d| d.dh(true)).err(),
    );
}

/// Refusals of programs of elements.
fn programs(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let of = |dtype, dims: &[u64]| TensorDesc::contiguous(dtype, dims).unwrap();
    let single = |dims: &[u64]| of(DType::F32, dims);
    let sum = |x, y| PointwiseDescriptor::binary(Function::Add, x, y);
    let plain = sum(single(&[2, 3]), single(&[3])).unwrap();
    add("extents that do not broadcast", sum(single(&[2, 3]), single(&[2])).err());
    add("f64 beside f32", sum(of(DType::F64, &[3]), single(&[3])).err());
    add("integers", sum(single(&[3]), of(DType::I32, &[3])).err());
    add("a function of two arguments of one input", PointwiseDescriptor::unary(Function::Add, single(&[3])).err());
    add("no input", PointwiseDescriptor::new(Program::of(Function::Exp), Vec::new()).err());
    add("types of outputs that are too many", plain.clone().outputs(vec![DType::F32; 2]).err());
    let of_integers = PointwiseDescriptor::unary(Function::Exp, of(DType::I32, &[3]));
    add("a function of floating-point numbers of integers", of_integers.err());
    add("a number of bool", sum(of(DType::Bool, &[3]), single(&[3])).err());
    let repeated = TensorDesc::strided(DType::F32, &[2, 3], &[0, 1]).unwrap();
    add("an output that repeats elements", plain.clone().layout("out0", repeated).err());
    add("an output of other extents", plain.clone().layout("out0", single(&[3])).err());
    add("an operand that the program does not have", plain.clone().layout("in2", single(&[3])).err());
    let scaled = |number: f64| {
        let mut b = Program::builder();
        let x = b.input("x");
        let y = b.call(Function::Mul, [x, number.into()]);
        PointwiseDescriptor::new(b.finish([y]).unwrap(), vec![single(&[3])])
    };
    add("a number beyond f32", scaled(1e39).err());
    let greatest = ReduceDescriptor::of(single(&[3]), &[0], Reduction::ArgMax).unwrap();
    add("the gradient of a position", greatest.gradients(&["out0"], &["in0"]).err());
    let added = PointwiseDescriptor::binary(Function::Add, of(DType::I32, &[3]), of(DType::I32, &[3])).unwrap();
    let added = added.outputs(vec![DType::F32]).unwrap();
    add("the gradient of an integer", added.gradients(&["out0"], &["in1"]).err());
    let several = plain.sets(vec![vec![single(&[2]), single(&[2])]]).unwrap();
    add("a gradient of programs of several sets", several.gradients(&["out0"], &["in1"]).err());
    let summed = ReduceDescriptor::of(single(&[3]), &[0], Reduction::Sum).unwrap();
    let several = summed.clone().sets(vec![vec![single(&[2])]]).unwrap();
    add("a gradient of a reduction of several sets", several.gradients(&["out0"], &["in0"]).err());
    let through = |program: &str| {
        let finish = serde_json::from_str(program).unwrap();
        summed.clone().finish(finish).unwrap().gradients(&["out0"], &["in0"]).err()
    };
    let steps = through(r#"{"inputs":["v"],"let":[["c","gt","v",0],["y","where","c",1,0]],"outputs":["y"]}"#);
    add("a gradient through a finish of steps", steps);
    let zeta = through(r#"{"inputs":["v"],"let":[["y","zeta","v",2]],"outputs":["y"]}"#);
    add("a gradient through a finish without a derivative", zeta);
    let json = r#"{"program":{"inputs":["x"],"let":[["y","swish","x"]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[3]}]}"#;
    add("a function that does not exist", AnyDescriptor::parse("pointwise", json).err());
    add("an instruction without an argument", AnyDescriptor::parse("pointwise", &json.replace("swish", "add")).err());
    add("a name of nothing", AnyDescriptor::parse("pointwise", &json.replace(r#"swish","x""#, r#"exp","z""#)).err());
}

/// Refusals of JSON and of options.
fn texts(add: &mut impl FnMut(&'static str, Option<Error>)) {
    add("op", AnyDescriptor::parse("layernorm", "{}").err());
    let of = |op, fields: &str| {
        AnyDescriptor::parse(op, &format!(r#"{{"x":{{"dtype":"f32","dims":[2,3]}},{fields}}}"#)).err()
    };
    add("a bias that is true", of("layer_norm", r#""normalized_dims":1,"eps":0,"weight":"f32","bias":true"#));
    add("an activation that does not exist", of("batch_norm", r#""eps":1e-5,"activation":"swish""#));
    add("a field of another direction", of("activation", r#""activation":"relu","from_x":true"#));
    add("a field of another norm", of("group_norm", r#""groups":1,"eps":1e-5,"momentums":0.1"#));
    add("json", AnyDescriptor::parse("layer_norm", r#"{"x": 3}"#).err());
    add("json of no object", AnyDescriptor::parse("layer_norm", "null").err());
    add(
        "json of an invalid descriptor",
        AnyDescriptor::parse("layer_norm", r#"{"x":{"dtype":"f32","dims":[2]},"normalized_dims":2,"eps":0}"#).err(),
    );
    add(
        "json with an unknown field",
        AnyDescriptor::parse("rms_norm", r#"{"x":{"dtype":"f32","dims":[2]},"normalized_dims":1,"eps":0,"epsilon":1}"#)
            .err(),
    );
    add(
        "json with an invalid tensor",
        AnyDescriptor::parse("softmax", r#"{"x":{"dtype":"f32","dims":[2],"align":3},"axis":0}"#).err(),
    );
    add(
        "json that names a field twice",
        AnyDescriptor::parse("softmax", r#"{"x":{"dtype":"f32","dims":[2]},"axis":0,"axis":0}"#).err(),
    );
    add(
        "json with two layouts of an operand",
        AnyDescriptor::parse(
            "softmax",
            r#"{"x":{"dtype":"f32","dims":[2]},"axis":0,"layouts":{"y":{"dtype":"f32","dims":[2]},"y":{"dtype":"f32","dims":[2]}}}"#,
        )
        .err(),
    );
    add("json of an array", AnyDescriptor::parse("softmax", r#"[{"dtype":"f32","dims":[2]},0,false,1.0,{}]"#).err());
    let backward = SoftmaxDescriptor::new(x(&[2, 3]), 1).and_then(|d| d.backward()).unwrap();
    add("backward of a backward", AnyDescriptor::new(backward).gradients_all().err());
    let plain = LayerNormDescriptor::new(x(&[2, 3]), 1).unwrap();
    add("kernel of no backend", Plan::new(&Device::cpu(), plain, &PlanOptions::default().kernel("nonesuch")).err());
}

/// A LayerNorm of 2 rows of 3 elements with a weight and statistics, on the CPU.
fn small_plan() -> Plan<LayerNormDescriptor> {
    let descriptor = LayerNormDescriptor::new(x(&[2, 3]), 1).and_then(|d| d.weight(DType::F32)?.stats()).unwrap();
    Plan::new(&Device::cpu(), descriptor, &PlanOptions::default()).unwrap()
}

/// Refusals of operands.
fn operands(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let plan = small_plan();
    let mut queue = plan.device().queue();
    let input = [0f32; 6];
    let weight = [0f32; 3];
    let (mut y, mut mean, mut rstd) = ([0f32; 6], [0f32; 2], [0f32; 2]);
    let mut with = |change: &dyn for<'a> Fn(LayerNormArgs<'a>) -> LayerNormArgs<'a>| {
        let args = LayerNormArgs::new(&input[..], &mut y[..]).weight(&weight[..]).stats(&mut mean[..], &mut rstd[..]);
        plan.run(&mut queue, change(args), Workspace::none()).err()
    };
    static SHORT: [f32; 2] = [0.0; 2];
    static DOUBLE: [f64; 6] = [0.0; 6];
    add(
        "missing",
        with(&|mut a| {
            a.weight = None;
            a
        }),
    );
    add("unexpected", with(&|a| a.bias(&SHORT[..])));
    add("short", with(&|a| a.weight(&SHORT[..])));
    add(
        "type",
        with(&|mut a| {
            a.x = Mem::host(&DOUBLE);
            a
        }),
    );
    add("in place without a partner", with(&|a| a.weight(Mem::in_place())));
    let erased = plan.erase();
    add("operand count", erased.run(&mut queue, &mut [], Workspace::none()).err());
    let mut read_only = [
        Mem::host(&input).into(),
        Mem::host(&weight).into(),
        Mem::host(&input).into(),
        Mem::host(&input).into(),
        Mem::host(&input).into(),
    ];
    add("read only", erased.run(&mut queue, &mut read_only, Workspace::none()).err());
}

/// Refusals of buffers and their ranges.
fn buffers(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let plan = small_plan();
    let device = plan.device();
    let mut queue = device.queue();
    let weight = [0f32; 3];
    let buffer = device.alloc(64).unwrap();
    add(
        "overlap",
        plan.run(
            &mut queue,
            LayerNormArgs::new(MemIn(&buffer, 0, 24), MemOut(&buffer, 16, 24))
                .weight(&weight[..])
                .stats(&mut [0f32; 2][..], &mut [0f32; 2][..]),
            Workspace::none(),
        )
        .err(),
    );
    let other = device.alloc(64).unwrap();
    add(
        "overlap of outputs",
        plan.run(
            &mut queue,
            LayerNormArgs::new(&other, MemOut(&buffer, 0, 24))
                .weight(&weight[..])
                .stats(MemOut(&buffer, 16, 8), &mut [0f32; 2][..]),
            Workspace::none(),
        )
        .err(),
    );
    add(
        "beyond the buffer",
        plan.run(
            &mut queue,
            LayerNormArgs::new(MemIn(&other, 60, 24), &buffer)
                .weight(&weight[..])
                .stats(&mut [0f32; 2][..], &mut [0f32; 2][..]),
            Workspace::none(),
        )
        .err(),
    );
    add(
        "far beyond the buffer",
        plan.run(
            &mut queue,
            LayerNormArgs::new(MemIn(&other, u64::MAX - 3, 24), &buffer)
                .weight(&weight[..])
                .stats(&mut [0f32; 2][..], &mut [0f32; 2][..]),
            Workspace::none(),
        )
        .err(),
    );
    let (mut a, mut b) = ([0f32; 2], [0f32; 2]);
    add(
        "not bindable",
        plan.bind(
            LayerNormArgs::new(&[0f32; 6][..], &buffer).weight(&weight[..]).stats(&mut a[..], &mut b[..]),
            Workspace::none(),
        )
        .err(),
    );
    let bytes = device.alloc(64).unwrap();
    let mut at = |plan: &Plan<LayerNormDescriptor>, x: Mem<'_>| {
        let args = LayerNormArgs::new(x, &buffer).weight(&weight[..]);
        plan.run(&mut queue, args.stats(&mut [0f32; 2][..], &mut [0f32; 2][..]), Workspace::none()).err()
    };
    add("offset that breaks the promise", at(&plan, Mem::buffer(&bytes, 20, 24)));
    let lowered = x(&[2, 3]).for_offset(4).and_then(|x| LayerNormDescriptor::new(x, 1)?.weight(DType::F32)?.stats());
    let lowered = Plan::new(device, lowered.unwrap(), &PlanOptions::default()).unwrap();
    add("misaligned", at(&lowered, Mem::buffer(&bytes, 2, 24)));
    let words = [0f32; 8];
    add("misaligned on the host", at(&plan, Mem::host_bytes(&bytemuck::bytes_of(&words)[2..26])));
    add("download as another type", {
        let typed = device.upload(&[1f32]).unwrap();
        queue.download::<f64>(&typed).err()
    });
    add("download of half an element", queue.download::<f32>(&device.alloc(10).unwrap()).err());
    add("download from inside an element", queue.download_range(&bytes, 6, &mut [0f32; 2]).err());
    add("download beyond the end", queue.download_range(&bytes, 60, &mut [0f32; 2]).err());
    add("write beyond the end", device.write(&bytes, 60, &[0; 8]).err());
    add("out of memory", device.alloc(1 << 62).err());
}

/// Refusals of the norms with channels.
fn channel_norms(add: &mut impl FnMut(&'static str, Option<Error>)) {
    let x4 = x(&[2, 6, 3, 3]);
    let batch = BatchNormDescriptor::new(x4).unwrap();
    let relu = batch.clone().residual().and_then(|d| d.activation(Activation::Relu)).unwrap();
    let f32 = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims).unwrap();
    add("rank of channels", BatchNormDescriptor::new(x(&[6])).err());
    add("rank above 5", InstanceNormDescriptor::new(x(&[1, 2, 1, 1, 1, 4])).err());
    add("no groups", GroupNormDescriptor::new(x4, 0).err());
    add("groups that do not divide the channels", GroupNormDescriptor::new(x4, 4).err());
    add("training over one element", BatchNormDescriptor::new(x(&[1, 6, 1, 1])).err());
    add("one spatial element", InstanceNormDescriptor::new(x(&[8, 6, 1])).err());
    add("batch_norm eps 0", batch.clone().eps(0.0).err());
    add("group_norm eps below 0", GroupNormDescriptor::new(x4, 3).and_then(|d| d.eps(-1e-9)).err());
    add("momentum above 1", batch.clone().momentum(1.1).err());
    add("momentum below 0", InstanceNormDescriptor::new(x4).and_then(|d| d.momentum(-0.1)).err());
    let repeated = |dtype, dims: &[u64]| TensorDesc::strided(dtype, dims, &vec![0; dims.len()]).unwrap();
    add("y of a repeated x", LayerNormDescriptor::new(repeated(DType::F32, &[1 << 40, 1 << 22]), 1).err());
    add("dy of a repeated x", {
        let json = r#"{"x":{"dtype":"f32","dims":[1099511627776,2,2097152],"strides":[0,0,0]},"groups":1,"dx":true}"#;
        AnyDescriptor::parse("group_norm_backward", json).err()
    });
    let rows = TensorDesc::contiguous(DType::BF16, &[1 << 61, 1]).unwrap();
    add("statistics of too many rows", RmsNormDescriptor::new(rows, 1).and_then(|d| d.stats()).err());
    add("bytes of an output", SoftmaxDescriptor::new(rows, 1).and_then(|d| d.output(DType::F32)).err());
    add("momentum NaN", batch.clone().momentum(f64::NAN).err());
    add("momentum and count", batch.clone().momentum(0.1).and_then(|d| d.cumulative()).err());
    add("momentum in inference", BatchNormDescriptor::inference(x4).and_then(|d| d.momentum(0.1)).err());
    add("statistics in inference", BatchNormDescriptor::inference(x4).and_then(|d| d.stats()).err());
    add("length of statistics", batch.clone().stats().and_then(|d| d.layout("mean", f32(&[5]))).err());
    add(
        "shape of statistics",
        InstanceNormDescriptor::new(x4).and_then(|d| d.stats()?.layout("rstd", f32(&[6]))).err(),
    );
    add(
        "type of running statistics",
        TensorDesc::contiguous(DType::F16, &[6])
            .and_then(|d| batch.clone().momentum(0.1)?.layout("running_var", d))
            .err(),
    );
    add("backward without statistics", batch.backward_all().err());
    add("backward of groups without statistics", GroupNormDescriptor::new(x4, 3).and_then(|d| d.backward_all()).err());
    add("gradient of nothing", batch.clone().stats().and_then(|d| d.backward(&[])).err());
    add("residual without a place for its gradient", relu.clone().stats().and_then(|d| d.backward(&["x"])).err());
    add(
        "gradient of no residual",
        batch
            .clone()
            .stats()
            .and_then(|d| d.backward_all())
            .and_then(|d| d.residual(false)?.layout("dresidual", x4))
            .err(),
    );
    add(
        "y of another activation",
        relu.clone().activation(Activation::Silu).and_then(|d| d.stats()?.backward_all()?.from_y()).err(),
    );
    add(
        "groups of batch_norm",
        AnyDescriptor::parse("batch_norm", r#"{"x":{"dtype":"f32","dims":[2,3]},"groups":3,"eps":1e-5}"#).err(),
    );
    add(
        "residual of group_norm",
        AnyDescriptor::parse(
            "group_norm",
            r#"{"x":{"dtype":"f32","dims":[2,3]},"groups":3,"eps":1e-5,"residual":true}"#,
        )
        .err(),
    );
    add(
        "eps that rstd holds",
        AnyDescriptor::parse(
            "group_norm_backward",
            r#"{"x":{"dtype":"f32","dims":[2,3]},"groups":3,"eps":1e-5,"dx":true}"#,
        )
        .err(),
    );
}

/// A part of a buffer to read.
#[derive(Clone, Copy)]
struct MemIn<'a>(&'a Buffer, u64, u64);

/// A part of a buffer to write.
#[derive(Clone, Copy)]
struct MemOut<'a>(&'a Buffer, u64, u64);

impl<'a> From<MemIn<'a>> for Mem<'a> {
    fn from(part: MemIn<'a>) -> Self {
        Mem::buffer(part.0, part.1, part.2)
    }
}

impl<'a> From<MemOut<'a>> for MemMut<'a> {
    fn from(part: MemOut<'a>) -> Self {
        MemMut::buffer(part.0, part.1, part.2)
    }
}

/// Addresses differ from run to run.
fn without_addresses(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split(' ') {
        let is_address = word.starts_with("0x") && word.len() > 8;
        words.push(if is_address { "0x.." } else { word });
    }
    words.join(" ")
}

fn errors() -> Outcome {
    let text: String =
        refusals().iter().map(|(name, error)| format!("{name}: {}\n", without_addresses(&error.to_string()))).collect();
    if std::env::var_os(RENEW).is_some() {
        std::fs::write(baracuda_ops_tests::floor::root().join("tests/errors.txt"), &text)?;
        return Ok(());
    }
    let expected: BTreeMap<&str, &str> =
        include_str!("../errors.txt").lines().filter_map(|l| l.split_once(": ")).collect();
    let found: BTreeMap<&str, &str> = text.lines().filter_map(|l| l.split_once(": ")).collect();
    for (name, words) in &found {
        if expected.get(name) != Some(words) {
            let was = expected.get(name).unwrap_or(&"(nothing)");
            return Err(format!("{name} says {words:?}, tests/errors.txt {was:?}; {RENEW}=1 renews it").into());
        }
    }
    if expected.len() != found.len() {
        return Err("tests/errors.txt holds errors that are not tested".into());
    }
    Ok(())
}

/// Two threads with one output: one of them is told, and nothing is torn.
fn in_use() -> Outcome {
    let device = Device::cpu();
    let (rows, cols) = (2048, 512);
    let plan = Plan::new(&device, LayerNormDescriptor::new(x(&[rows, cols]), 1)?, &PlanOptions::default())?;
    let input = device.upload(&vec![1f32; (rows * cols) as usize])?;
    let output = device.alloc(rows * cols * 4)?;
    let run = || plan.run(&mut device.queue(), LayerNormArgs::new(&input, &output), Workspace::none());
    let refused = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    match run() {
                        Ok(()) => {}
                        Err(Error::BufferInUse { operand: "y", .. }) => {
                            refused.store(true, std::sync::atomic::Ordering::Relaxed)
                        }
                        Err(error) => panic!("{error}"),
                    }
                    if refused.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
    });
    if !refused.into_inner() {
        return Err("four threads wrote one buffer and none was refused".into());
    }
    run()?;
    // A workspace that nothing needs is in nobody's use.
    let shared = device.alloc(64)?;
    let runs = |_| {
        let output = device.alloc(rows * cols * 4)?;
        let args = || LayerNormArgs::new(&input, &output);
        (0..20).try_for_each(|_| plan.run(&mut device.queue(), args(), Workspace::new(&shared)))
    };
    (0..4).into_par_iter().try_for_each(runs)?;
    Ok(())
}

/// Bytes without a type serve any, if they are aligned for it.
fn host_bytes() -> Outcome {
    let device = Device::cpu();
    let plan = Plan::new(&device, LayerNormDescriptor::new(x(&[2, 4]), 1)?, &PlanOptions::default())?;
    let (input, mut output) = ([1f32, 2.0, 3.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0], [7f32; 8]);
    let input: &[u8] = bytemuck::cast_slice(&input);
    let mut run = |bytes| {
        let y = MemMut::host_bytes(bytemuck::cast_slice_mut(&mut output));
        plan.run(&mut device.queue(), LayerNormArgs::new(Mem::host_bytes(bytes), y), Workspace::none())
    };
    assert!(matches!(run(&input[2..34]), Err(Error::Misaligned { operand: "x", .. })));
    assert!(matches!(run(&input[..31]), Err(Error::TooSmall { operand: "x", need_bytes: 32, got_bytes: 31, .. })));
    run(&input[..32])?;
    assert!(output[..4].iter().sum::<f32>().abs() < 1e-5 && output[3] > 1.0 && output[4..] == [0f32; 4]);
    Ok(())
}

/// On every backend: each refusal comes before anything is launched, so outputs stay as they were.
fn refused_runs(device: &Device) -> Outcome {
    let descriptor = LayerNormDescriptor::new(x(&[4, 64]), 1)?.weight(DType::F32)?;
    let plan = Plan::new(device, descriptor, &PlanOptions::default())?;
    let input = device.upload(&[1.5f32; 256])?;
    let weight = device.upload(&[1f32; 64])?;
    let output = device.upload(&[7f32; 256])?;
    let halves = device.upload(&[half::f16::ONE; 64])?;
    let elsewhere = Device::cpu().upload(&[0f32; 256])?;
    let workspace = device.alloc(plan.workspace().bytes)?;
    let mut queue = device.queue();
    let mut run = |args: LayerNormArgs<'_>| plan.run(&mut queue, args, Workspace::new(&workspace));
    let kind = |error: Result<(), Error>| match error {
        Err(Error::MissingOperand { operand: "weight", .. }) => "missing",
        Err(Error::UnexpectedOperand { operand: "bias", .. }) => "unexpected",
        Err(Error::WrongDType { operand: "weight", .. }) => "dtype",
        Err(Error::TooSmall { operand: "y", need_bytes: 1024, got_bytes: 1023, .. }) => "small",
        Err(Error::Overlap { a: "weight", b: "y", .. }) => "overlap",
        Err(Error::Overlap { a: "x", b: "y", .. }) => "overlap in place",
        Err(Error::Misaligned { operand: "x", .. }) => "misaligned",
        Err(Error::WrongDevice { operand: "x", .. }) => "device",
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(run(LayerNormArgs::new(&input, &output))), "missing");
    assert_eq!(kind(run(LayerNormArgs::new(&input, &output).weight(&weight).bias(&weight))), "unexpected");
    assert_eq!(kind(run(LayerNormArgs::new(&input, &output).weight(&halves))), "dtype");
    assert_eq!(kind(run(LayerNormArgs::new(&input, MemOut(&output, 0, 1023)).weight(&weight))), "small");
    assert_eq!(kind(run(LayerNormArgs::new(&input, &output).weight(MemIn(&output, 0, 256)))), "overlap");
    let wide = device.alloc(2048)?;
    assert_eq!(
        kind(run(LayerNormArgs::new(MemIn(&wide, 0, 1024), MemOut(&wide, 16, 1024)).weight(&weight))),
        "overlap in place"
    );
    assert_eq!(kind(run(LayerNormArgs::new(MemIn(&wide, 2, 1024), &output).weight(&weight))), "misaligned");
    if device.backend() != baracuda_ops::Backend::Cpu {
        assert_eq!(kind(run(LayerNormArgs::new(&elsewhere, &output).weight(&weight))), "device");
        let host = [0f32; 256];
        assert_eq!(kind(run(LayerNormArgs::new(&host[..], &output).weight(&weight))), "device");
    }
    let after = queue.download::<f32>(&output)?;
    if after.iter().any(|v| *v != 7.0) {
        return Err("a refused run wrote to y".into());
    }
    plan.run(&mut queue, LayerNormArgs::new(&input, &output).weight(&weight), Workspace::new(&workspace))?;
    if queue.download::<f32>(&output)?.iter().any(|v| *v != 0.0) {
        return Err("a constant row is not 0".into());
    }
    Ok(())
}

/// Operands between whose elements others lie, as the parts of one tensor, but through wgpu; and an output whose strides lie between each other's.
fn interleaved(device: &Device) -> Outcome {
    let part = TensorDesc::strided(DType::F32, &[4, 64], &[128, 1])?;
    let plan = Plan::new(device, LayerNormDescriptor::new(part, 1)?.y(part)?, &PlanOptions::default())?;
    let both: Vec<f32> = (0..512).map(|at| if at / 64 % 2 == 0 { (at % 64) as f32 } else { 7.0 }).collect();
    let memory = device.upload(&both)?;
    let workspace = device.alloc(plan.workspace().bytes)?;
    let mut queue = device.queue();
    let mut run = |to: u64| {
        let args = LayerNormArgs::new(MemIn(&memory, 0, 1792), MemOut(&memory, to, 1792));
        plan.run(&mut queue, args, Workspace::new(&workspace))
    };
    assert!(matches!(run(240), Err(Error::Overlap { a: "x", b: "y", .. })));
    let result = run(256);
    if device.backend() == baracuda_ops::Backend::Wgpu {
        let words = result.unwrap_err().to_string();
        assert!(words.contains("though they share no element: through wgpu"), "{words}");
    } else {
        result?;
        let after = queue.download::<f32>(&memory)?;
        for (row, parts) in after.chunks(128).enumerate() {
            assert_eq!(parts[..64], both[..64], "row {row}");
            let total: f32 = parts[64..].iter().sum();
            assert!(total.abs() < 1e-3 && parts[127] > 1.0, "row {row}: {total}");
        }
    }

    let y = TensorDesc::strided(DType::F32, &[3, 2], &[2, 3])?;
    let plan = Plan::new(device, CopyDescriptor::new(x(&[3, 2]))?.layout("y", y)?, &PlanOptions::default())?;
    let (input, output) = (device.upload(&[1f32, 2.0, 4.0, 3.0, 5.0, 6.0])?, device.upload(&[7f32; 8])?);
    plan.run(&mut queue, CopyArgs::new(&input, &output), Workspace::none())?;
    assert_eq!(queue.download::<f32>(&output)?, [1.0, 7.0, 4.0, 2.0, 5.0, 3.0, 7.0, 6.0]);
    Ok(())
}

/// Owned buffers are held to what descriptors promise, whichever kernel runs.
fn promises(device: &Device) -> Outcome {
    let output = device.alloc(128)?;
    let run = |x: TensorDesc, offset| -> Result<(), Error> {
        let plan = Plan::new(device, LayerNormDescriptor::new(x, 1)?.y(x.align(16)?)?, &PlanOptions::default())?;
        let (input, workspace) = (device.alloc(256)?, device.alloc(plan.workspace().bytes)?);
        let args = LayerNormArgs::new(MemIn(&input, offset, x.span_bytes()), &output);
        // Bound, since `run` needs more of a borrowed wgpu device without immediates.
        plan.bind(args, Workspace::new(&workspace))?.run(&mut device.queue())
    };
    let words = |x, offset| run(x, offset).err().map(|error| error.to_string());
    let misaligned = |need: u64, offset: u64, then: &str| {
        Some(format!("layer_norm: operand x must start at a multiple of {need} bytes, got offset {offset}; {then}"))
    };
    let lower = "its descriptor promises that: TensorDesc::for_offset lowers the promise to what the offset keeps";
    let plain = x(&[2, 8]);
    for (x, offset, need) in [
        (plain, 4, 16),
        (plain, 24, 16),
        (plain.for_offset(24)?, 4, 8),
        (plain.align(64)?, 32, 64),
        (TensorDesc::contiguous(DType::BF16, &[2, 8])?, 2, 16),
    ] {
        assert_eq!(words(x, offset), misaligned(need, offset, lower));
    }
    for (x, offset) in [(plain, 16), (plain.for_offset(4)?, 4), (plain.for_offset(24)?, 24), (plain.align(64)?, 128)] {
        run(x, offset)?;
    }
    // No backend but wgpu, whose shaders read words, needs more than the promise.
    let halves = TensorDesc::contiguous(DType::BF16, &[2, 8])?.for_offset(2)?;
    let is_wgpu = device.backend() == baracuda_ops::Backend::Wgpu;
    let expected = if is_wgpu { misaligned(4, 2, "shaders address words of 4 bytes") } else { None };
    assert_eq!(words(halves, 2), expected);
    Ok(())
}

/// Words of 4 bytes, in which wgpu copies, hold two elements of 16 bits each.
fn parts(device: &Device) -> Outcome {
    let halves: Vec<half::f16> = (0..37u8).map(half::f16::from).collect();
    let buffer = device.upload(&halves)?;
    let mut queue = device.queue();
    for start in [0, 1, 2, 3, 34, 36, 37] {
        for length in [0, 1, 2, 3].into_iter().filter(|length| start + length <= halves.len()) {
            let mut part = vec![half::f16::NAN; length];
            queue.download_range(&buffer, 2 * start as u64, &mut part)?;
            assert_eq!(part, halves[start..start + length], "{length} from {start} on");
        }
    }
    let mut part = [half::f16::NAN; 2];
    let refused = queue.download_range(&buffer, 72, &mut part);
    assert!(matches!(refused, Err(Error::TooSmall { need_bytes: 4, got_bytes: 2, offset: 72, .. })), "{refused:?}");
    let refused = queue.download_range(&buffer, u64::MAX - 1, &mut part);
    assert!(matches!(refused, Err(Error::TooSmall { .. })), "{refused:?}");
    let refused = queue.download_range(&buffer, 3, &mut part);
    assert!(matches!(refused, Err(Error::Misaligned { need_bytes: 2, start: Start::Offset(3), .. })), "{refused:?}");
    let refused = queue.download_range(&buffer, 0, &mut [0f32; 1]);
    assert!(matches!(refused, Err(Error::WrongDType { got: DType::F16, .. })), "{refused:?}");
    assert!(part.iter().all(|v| v.is_nan()), "a refused download wrote to the slice");

    // After what was enqueued before it.
    let plan = Plan::new(device, LayerNormDescriptor::new(x(&[4, 8]), 1)?, &PlanOptions::default())?;
    let (input, output) = (device.upload(&[1.5f32; 32])?, device.upload(&[7f32; 32])?);
    let workspace = device.alloc(plan.workspace().bytes)?;
    plan.run(&mut queue, LayerNormArgs::new(&input, &output), Workspace::new(&workspace))?;
    let mut row = [7f32; 8];
    queue.download_range(&output, 32, &mut row)?;
    assert_eq!(row, [0f32; 8]);
    Ok(())
}

fn other_queue(device: &Device) -> Outcome {
    let plan = Plan::new(device, LayerNormDescriptor::new(x(&[2, 8]), 1)?, &PlanOptions::default())?;
    let (input, output) = (device.alloc(64)?, device.alloc(64)?);
    for other in TARGETS.iter().filter_map(|t| t.device.as_ref().ok()).filter(|other| *other != device) {
        let run = plan.run(&mut other.queue(), LayerNormArgs::new(&input, &output), Workspace::none());
        assert!(matches!(run, Err(Error::WrongDevice { operand: "queue", .. })), "{run:?}");
        let bound = plan.bind(LayerNormArgs::new(&input, &output), Workspace::none())?;
        let replay = bound.run(&mut other.queue());
        assert!(matches!(replay, Err(Error::WrongDevice { operand: "queue", .. })), "{replay:?}");
        let foreign = other.alloc(64)?;
        let run = plan.run(&mut device.queue(), LayerNormArgs::new(&foreign, &output), Workspace::none());
        assert!(matches!(run, Err(Error::WrongDevice { operand: "x", .. })), "{run:?}");
        let write = device.write(&foreign, 0, &[0; 4]);
        assert!(matches!(write, Err(Error::WrongDevice { .. })), "{write:?}");
    }
    Ok(())
}
