//! Attention through cuDNN: the problem in its terms, and what it leaves to kernels of this library.
//!
//! cuDNN states scores as products times a scale, with a causal mask or none; the rest of what the op may say is for the other forms. So are queries that
//! see no key. A backward computes all three gradients. With the same bits every time it keeps the gradients of all scores in the workspace, which
//! bounds for which lengths it serves.

use std::ffi::c_void;

use super::geometry::{Geometry, Mask};
use super::mma::LEAST_SCALE;
use super::{BackwardFields, ForwardFields, Valid, backward as rows_of_backward, forward as rows_of_forward};
use crate::backend::cuda::cublaslt::version_words;
use crate::backend::cuda::cudnn::attention::{AttentionProblem, Causal, Gradients};
use crate::backend::cuda::cudnn::{At, MAX_RANK, Tensor, WORKSPACE_ALIGN, WORKSPACE_BYTES};
use crate::backend::cuda::reach::{check_reach, sum_of_products};
use crate::backend::cuda::{self, Launch, Props};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, BuildError, Built, Candidate, Exec};
use crate::narrow::{signed, single};
use crate::options::{Determinism, PlanOptions, WorkspaceReq};
use crate::slots::Slot;
use crate::tensor::TensorDesc;

/// What rows are read in: each starts at a multiple of it.
const VEC_BYTES: u64 = 16;
/// The version before which engines are known to be wrong: 10000 times major, plus 100 times minor, plus patch.
const LEAST_VERSION: usize = 91_002;
/// The version from which backward is right about keys that fill no block of [`BLOCK_OF_KEYS`] and about rows wider than [`WIDEST_OF_BACKWARD`].
const RIGHT_BACKWARD_VERSION: usize = 91_501;
const BLOCK_OF_KEYS: i64 = 128;
/// The widest rows that backward takes, but on compute capability 9.0.
const WIDEST_OF_BACKWARD: u64 = 128;

/// The library and its version.
pub(super) fn library(device: &Device) -> Option<String> {
    let version = cuda::Device::of(device).ok()?.cudnn().ok()?.version();
    Some(format!("cuDNN {}", version_words(version)))
}

/// A pass over all queries and keys.
pub(super) fn forward<'d>(
    valid: &'d Valid<ForwardFields>,
    options: &PlanOptions,
    props: &Props,
    _: Ask,
) -> Accepted<'d> {
    Ok(Planned::of_forward(valid, options, props)?.candidate(options))
}

/// As [`forward`], of all three gradients.
pub(super) fn backward<'d>(
    valid: &'d Valid<BackwardFields>,
    options: &PlanOptions,
    props: &Props,
    _: Ask,
) -> Accepted<'d> {
    Ok(Planned::of_backward(valid, options, props)?.candidate(options))
}

/// A problem, and the positions of its operands.
struct Planned {
    problem: AttentionProblem,
    indices: Vec<usize>,
}

impl Planned {
    fn of_forward(valid: &Valid<ForwardFields>, options: &PlanOptions, props: &Props) -> Result<Self, Reason> {
        use rows_of_forward::{K, LSE, Q, V, Y};
        let slots = &valid.slots;
        let causal = check_scores(&valid.derived, valid.fields.q.dtype(), props)?;
        let [q, k, v, y] = [Q, K, V, Y].map(|row| rows(slots.always(row)));
        let lse = slots.at(LSE);
        if let Some(lse) = lse {
            check_lse(lse)?;
        }
        let problem = AttentionProblem {
            q: q?,
            k: k?,
            v: v?,
            y: y?,
            has_lse: lse.is_some(),
            causal,
            scale: single(valid.derived.scale.get()),
            gradients: None,
            is_reproducible: options.determinism != Determinism::Any,
            workspace_bytes: workspace_bytes(options, 0),
        };
        let indices = [Q, K, V, Y].map(|row| slots.always(row)).into_iter().chain(lse).map(|slot| slot.index);
        Ok(Self { problem, indices: indices.collect() })
    }

