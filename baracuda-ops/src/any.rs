//! Descriptors of any op: what case files, repro lines and graph executors hold.

use std::any::Any;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::{Device, DeviceProps};
use crate::cache::PlanCache;
use crate::error::{Error, Result};
use crate::gradients::Step;
use crate::json::{Document, Tree};
use crate::kernel::Candidate;
use crate::options::PlanOptions;
use crate::plan::{self, AnyPlan, Descriptor, Plan, repro_line};
use crate::slots::Slot;
use crate::tensor::TensorDesc;

/// A descriptor of any op.
///
/// ```
/// use baracuda_ops::{AnyDescriptor, Device, PlanOptions};
/// let json = r#"{"x": {"dtype": "f32", "dims": [8, 64]}, "normalized_dims": 1, "eps": 1e-5}"#;
/// let plan = AnyDescriptor::parse("layer_norm", json)?.plan(&Device::cpu(), &PlanOptions::default())?;
/// assert_eq!(plan.slot_index("y"), Some(1));
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
///
/// Serialised, it is the op's name beside the descriptor: `{"op": "layer_norm", "descriptor": {..}}`. Objects that name a field twice,
/// and arrays in place of objects, are refused.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Document<Json>", into = "Json")]
pub struct AnyDescriptor(Arc<dyn Erased>);

impl AnyDescriptor {
    /// A descriptor without its type.
    pub fn new<D: Descriptor>(descriptor: D) -> Self {
        Self::shared(Arc::new(descriptor))
    }

    /// As [`new`](Self::new), of a descriptor that others hold as well.
    pub(crate) fn shared<D: Descriptor>(descriptor: Arc<D>) -> Self {
        Self(descriptor)
    }