    fn of_backward(valid: &Valid<BackwardFields>, options: &PlanOptions, props: &Props) -> Result<Self, Reason> {
        use rows_of_backward::{DK, DQ, DV, DY, K, LSE, Q, V, Y};
        let (fields, geometry, slots) = (&valid.fields, &valid.derived, &valid.slots);
        let is_reproducible = options.determinism != Determinism::Any;
        Reason::unless(fields.dbias.is_none(), || "it has no gradient of the bias")?;
        for (name, gradient) in [("dq", fields.dq), ("dk", fields.dk), ("dv", fields.dv)] {
            let Some(gradient) = gradient else {
                return Err(format!("it computes the gradients of q, k and v together, {name} is not asked for").into());
            };
            Reason::unless(gradient.beta() == 0.0, || {
                format!("it adds to no gradient, of {name} beta is {}", gradient.beta())
            })?;
        }
        let causal = check_scores(geometry, fields.q.dtype(), props)?;
        Reason::unless(fields.q.dtype() == DType::BF16, || {
            format!("it takes bf16, since gradients of scores lose digits in f16, got {}", fields.q.dtype())
        })?;
        Reason::unless(geometry.group() == 1, || {
            format!("each head of q needs keys of its own, {} share some", geometry.group())
        })?;
        let widest = geometry.depth.max(geometry.value_depth);
        Reason::unless(widest <= WIDEST_OF_BACKWARD || (90..100).contains(&props.capability), || {
            format!("rows have {widest} columns, it takes at most {WIDEST_OF_BACKWARD} but on compute capability 9.0")
        })?;
        Reason::unless(geometry.queries > 1 || geometry.keys > 1, || "it has no backward of one query and one key")?;
        Reason::unless(!is_reproducible || props.capability < 100, || {
            let capability = props.capability;
            format!(
                "cuDNN does not say which of its engines compute the same bits every time on compute capability {capability}"
            )
        })?;
        let all = [Q, K, V, Y, DY, DQ, DK, DV];
        let [q, k, v, y, dy, dq, dk, dv] = all.map(|row| rows(slots.always(row)));
        let (y, dy) = (y?, dy?);
        Reason::unless(y.strides == dy.strides, || {
            let [y, dy] = [Y, DY].map(|row| slots.always(row).desc);
            format!("dy has to lie as y: strides {:?} and {:?}", dy.strides(), y.strides())
        })?;
        check_lse(slots.always(LSE))?;
        let Geometry { samples, heads, queries, keys, depth, .. } = *geometry;
        if is_reproducible {
            let scores = [samples, heads, queries, keys].into_iter().fold(1, u64::saturating_mul);
            check_reach(scores, || "the number of scores, whose gradients it keeps".into())?;
        }
        // Sums in f32: of dy and y, and of dq.
        let of_queries = queries.saturating_mul(if is_reproducible { 1 } else { 1 + depth });
        let sums = [samples, heads, of_queries].into_iter().fold(4, u64::saturating_mul);
        let problem = AttentionProblem {
            q: q?,
            k: k?,
            v: v?,
            y,
            has_lse: true,
            causal,
            scale: single(geometry.scale.get()),
            gradients: Some(Gradients { dy, dq: dq?, dk: dk?, dv: dv? }),
            is_reproducible,
            workspace_bytes: workspace_bytes(options, sums),
        };
        let indices = [Q, K, V, Y, LSE, DY, DQ, DK, DV].map(|row| slots.always(row).index);
        Ok(Self { problem, indices: indices.into() })
    }

    fn candidate<'d>(self, options: &PlanOptions) -> Candidate<'d> {
        Candidate {
            workspace: WorkspaceReq::new(self.problem.workspace_bytes, WORKSPACE_ALIGN),
            determinism: options.determinism.min(Determinism::RunToRun),
            ..Candidate::new(self.problem, move |device| self.build(device))
        }
    }

    fn build(self, device: &Device) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let cudnn = device.cudnn()?;
        check_version(&self.problem, cudnn.version()).map_err(BuildError::Refused)?;
        let plan = cudnn.plan(device, &self.problem)?;
        let launches = plan.launches();
        let used = plan.workspace_bytes().next_multiple_of(WORKSPACE_ALIGN);
        let indices = self.indices;
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            let mut tensors = [std::ptr::null_mut(); MOST_OPERANDS];
            let count = indices.len().min(MOST_OPERANDS);
            for (tensor, &index) in tensors.iter_mut().zip(&indices) {
                *tensor = located.pointer(index);
            }
            let at = At { tensors: &tensors[..count], workspace: located.workspace_pointer() };
            // SAFETY: the generic check proved every operand's span and alignment, and that the workspace holds what the plan uses.
            unsafe { plan.launch(&at, stream) }
        };
        let launch = Launch {
            workspace: Some(WorkspaceReq::new(used, WORKSPACE_ALIGN)),
            launches: Some(launches),
            ..Launch::new("cudnnBackendExecute", start)
        };
        Ok(Built(Exec::Cuda(launch)))
    }
}

/// Operands of a backward: q, k, v, y, lse, and four gradients.
const MOST_OPERANDS: usize = 9;

/// The most workspace of a run. Where the options set no limit, bytes that grow as operands do are not counted.
fn workspace_bytes(options: &PlanOptions, beside: u64) -> u64 {
    let limit = options.workspace_limit.unwrap_or(WORKSPACE_BYTES.saturating_add(beside));
    limit / WORKSPACE_ALIGN * WORKSPACE_ALIGN
}

/// Whether scores are what cuDNN can state, and the mask in its terms.
fn check_scores(geometry: &Geometry, dtype: DType, props: &Props) -> Result<Option<Causal>, Reason> {
    Reason::unless(matches!(dtype, DType::F16 | DType::BF16), || format!("it takes f16 and bf16, got {dtype}"))?;
    Reason::unless(props.capability >= 80, || {
        format!("it needs compute capability 8.0, this device has {}.{}", props.capability / 10, props.capability % 10)
    })?;
    Reason::unless(geometry.pages.is_none(), || "it has no pages")?;
    Reason::unless(geometry.mask == Mask::None, || "it adds no bias")?;
    Reason::unless(geometry.lengths.is_none(), || "samples with numbers of keys of their own are left to other forms")?;
    Reason::unless(geometry.soft_cap.is_none(), || "it has no soft cap")?;
    Reason::unless(
        geometry.left.is_none() && geometry.right.is_none_or(|right| right == 0),
        || "it has causal masks and no other windows",
    )?;
    let scale = geometry.scale.get();
    Reason::unless(scale >= LEAST_SCALE, || {
        format!("it takes the greatest product for the greatest score, which a scale of {scale:e} does not promise")
    })?;
    let Geometry { samples, heads, queries, keys, .. } = *geometry;
    Reason::unless([samples, heads, queries, keys].into_iter().all(|extent| extent > 0), || {
        format!(
            "cuDNN takes no tensor without elements: there are {samples} samples of {heads} heads of {queries} queries of {keys} keys"
        )
    })?;
    if geometry.right.is_none() {
        return Ok(None);
    }
    // With as many queries as keys the two masks are one.
    if !geometry.from_end || queries == keys {
        return Ok(Some(Causal::TopLeft));
    }
    Reason::unless(queries < keys, || {
        format!(
            "of {queries} queries the first {} see none of {keys} keys, which cuDNN does not promise zeros for",
            queries - keys
        )
    })?;
    Ok(Some(Causal::BottomRight))
}

/// Faults of versions that no number of the problem shows.
fn check_version(problem: &AttentionProblem, version: usize) -> Result<(), Reason> {
    let words = || version_words(version);
    Reason::unless(version >= LEAST_VERSION, || {
        format!("attention of cuDNN {} is known to be wrong, {} serves", words(), version_words(LEAST_VERSION))
    })?;
    let keys = problem.k.dims[2];
    let widest = problem.q.dims[3].max(problem.v.dims[3]).unsigned_abs();
    let is_plain = keys % BLOCK_OF_KEYS == 0 && widest <= WIDEST_OF_BACKWARD;
    Reason::unless(problem.gradients.is_none() || is_plain || version >= RIGHT_BACKWARD_VERSION, || {
        let least = version_words(RIGHT_BACKWARD_VERSION);
        format!(
            "backward of cuDNN {} takes keys in multiples of {BLOCK_OF_KEYS} and rows of at most {WIDEST_OF_BACKWARD} columns, got {keys} and {widest}; {least} takes them",
            words()
        )
    })
}