    /// The op's name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Names of all operands of the op.
    pub fn operands(&self) -> &'static [&'static str] {
        self.0.operands()
    }

    /// The operands that the descriptor declares.
    pub fn slots(&self) -> &[Slot] {
        self.0.slots()
    }

    /// The repro line: the op's name, a space, the JSON.
    pub fn line(&self) -> String {
        self.0.line()
    }

    /// The descriptor with another layout of one operand, as the typed descriptors' `layout`.
    ///
    /// ```
    /// use baracuda_ops::{AnyDescriptor, DType, TensorDesc};
    /// let softmax = AnyDescriptor::parse("softmax", r#"{"x": {"dtype": "f32", "dims": [8, 64]}, "axis": 1}"#)?;
    /// let transposed = TensorDesc::strided(DType::F32, &[8, 64], &[1, 8])?;
    /// let softmax = softmax.layout("y", transposed)?;
    /// assert_eq!(softmax.slots()[1].desc, transposed);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] for an operand that is not declared, another shape or type, or a layout that the operand cannot have.
    pub fn layout(&self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.0.with_layout(operand, desc)
    }

    /// The descriptor with the gradients of these names added to what is there, as the typed descriptors' `accumulate`: for a tape that adds up gradients of
    /// several uses.
    ///
    /// ```
    /// use baracuda_ops::{Access, AnyDescriptor};
    /// let json = r#"{"x": {"dtype": "f32", "dims": [8, 64]}, "normalized_dims": 1, "weight": "f32", "dx": true, "dweight": true}"#;
    /// let backward = AnyDescriptor::parse("layer_norm_backward", json)?.accumulate(&["dweight"])?;
    /// let access = |name| backward.slots().iter().find(|slot| slot.name == name).map(|slot| slot.access);
    /// assert_eq!((access("dx"), access("dweight")), (Some(Access::Out), Some(Access::InOut)));
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] for a name that is not that of a gradient which the descriptor declares, or for an op that
    /// computes none.
    pub fn accumulate(&self, gradients: &[&str]) -> Result<Self> {
        self.0.with_accumulated(gradients)
    }

    /// As [`Descriptor::flops`].
    pub fn flops(&self) -> u64 {
        self.0.flops()
    }

    /// The descriptor, if it is of type `D`.
    pub fn downcast<D: Descriptor>(&self) -> Option<&D> {
        self.0.as_any().downcast_ref()
    }

    /// As [`Descriptor::gradients`].
    ///
    /// ```
    /// use baracuda_ops::{AnyDescriptor, Error, Role};
    /// let json = r#"{"x": {"dtype": "f32", "dims": [8, 64]}, "normalized_dims": 1, "eps": 1e-5, "weight": "f32"}"#;
    /// let forward = AnyDescriptor::parse("layer_norm", json)?;
    /// let steps = forward.gradients(&["y"], &["weight"])?;
    /// // The forward that writes the statistics, which this one leaves out; then the gradient.
    /// let names: Vec<_> = steps.iter().map(|step| step.descriptor.name()).collect();
    /// assert_eq!(names, ["layer_norm", "layer_norm_backward"]);
    /// assert_eq!(steps[1].role("dweight"), Some(&Role::GradientFor(vec!["weight"])));
    /// assert!(matches!(forward.gradients(&["mean"], &["x"]), Err(Error::NoGradient { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Descriptor::gradients`].
    pub fn gradients(&self, arriving: &[&str], wanted: &[&str]) -> Result<Vec<Step>> {
        self.0.steps(arriving, wanted)
    }

    /// As [`Descriptor::gradients_all`].
    ///
    /// # Errors
    /// As [`Descriptor::gradients`].
    pub fn gradients_all(&self) -> Result<Vec<Step>> {
        self.0.all_steps()
    }

    /// As [`Plan::new`], without the type.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self, device: &Device, options: &PlanOptions) -> Result<AnyPlan> {
        self.0.plan(device, options)
    }

    /// As [`PlanCache::plan`], without the type: the cache is that of typed descriptors.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn cached_plan(&self, cache: &PlanCache, device: &Device, options: &PlanOptions) -> Result<AnyPlan> {
        self.0.cached(cache, device, options)
    }

    /// As [`Device::supports`].
    ///
    /// # Errors
    /// As [`Device::supports`].
    pub fn supported_by(&self, device: &Device, options: &PlanOptions) -> Result<&'static str> {
        self.0.supported_with(&device.props(), options)
    }

    /// The form of each shader that a run dispatches on a device like this, in order: its entry and its files, whatever the numbers, flags
    /// and accessors that it is compiled with. For tests, which choose cases by it.
    #[doc(hidden)]
    pub fn shader_forms(&self, props: &DeviceProps, options: &PlanOptions) -> Vec<String> {
        self.0.shader_forms(props, options)
    }

    /// What would be run, in words: the kernel, its launches, its workspace and its alignment, what it promises, and what it chose. For
    /// tests, which hold choices fast.
    ///
    /// # Errors
    /// As [`DeviceProps::supports`].
    #[doc(hidden)]
    pub fn chosen_with(&self, props: &DeviceProps, options: &PlanOptions) -> Result<String> {
        self.0.chosen_with(props, options)
    }

    /// As [`DeviceProps::supports`].
    ///
    /// # Errors
    /// As [`DeviceProps::supports`].
    pub fn supported_with(&self, props: &DeviceProps, options: &PlanOptions) -> Result<&'static str> {
        self.0.supported_with(props, options)
    }

    /// As [`plan::candidates`].
    pub(crate) fn candidates<'d>(
        &'d self,
        props: &DeviceProps,
        options: &PlanOptions,
    ) -> Result<Vec<(&'static str, Candidate<'d>)>> {
        self.0.candidates(props, options)
    }
}

impl Debug for AnyDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

impl PartialEq for AnyDescriptor {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(other.0.as_any())
    }
}

impl Eq for AnyDescriptor {}

impl Hash for AnyDescriptor {
    fn hash<H: Hasher>(&self, mut state: &mut H) {
        self.0.name().hash(state);
        self.0.hash_into(&mut state);
    }
}

/// What a descriptor of any op is serialised as.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "an object with the op's name and its descriptor", deny_unknown_fields)]
pub(crate) struct Json {
    pub(crate) op: String,
    pub(crate) descriptor: Tree,
}

impl From<AnyDescriptor> for Json {
    fn from(any: AnyDescriptor) -> Self {
        Self { op: any.name().into(), descriptor: Tree(any.0.json()) }
    }
}