/// A tensor whose rows cuDNN can read.
fn rows(slot: &Slot) -> Result<Tensor, Reason> {
    let (name, desc) = (slot.name, &slot.desc);
    let vector = VEC_BYTES / desc.dtype().size_bytes();
    let (&[samples, heads, rows, columns], &[sample, head, row, column]) = (desc.dims(), desc.strides()) else {
        return Err(format!("{name} has {} extents, it takes 4", desc.rank()).into());
    };
    Reason::unless(columns.is_multiple_of(vector) && column == 1, || {
        format!(
            "rows of {name} have to be dense and of a multiple of {vector} columns, got {columns} with stride {column}"
        )
    })?;
    // The stride of a single element is as good as any other.
    let mut step = columns;
    let mut strides = [1; MAX_RANK];
    for ((axis, dim), stride) in [(2, rows), (1, heads), (0, samples)].into_iter().zip([row, head, sample]) {
        let stride = if dim == 1 { step } else { stride };
        Reason::unless(stride > 0 && stride.is_multiple_of(vector), || {
            let strides = desc.strides();
            format!(
                "rows of {name} have to start at multiples of {VEC_BYTES} bytes, each elsewhere: strides {strides:?}"
            )
        })?;
        step = step.max(stride.saturating_mul(dim));
        strides[axis] = signed(stride);
    }
    let reach = sum_of_products([
        [samples, strides[0].unsigned_abs()],
        [heads, strides[1].unsigned_abs()],
        [rows, strides[2].unsigned_abs()],
    ]);
    check_reach(reach, || format!("the place of the last element of {name}"))?;
    check_align(slot)?;
    let dims = [samples, heads, rows, columns, 1].map(signed);
    Ok(Tensor { dtype: desc.dtype(), rank: 4, dims, strides, align_bytes: signed(VEC_BYTES) })
}

fn check_align(Slot { name, desc, .. }: &Slot) -> Result<(), Reason> {
    let align_bytes = TensorDesc::align_bytes(desc);
    Reason::unless(align_bytes >= VEC_BYTES, || {
        format!("{name} has to lie at a multiple of {VEC_BYTES} bytes, {align_bytes} is promised")
    })
}