/// A descriptor behind a pointer.
trait Erased: Send + Sync {
    fn name(&self) -> &'static str;
    fn operands(&self) -> &'static [&'static str];
    fn slots(&self) -> &[Slot];
    fn line(&self) -> String;
    fn flops(&self) -> u64;
    fn as_any(&self) -> &dyn Any;
    fn equals(&self, other: &dyn Any) -> bool;
    fn hash_into(&self, state: &mut dyn Hasher);
    fn json(&self) -> Value;
    fn with_layout(&self, operand: &str, desc: TensorDesc) -> Result<AnyDescriptor>;
    fn with_accumulated(&self, gradients: &[&str]) -> Result<AnyDescriptor>;
    fn steps(&self, arriving: &[&str], wanted: &[&str]) -> Result<Vec<Step>>;
    fn all_steps(&self) -> Result<Vec<Step>>;
    fn plan(&self, device: &Device, options: &PlanOptions) -> Result<AnyPlan>;
    fn cached(&self, cache: &PlanCache, device: &Device, options: &PlanOptions) -> Result<AnyPlan>;
    fn supported_with(&self, props: &DeviceProps, options: &PlanOptions) -> Result<&'static str>;
    fn chosen_with(&self, props: &DeviceProps, options: &PlanOptions) -> Result<String>;
    fn shader_forms(&self, props: &DeviceProps, options: &PlanOptions) -> Vec<String>;
    fn candidates<'d>(
        &'d self,
        props: &DeviceProps,
        options: &PlanOptions,
    ) -> Result<Vec<(&'static str, Candidate<'d>)>>;
}

/// A descriptor whose JSON this library has written and then changed: what is wrong with it is the rule that it breaks, and not the JSON.
fn changed<D: Descriptor>(json: &Value) -> Result<AnyDescriptor> {
    D::from_value(json).map(AnyDescriptor::new).map_err(|error| match &error {
        Error::InvalidJson { source, .. } => source.downcast_ref::<Error>().cloned().unwrap_or(error),
        _ => error,
    })
}

impl<D: Descriptor> Erased for D {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn operands(&self) -> &'static [&'static str] {
        D::OPERANDS
    }

    fn slots(&self) -> &[Slot] {
        Descriptor::slots(self)
    }

    fn line(&self) -> String {
        repro_line(self)
    }

    fn flops(&self) -> u64 {
        Descriptor::flops(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<D>() == Some(self)
    }

    fn hash_into(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn json(&self) -> Value {
        plan::json(self)
    }

    fn with_layout(&self, operand: &str, desc: TensorDesc) -> Result<AnyDescriptor> {
        let mut json = plan::json(self);
        // Data that was validated always serialises.
        json["layouts"][operand] = serde_json::to_value(desc).unwrap_or_default();
        changed::<D>(&json)
    }

    fn with_accumulated(&self, gradients: &[&str]) -> Result<AnyDescriptor> {
        self.accumulated(gradients).map(AnyDescriptor::new)
    }

    fn steps(&self, arriving: &[&str], wanted: &[&str]) -> Result<Vec<Step>> {
        self.gradients(arriving, wanted)
    }

    fn all_steps(&self) -> Result<Vec<Step>> {
        self.gradients_all()
    }

    fn plan(&self, device: &Device, options: &PlanOptions) -> Result<AnyPlan> {
        Plan::new(device, self.clone(), options).map(Plan::erase)
    }

    fn cached(&self, cache: &PlanCache, device: &Device, options: &PlanOptions) -> Result<AnyPlan> {
        cache.plan(device, self, options).map(Plan::erase)
    }

    fn supported_with(&self, props: &DeviceProps, options: &PlanOptions) -> Result<&'static str> {
        props.supports(self, options)
    }

    fn chosen_with(&self, props: &DeviceProps, options: &PlanOptions) -> Result<String> {
        plan::chosen(props, self, options)
    }

    fn shader_forms(&self, props: &DeviceProps, options: &PlanOptions) -> Vec<String> {
        plan::shader_forms(props, self, options)
    }

    fn candidates<'d>(
        &'d self,
        props: &DeviceProps,
        options: &PlanOptions,
    ) -> Result<Vec<(&'static str, Candidate<'d>)>> {
        plan::candidates(props, self, options)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{
        Access, DType, Error, LayerNormBackwardDescriptor, LayerNormDescriptor, SoftmaxBackwardDescriptor,
        SoftmaxDescriptor, TensorDesc,
    };

    #[test]
    fn any_descriptor_is_a_key_and_data() {
        let x = TensorDesc::contiguous(DType::F32, &[8, 64]).unwrap();
        let softmax = |scale| AnyDescriptor::new(SoftmaxDescriptor::new(x, 1).unwrap().scale(scale).unwrap());
        let backward = AnyDescriptor::new(SoftmaxBackwardDescriptor::new(x, 1).unwrap());
        let keys: HashSet<_> = [softmax(0.1), softmax(0.2), softmax(0.1), backward].into_iter().collect();
        assert_eq!(keys.len(), 3);
        for any in keys {
            let json = serde_json::to_string(&any).unwrap();
            assert_eq!(serde_json::from_str::<AnyDescriptor>(&json).unwrap(), any, "{json}");
        }
        let unknown = serde_json::from_str::<AnyDescriptor>(r#"{"op":"convolve","descriptor":{}}"#).unwrap_err();
        assert!(unknown.to_string().contains("no op is named"), "{unknown}");
    }

    #[test]
    fn steps_are_those_of_the_typed_descriptor_and_equal_those_that_are_written() {
        let x = TensorDesc::contiguous(DType::F32, &[8, 64]).unwrap();
        let layer = LayerNormDescriptor::new(x, 1).unwrap().weight(DType::F32).unwrap().bias(DType::F32).unwrap();
        let layer = layer.stats().unwrap();
        for wanted in [&["x"][..], &["weight", "bias"], &["x", "weight", "bias"]] {
            let typed = AnyDescriptor::new(layer.backward(wanted).unwrap());
            let steps = AnyDescriptor::new(layer.clone()).gradients(&["y"], wanted).unwrap();
            assert_eq!(steps, layer.gradients(&["y"], wanted).unwrap());
            assert_eq!(steps.into_iter().map(|step| step.descriptor).collect::<Vec<_>>(), [typed]);
        }
        let written = LayerNormBackwardDescriptor::new(x, 1).unwrap().weight(DType::F32, true).unwrap();
        assert_eq!(layer.backward_all().unwrap(), written.bias(DType::F32).unwrap());
        let softmax = SoftmaxDescriptor::new(x, 1).unwrap();
        let typed = AnyDescriptor::new(softmax.backward().unwrap());
        assert_eq!(AnyDescriptor::new(softmax).gradients_all().unwrap()[0].descriptor, typed);
        assert_eq!(typed.gradients_all(), Err(Error::NoBackward { op: "softmax_backward" }));
    }

    #[test]
    fn slots_are_data() {
        let softmax = SoftmaxDescriptor::new(TensorDesc::contiguous(DType::F32, &[8, 64]).unwrap(), 1).unwrap();
        let slots = serde_json::to_string(AnyDescriptor::new(softmax).slots()).unwrap();
        let slot = |name, position, access, partner| {
            format!(
                r#"{{"name":"{name}","position":{position},"access":"{access}","desc":{{"dtype":"f32","dims":[8,64]}},"span_bytes":2048,"in_place":{partner}}}"#
            )
        };
        assert_eq!(slots, format!("[{},{}]", slot("x", 0, "in", 2), slot("y", 2, "out", 0)));
        assert_eq!(serde_json::to_string(&Access::InOut).unwrap(), r#""in_out""#);
        assert_eq!(serde_json::from_str::<Access>(r#""in_out""#).unwrap(), Access::InOut);
    }

    #[test]
    fn a_plan_tells_its_descriptor() {
        let softmax = SoftmaxDescriptor::new(TensorDesc::contiguous(DType::F32, &[8, 64]).unwrap(), 1).unwrap();
        let any = AnyDescriptor::new(softmax);
        let plan = any.plan(&Device::cpu(), &PlanOptions::default()).unwrap();
        assert_eq!(*plan.descriptor(), any);
        assert_eq!(plan.descriptor().line(), plan.info().repro());
        // The planned descriptor itself, not a copy of it.
        let again = plan.clone();
        assert!(Arc::ptr_eq(&plan.descriptor().0, &again.descriptor().clone().0));
    }

    #[test]
    fn any_descriptor_shares_the_cache_of_typed_ones() {
        let (device, options, cache) = (Device::cpu(), PlanOptions::default(), PlanCache::with_capacity(4));
        let softmax = SoftmaxDescriptor::new(TensorDesc::contiguous(DType::F32, &[8, 64]).unwrap(), 1).unwrap();
        cache.plan(&device, &softmax, &options).unwrap();
        AnyDescriptor::new(softmax).cached_plan(&cache, &device, &options).unwrap();
        assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
    }
}