fn check_lse(slot: &Slot) -> Result<(), Reason> {
    Reason::unless(slot.desc.is_contiguous(), || {
        format!("it takes a dense lse, got strides {:?}", slot.desc.strides())
    })?;
    check_align(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::DeviceProps;
    use crate::ops::attention::{AttentionBackwardDescriptor, AttentionDescriptor, CausalMask};
    use crate::plan::Descriptor;

    fn contiguous(dims: [u64; 4]) -> TensorDesc {
        TensorDesc::contiguous(DType::BF16, &dims).unwrap()
    }

    fn of([b, hq, hk, sq, sk, d, dv]: [u64; 7]) -> AttentionDescriptor {
        let [q, k, v] = [[b, hq, sq, d], [b, hk, sk, d], [b, hk, sk, dv]].map(contiguous);
        AttentionDescriptor::new(q, k, v).unwrap().stats().unwrap()
    }

    fn small() -> AttentionDescriptor {
        of([2, 4, 2, 24, 40, 64, 128])
    }

    /// Whose heads share no keys.
    fn own() -> AttentionDescriptor {
        of([2, 4, 4, 24, 40, 64, 128])
    }

    fn backward(forward: &AttentionDescriptor) -> AttentionBackwardDescriptor {
        forward.backward(&["q", "k", "v"]).unwrap()
    }

    fn example(name: &str) -> Props {
        Props::examples().find(|props| props.name == name).unwrap()
    }

    fn planned(descriptor: &AttentionDescriptor) -> Result<Planned, String> {
        Planned::of_forward(&descriptor.0, &PlanOptions::default(), &example("H200")).map_err(|r| r.to_string())
    }

    fn planned_backward(descriptor: &AttentionBackwardDescriptor, options: &PlanOptions) -> Result<Planned, String> {
        Planned::of_backward(&descriptor.0, options, &example("H200")).map_err(|reason| reason.to_string())
    }

    #[track_caller]
    fn refused(result: Result<Planned, String>, told: &str) {
        let reason = result.err().unwrap();
        assert!(reason.contains(told), "{reason}");
    }

    #[test]
    fn operands_are_told_as_they_lie() {
        // Parts of one tensor [B, S, 3, H, D].
        let part = TensorDesc::strided(DType::F16, &[1, 8, 512, 64], &[0, 64, 1536, 1]).unwrap();
        let forward = AttentionDescriptor::new(part, part, part).unwrap().causal(CausalMask::BottomRight).unwrap();
        let Planned { problem, indices } = planned(&forward).unwrap();
        assert_eq!(problem.q.dims, [1, 8, 512, 64, 1]);
        // One sample lies beyond the rows of all heads.
        assert_eq!(problem.q.strides, [512 * 1536, 64, 1536, 1, 1]);
        assert_eq!(problem.y.strides, [8 * 512 * 64, 512 * 64, 64, 1, 1]);
        assert_eq!((problem.causal, problem.has_lse, problem.scale), (Some(Causal::TopLeft), false, 0.125));
        assert_eq!((indices.len(), problem.is_reproducible), (4, true));
        let forward = small().causal(CausalMask::BottomRight).unwrap();
        assert_eq!(planned(&forward).unwrap().problem.causal, Some(Causal::BottomRight));
        assert_eq!(planned(&small()).unwrap().problem.causal, None);
        let descriptor = backward(&own().causal(CausalMask::BottomRight).unwrap());
        let Planned { problem, indices } = planned_backward(&descriptor, &PlanOptions::default()).unwrap();
        let name = |index: &usize| descriptor.slots().iter().find(|slot| slot.index == *index).unwrap().name;
        assert!(indices.iter().map(name).eq(["q", "k", "v", "y", "lse", "dy", "dq", "dk", "dv"]));
        assert_eq!(problem.gradients.unwrap().dv.dims, [2, 4, 40, 128, 1]);
        assert_eq!(problem.workspace_bytes, WORKSPACE_BYTES + 4 * 2 * 4 * 24);
    }

    #[test]
    fn refusals_say_what_it_has_not() {
        let it = small();
        refused(planned(&it.clone().soft_cap(20.0).unwrap()), "soft cap");
        refused(planned(&it.clone().window(Some(3), None).unwrap()), "no other windows");
        refused(planned(&it.clone().lengths(DType::I32).unwrap()), "numbers of keys");
        refused(planned(&it.clone().scale(-1.0).unwrap()), "a scale of -1e0");
        let bias = TensorDesc::contiguous(DType::F32, &[40]).unwrap();
        refused(planned(&it.clone().bias(bias).unwrap()), "no bias");
        let more_queries = of([1, 1, 1, 9, 8, 8, 8]).causal(CausalMask::BottomRight).unwrap();
        refused(planned(&more_queries), "of 9 queries the first 1 see none of 8 keys");
        assert!(planned(&more_queries.causal(CausalMask::TopLeft).unwrap()).is_ok());
        refused(planned(&of([1, 1, 1, 9, 0, 8, 8])), "of 0 keys");
        refused(planned(&of([1, 1, 1, 9, 8, 12, 8])), "multiple of 8 columns, got 12 with stride 1");
        let repeated = TensorDesc::strided(DType::BF16, &[2, 4, 8, 8], &[0, 64, 8, 1]).unwrap();
        let forward = AttentionDescriptor::new(contiguous([2, 4, 8, 8]), repeated, repeated).unwrap();
        refused(planned(&forward), "rows of k have to start at multiples of 16 bytes, each elsewhere");
        let far = TensorDesc::strided(DType::BF16, &[2, 1, 8, 8], &[1 << 31, 64, 8, 1]).unwrap();
        refused(planned(&AttentionDescriptor::new(far, far, far).unwrap()), "the place of the last element of q is");
        let lse = TensorDesc::strided(DType::F32, &[2, 4, 24], &[96, 1, 4]).unwrap();
        refused(planned(&it.layout("lse", lse).unwrap()), "a dense lse, got strides [96, 1, 4]");
        let single = TensorDesc::contiguous(DType::F32, &[1, 1, 8, 8]).unwrap();
        refused(planned(&AttentionDescriptor::new(single, single, single).unwrap()), "f16 and bf16, got f32");
    }

    #[test]
    fn backward_takes_three_gradients_and_lies_of_y() {
        let options = PlanOptions::default();
        let it = backward(&own());
        refused(planned_backward(&own().backward(&["q", "v"]).unwrap(), &options), "dk is not asked for");
        refused(planned_backward(&it.clone().dv(0.5).unwrap(), &options), "of dv beta is 0.5");
        refused(planned_backward(&backward(&small()), &options), "keys of its own, 2 share some");
        let half = TensorDesc::contiguous(DType::F16, &[1, 1, 8, 8]).unwrap();
        let half = AttentionDescriptor::new(half, half, half).unwrap().stats().unwrap();
        refused(planned_backward(&backward(&half), &options), "it takes bf16");
        let dy = TensorDesc::strided(DType::BF16, &[2, 4, 24, 128], &[128 * 96, 128, 512, 1]).unwrap();
        refused(
            planned_backward(&it.layout("dy", dy).unwrap(), &options),
            "dy has to lie as y: strides [12288, 128, 512, 1]",
        );
        refused(planned_backward(&backward(&of([1, 1, 1, 1, 1, 8, 8])), &options), "one query and one key");
        let long = backward(&of([1, 32, 32, 16384, 16384, 64, 64]));
        refused(planned_backward(&long, &options), "the number of scores, whose gradients it keeps is 8589934592");
        let any = options.determinism(Determinism::Any);
        let problem = planned_backward(&long, &any).unwrap().problem;
        assert!(!problem.is_reproducible);
        assert_eq!(problem.workspace_bytes, WORKSPACE_BYTES + 4 * 32 * 16384 * 65);
        let wide = backward(&of([1, 2, 2, 256, 256, 136, 64]));
        assert!(planned_backward(&wide, &any).is_ok());
        let a100 = example("A100");
        let reason = Planned::of_backward(&wide.0, &any, &a100).err().unwrap().to_string();
        assert!(reason.contains("136 columns"), "{reason}");
    }

    #[test]
    fn versions_with_faults_are_refused() {
        let problem = planned(&small()).unwrap().problem;
        assert!(check_version(&problem, 91_002).is_ok());
        let reason = check_version(&problem, 91_001).unwrap_err().to_string();
        assert!(reason.contains("cuDNN 9.10.1") && reason.contains("9.10.2 serves"), "{reason}");
        let problem = planned_backward(&backward(&own()), &PlanOptions::default()).unwrap().problem;
        let reason = check_version(&problem, 91_500).unwrap_err().to_string();
        assert!(reason.contains("got 40 and 128"), "{reason}");
        assert!(check_version(&problem, 91_900).is_ok());
    }

    #[test]
    fn it_comes_before_the_form_on_tensor_cores_and_after_those_for_few_queries() {
        let h200 = DeviceProps::Cuda(example("H200"));
        let options = PlanOptions::default();
        let forward = of([2, 8, 8, 1024, 1024, 128, 128]);
        assert_eq!(h200.supports(&forward, &options).unwrap(), "attention_cudnn");
        assert_eq!(h200.supports(&backward(&forward), &options).unwrap(), "attention_backward_cudnn");
        let decode = of([8, 32, 8, 1, 4096, 128, 128]);
        assert_eq!(h200.supports(&decode, &options).unwrap(), "attention_split_mma");
        let invariant = options.determinism(Determinism::BatchInvariant);
        assert_eq!(h200.supports(&forward, &invariant).unwrap(), "attention_mma");
        let limited = PlanOptions::default().workspace_limit(1000);
        let candidate = Planned::of_forward(&forward.0, &limited, &example("H200")).unwrap().candidate(&limited);
        assert_eq!((candidate.workspace.bytes, candidate.determinism), (768, Determinism::RunToRun));
    }
}
