//! Descriptors as validated fields, and the declarations that follow from an op's name, args and fields.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::mem;

use crate::backend::cpu;
use crate::dtype::Real;
use crate::error::{Reason, Result};
use crate::kernel::Candidate;
use crate::ops::accumulation;
use crate::ops::fields::{demand, real};
use crate::plan::Descriptor;
use crate::sequence::{Lazy, Sequence};
use crate::slots::{Layouts, OperandEntry, Slots, SlotsBuilder};
use crate::tensor::TensorDesc;

/// What a type of descriptor stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<K> {
    pub(crate) name: &'static str,
    /// The family's table, and the names of the operands that the op has.
    pub(crate) table: &'static [OperandEntry],
    pub(crate) operands: &'static [&'static str],
    pub(crate) kind: K,
}

impl<K> PartialEq for Op<K> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<K> Eq for Op<K> {}

impl<K> Hash for Op<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// What tells two ops with the same fields apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The fields of a descriptor, as its JSON has them.
pub(crate) trait Fields: Clone + Debug + Eq + Hash {
    /// What tells ops with these fields apart.
    type Kind: Copy + Debug + Eq + Hash + 'static;
    /// What follows from the fields besides the slots; `()` for most.
    type Derived: Clone + Debug + Eq + Hash;
    /// Those fields that ops of a kind refuse, since other ops alone have them.
    fn lacks(_: Self::Kind) -> &'static [&'static str] {
        &[]
    }
    /// Layouts other than the default.
    fn layouts(&mut self) -> &mut Layouts;
    /// The gradients that are added to what is there.
    fn accumulate(&self) -> &Accumulate;
    /// As [`accumulate`](Self::accumulate), to change them.
    fn accumulate_mut(&mut self) -> &mut Accumulate;
    /// Brings what can be said in several ways into one, so that equal requests compare equal: a field that says its default is left out.
    fn normalise(&mut self, _: &Op<Self::Kind>) -> Result<()> {
        Ok(())
    }
    /// Checks the fields and declares the operands.
    fn declare(&self, op: &Op<Self::Kind>, slots: &mut SlotsBuilder<'_>) -> Result<Self::Derived>;
}

/// Names of gradients that are added to what is there.
pub(crate) type Accumulate = BTreeSet<String>;

/// Whether an op computes gradients, which can be added to what is there.
fn is_gradient(op: &str) -> bool {
    op.contains("_backward")
}

/// The fields that an op refuses, since other ops alone have them.
pub(crate) fn lacks<D: Described>() -> Vec<&'static str> {
    let of_kind = <D::Fields as Fields>::lacks(D::OP.kind).iter().copied();
    of_kind.chain((!is_gradient(D::OP.name)).then_some("accumulate")).collect()
}

/// Refuses fields that the op [lacks], which JSON may name, since ops that share a struct of fields read all of them. Those that have their default say nothing.
pub(crate) fn check_own<D: Described<Fields: serde::Serialize>>(fields: &D::Fields) -> Result<()> {
    let Ok(serde_json::Value::Object(given)) = serde_json::to_value(fields) else { return Ok(()) };
    lacks::<D>().into_iter().try_for_each(|field| {
        let rule = "is a field of other ops that this one lacks; leave it out";
        demand(D::OP.name, field, !given.contains_key(field), rule)
    })
}

/// Validated fields, with the slots that follow from them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Valid<F: Fields> {
    pub(crate) op: Op<F::Kind>,
    pub(crate) fields: F,
    pub(crate) derived: F::Derived,
    pub(crate) slots: Slots,
    accumulation: Lazy,
}

impl<F: Fields> Valid<F> {
    pub(crate) fn new(op: Op<F::Kind>, mut fields: F) -> Result<Self> {
        fields.normalise(&op)?;
        let mut layouts = mem::take(fields.layouts());
        let mut slots = SlotsBuilder::new(op.name, op.table, op.operands, &mut layouts);
        let derived = fields.declare(&op, &mut slots)?;
        let is_asked = !fields.accumulate().is_empty();
        demand(
            op.name,
            "accumulate",
            !is_asked || is_gradient(op.name),
            "is of ops that compute gradients, which this one does not",
        )?;
        slots.accumulate(fields.accumulate())?;
        let slots = slots.finish()?;
        *fields.layouts() = layouts;
        Ok(Self { op, fields, derived, slots, accumulation: Lazy::default() })
    }

    /// Adds gradients to what is there.
    pub(crate) fn accumulate(self, gradients: &[&str]) -> Result<Self> {
        self.with(|fields| fields.accumulate_mut().extend(gradients.iter().map(|&name| name.into())))
    }

    /// What runs in place of the op's kernels if gradients are added to what is there, of a type of descriptor.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn accumulation<D: Descriptor>(&self, descriptor: fn(Self) -> D) -> Result<Option<&Sequence>, Reason> {
        if self.fields.accumulate().is_empty() {
            return Ok(None);
        }
        self.accumulation.get(|| accumulation::sequence(self, descriptor)).map(Some)
    }

    /// Changes fields and validates again.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut F)) -> Result<Self> {
        change(&mut self.fields);
        Self::new(self.op, self.fields)
    }

    /// Changes a number, which has to be finite.
    pub(crate) fn real(self, field: &'static str, value: f64, change: impl FnOnce(&mut F, Real)) -> Result<Self> {
        let value = real(self.op.name, field, value)?;
        self.with(|fields| change(fields, value))
    }

    /// Gives an operand another layout.
    pub(crate) fn layout(self, operand: &str, desc: TensorDesc) -> Result<Self> {
        self.with(|fields| {
            fields.layouts().insert(operand.into(), desc);
        })
    }

    /// The backward with these fields, which `lay` gives forward's layout of x: `dy` lies as `y` does.
    pub(crate) fn backward_of(&self, op: Op<F::Kind>, y: usize, lay: impl FnOnce(&mut F)) -> Result<Self> {
        let mut fields = self.fields.clone();
        lay(&mut fields);
        let layouts = self.slots.at(y).map(|y| ("dy".to_string(), y.desc));
        *fields.layouts() = Layouts::new();
        fields.layouts().extend(layouts);
        Self::new(op, fields)
    }
}

impl<F: Fields<Kind: Send + Sync, Derived: Send + Sync> + Send + Sync + 'static> Valid<F> {
    /// The candidate of a reference that needs only the validated fields.
    pub(crate) fn on_cpu<E: cpu::Ended>(
        &self,
        compute: impl Fn(&Self, &cpu::Operands<'_>) -> E + Send + Sync + 'static,
    ) -> Candidate<'_> {
        Candidate::on_cpu(move || {
            let valid = self.clone();
            move |operands| compute(&valid, operands)
        })
    }
}

/// A descriptor that is validated fields.
pub(crate) trait Described: Descriptor {
    /// Its fields.
    type Fields: Fields;
    /// The op.
    const OP: Op<<Self::Fields as Fields>::Kind>;
    /// The validated fields.
    fn valid(&self) -> &Valid<Self::Fields>;
}

/// The fields of a descriptor, in the order of its JSON, which ends in `accumulate` and `layouts`. After its type a field may have `= default`, the
/// default of that type, or `= one`: such fields are left out of the JSON where they have this value. `minimal` takes the other
/// fields, and gives these their defaults. `Fields<..>` are implemented by methods of the same names: `declare`, and `normalise` if
/// it is named; `lacks` names a function.
macro_rules! fields {
    (
        $(#[$doc:meta])*
        $Fields:ident: Fields<Kind = $Kind:ty, Derived = $Derived:ty> $(+ $normalise:ident)? $(lacks $lacks:path)? {
            $($field:tt)*
        }
    ) => {
        fields!(@next [$(#[$doc])* $Fields] [] [] [] $($field)*);

        impl $crate::ops::valid::Fields for $Fields {
            type Kind = $Kind;
            type Derived = $Derived;

            $(fn lacks(kind: $Kind) -> &'static [&'static str] {
                $lacks(kind)
            })?

            fn layouts(&mut self) -> &mut $crate::slots::Layouts {
                &mut self.layouts
            }

            fn accumulate(&self) -> &$crate::ops::valid::Accumulate {
                &self.accumulate
            }

            fn accumulate_mut(&mut self) -> &mut $crate::ops::valid::Accumulate {
                &mut self.accumulate
            }

            $(fn $normalise(&mut self, op: &$crate::ops::valid::Op<$Kind>) -> $crate::error::Result<()> {
                Self::$normalise(self, op)
            })?

            fn declare(
                &self,
                op: &$crate::ops::valid::Op<$Kind>,
                slots: &mut $crate::slots::SlotsBuilder<'_>,
            ) -> $crate::error::Result<$Derived> {
                Self::declare(self, op, slots)
            }
        }
    };
    (@next $head:tt [$($struct:tt)*] [$($param:tt)*] [$($init:tt)*]
        $(#[$meta:meta])* $field:ident: $ty:ty, $($rest:tt)*) => {
        fields!(@next $head
            [$($struct)* $(#[$meta])* pub(crate) $field: $ty,]
            [$($param)* $field: $ty,] [$($init)* $field,] $($rest)*);
    };
    (@next $head:tt [$($struct:tt)*] $params:tt [$($init:tt)*]
        $(#[$meta:meta])* $field:ident: $ty:ty = default, $($rest:tt)*) => {
        fields!(@next $head
            [$($struct)* $(#[$meta])* #[serde(default, skip_serializing_if = "crate::ops::fields::is_default")]
                pub(crate) $field: $ty,]
            $params [$($init)* $field: Default::default(),] $($rest)*);
    };
    (@next $head:tt [$($struct:tt)*] $params:tt [$($init:tt)*]
        $(#[$meta:meta])* $field:ident: $ty:ty = one, $($rest:tt)*) => {
        fields!(@next $head
            [$($struct)* $(#[$meta])*
                #[serde(default = "crate::ops::fields::one", skip_serializing_if = "crate::ops::fields::is_one")]
                pub(crate) $field: $ty,]
            $params [$($init)* $field: $crate::ops::fields::one(),] $($rest)*);
    };
    (@next [$(#[$doc:meta])* $Fields:ident] [$($struct:tt)*] [$($param:tt)*] [$($init:tt)*]) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(expecting = "an object with the fields of the descriptor", deny_unknown_fields)]
        pub(crate) struct $Fields {
            $($struct)*
            #[serde(default, skip_serializing_if = "crate::ops::fields::is_default")]
            pub(crate) accumulate: $crate::ops::valid::Accumulate,
            #[serde(default, skip_serializing_if = "crate::ops::fields::is_default")]
            pub(crate) layouts: $crate::slots::Layouts,
        }

        impl $Fields {
            /// The fields with the default of every field that has one.
            pub(crate) fn minimal($($param)*) -> Self {
                Self { $($init)* accumulate: Default::default(), layouts: Default::default() }
            }
        }
    };
}
pub(crate) use fields;

/// A descriptor: its fields, the op's name, what tells it from others with the same fields, its args and the table of their operands,
/// the name of its plan, its kernels; if it has gradients, at which outputs they arrive, which inputs have them, and the function that
/// derives the steps; then its constructors, each with the fields that it starts from.
macro_rules! descriptor {
    (
        $(#[$doc:meta])*
        $Descriptor:ident($Fields:ty): $name:literal, $kind:expr;
        args: $Args:ident of $table:ident;
        plan: $Plan:ident;
        kernels: $kernels:expr;
        $(gradients: [$($output:literal),*] => [$($input:literal),*], $derive:expr;)?
        $(flops: $flops:expr;)?
        $($(#[$new_doc:meta])* fn $new:ident($($arg:ident: $arg_ty:ty),*) = $start:expr;)*
    ) => {
        #[doc = concat!("A plan of [`", stringify!($Descriptor), "`].")]
        pub type $Plan = $crate::plan::Plan<$Descriptor>;

        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $Descriptor($crate::ops::valid::Valid<$Fields>);

        impl $Descriptor {
            $(
                $(#[$new_doc])*
                pub fn $new($($arg: $arg_ty),*) -> Result<Self, Error> {
                    $crate::ops::valid::Valid::new(Self::OP, $start).map(Self)
                }
            )*
        }

        impl TryFrom<$crate::json::Object<$Fields>> for $Descriptor {
            type Error = Error;

            fn try_from(object: $crate::json::Object<$Fields>) -> Result<Self, Error> {
                $crate::ops::valid::check_own::<Self>(&object.0)?;
                $crate::ops::valid::Valid::new(Self::OP, object.0).map(Self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Descriptor {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let lacks = $crate::ops::valid::lacks::<Self>();
                let $crate::json::Document(fields) = $crate::json::Document::without(&lacks, deserializer)?;
                $crate::json::Object(fields).try_into().map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $Descriptor {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.fields.serialize(serializer)
            }
        }

        impl $crate::plan::sealed::Sealed for $Descriptor {}

        impl $crate::plan::Descriptor for $Descriptor {
            const NAME: &'static str = $name;
            const OPERANDS: &'static [&'static str] = $Args::OPERANDS;
            const TABLE: &'static [$crate::slots::OperandEntry] = $table::TABLE;
            const MODULE: &'static str = module_path!();
            type Args<'a> = $Args<'a>;

            fn slots(&self) -> &[$crate::slots::Slot] {
                &self.0.slots
            }

            fn accumulation(&self) -> Result<Option<&$crate::sequence::Sequence>, $crate::error::Reason> {
                self.0.accumulation(Self)
            }

            fn accumulated(&self, gradients: &[&str]) -> Result<Self, Error> {
                self.0.clone().accumulate(gradients).map(Self)
            }

            fn from_json(json: &str) -> Result<Self, Error> {
                let lacks = $crate::ops::valid::lacks::<Self>();
                $crate::json::parse::<Self, $Fields>(Self::NAME, &lacks, json)
            }

            fn from_value(json: &serde_json::Value) -> Result<Self, Error> {
                let lacks = $crate::ops::valid::lacks::<Self>();
                $crate::json::read::<Self, $Fields>(Self::NAME, &lacks, json)
            }

            $(
                const DIFFERENTIABLE: $crate::gradients::Differentiable =
                    $crate::gradients::Differentiable { outputs: &[$($output),*], inputs: &[$($input),*] };

                fn derive(&self, derivation: &mut $crate::gradients::Derivation) -> Result<(), Error> {
                    let derive: fn(&Self, &mut $crate::gradients::Derivation) -> Result<(), Error> = $derive;
                    derive(self, derivation)
                }
            )?

            fn kernels() -> &'static [&'static dyn $crate::kernel::Kernel<Self>] {
                $kernels
            }

            $(fn flops(&self) -> u64 {
                $flops(&self.0)
            })?
        }

        impl $crate::ops::valid::Described for $Descriptor {
            type Fields = $Fields;
            const OP: $crate::ops::valid::Op<<$Fields as $crate::ops::valid::Fields>::Kind> =
                $crate::ops::valid::Op { name: $name, table: $table::TABLE, operands: $Args::OPERANDS, kind: $kind };

            fn valid(&self) -> &$crate::ops::valid::Valid<$Fields> {
                &self.0
            }
        }
    };
}
pub(crate) use descriptor;

/// The kernels of an op, in the order in which they are tried: lists for the backends that are compiled in; or for each of them a
/// function of the validated fields, which through wgpu makes the dispatches; or forms, by their names behind the op's, which such
/// functions are that are told how they are asked. On CUDA one of them can be a vendor's, `of` the library that serves it.
macro_rules! kernels {
    (cuda: {
        $($cuda_form:literal => $cuda:path),*
        $(; $vendor_form:literal => $vendor:path, of $library:path; $($later_form:literal => $later:path),*)?
    }; wgpu: {$($wgpu_form:literal => $wgpu:path),*};
        cpu: $cpu:expr $(; before: {$($cpu_form:literal => $cpu_path:path),*})?) => {
        const {
            &[
                $(
                    #[cfg(feature = "cuda")]
                    &$crate::plan::Function::CudaForm(
                        $crate::plan::form_name!(Self, $cuda_form),
                        |descriptor, props, ask| $cuda(Described::valid(descriptor), props, ask),
                    ),
                )*
                $(
                    #[cfg(feature = "cuda")]
                    &$crate::plan::Function::CudaVendor(
                        $crate::plan::form_name!(Self, $vendor_form),
                        |descriptor, options, props, ask| $vendor(Described::valid(descriptor), options, props, ask),
                        $library,
                    ),
                    $(
                        #[cfg(feature = "cuda")]
                        &$crate::plan::Function::CudaForm(
                            $crate::plan::form_name!(Self, $later_form),
                            |descriptor, props, ask| $later(Described::valid(descriptor), props, ask),
                        ),
                    )*
                )?
                $(
                    #[cfg(feature = "wgpu")]
                    &$crate::plan::Function::WgpuForm(
                        $crate::plan::form_name!(Self, $wgpu_form),
                        |descriptor, props, ask| Ok($wgpu(Described::valid(descriptor), props, ask)?.candidate()),
                    ),
                )*
                $($(
                    &$crate::plan::Function::CpuForm(
                        $crate::plan::form_name!(Self, $cpu_form),
                        |descriptor| $cpu_path(Described::valid(descriptor)),
                    ),
                )*)?
                &$crate::plan::Function::Cpu(|descriptor| $cpu(Described::valid(descriptor))),
            ]
        }
    };
    (cuda: [$($cuda:expr),*]; wgpu: [$($wgpu:expr),*]; cpu: [$($cpu:expr),*]) => {
        &[
            $(#[cfg(feature = "cuda")] &$cuda,)*
            $(#[cfg(feature = "wgpu")] &$wgpu,)*
            $(&$cpu,)*
        ]
    };
    (cuda: [$($cuda:expr),*]; wgpu: [$($wgpu:expr),*]; cpu: $cpu:expr $(; before: {$($cpu_form:literal => $cpu_path:path),*})?) => {
        const {
            &[
                $(#[cfg(feature = "cuda")] &$cuda,)*
                $(#[cfg(feature = "wgpu")] &$wgpu,)*
                $($(
                    &$crate::plan::Function::CpuForm(
                        $crate::plan::form_name!(D, $cpu_form),
                        |descriptor| $cpu_path(Described::valid(descriptor)),
                    ),
                )*)?
                &$crate::plan::Function::Cpu(|descriptor| $cpu(Described::valid(descriptor))),
            ]
        }
    };
    (cuda: $cuda:expr; wgpu: $wgpu:expr; cpu: $cpu:expr $(; before: {$($cpu_form:literal => $cpu_path:path),*})?) => {
        const {
            &[
                #[cfg(feature = "cuda")]
                &$crate::plan::Function::Cuda(|descriptor, props| $cuda(Described::valid(descriptor), props)),
                #[cfg(feature = "wgpu")]
                &$crate::plan::Function::Wgpu(|descriptor, props| {
                    Ok($wgpu(Described::valid(descriptor), props)?.candidate())
                }),
                $($(
                    &$crate::plan::Function::CpuForm(
                        $crate::plan::form_name!(Self, $cpu_form),
                        |descriptor| $cpu_path(Described::valid(descriptor)),
                    ),
                )*)?
                &$crate::plan::Function::Cpu(|descriptor| $cpu(Described::valid(descriptor))),
            ]
        }
    };
}
pub(crate) use kernels;

/// The steps by which a descriptor gets its options: of each the name, the arguments, and what it makes of the validated fields, which
/// validates again. The type is that of every other step, also where nothing can be wrong.
macro_rules! steps {
    ($Descriptor:ident $($(#[$doc:meta])* $step:ident($($arg:ident: $ty:ty),*) = |$valid:ident| $body:expr;)*) => {
        impl $Descriptor {
            $(
                $(#[$doc])*
                pub fn $step(self, $($arg: $ty),*) -> Result<Self> {
                    let $valid = self.0;
                    $body.map(Self)
                }
            )*
        }
    };
}
pub(crate) use steps;

/// Steps that several ops have, by their names: `shared_steps! { LayerNormDescriptor: weight, bias, layout }`. Those with `gradient`
/// in front are of backwards, and say what forward had.
macro_rules! shared_steps {
    ($Descriptor:ident: $($step:ident),*) => {
        $(shared_steps!($step $Descriptor);)*
    };
    (weight $D:ident) => { steps! { $D
        /// Multiplies by a weight of the given type, of the shape in the table of operands.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the bias's where the op has one.
        weight(dtype: $crate::dtype::DType) = |it| it.with(|f| f.weight = Some(dtype));
    } };
    (bias $D:ident) => { steps! { $D
        /// Adds a bias of the given type, of the shape in the table of operands.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the weight's.
        bias(dtype: $crate::dtype::DType) = |it| it.with(|f| f.bias = Some(dtype));
    } };
    (eps $D:ident) => { steps! { $D
        /// The number added to the variance, for RMSNorm to the mean square.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] if it is negative, for BatchNorm if it is 0 as well, or if it is, unless operands are
        /// f64, neither 0 nor a normal number of f32.
        eps(eps: f64) = |it| it.real("eps", eps, |f, eps| f.eps = eps);
    } };
    (activation $D:ident) => { steps! { $D
        /// Applies a function before the result is rounded.
        ///
        /// # Errors
        /// None; the type is that of every other step.
        activation(activation: $crate::ops::activation::Activation) = |it| it.with(|f| f.activation = activation);
    } };
    (momentum $D:ident) => { steps! { $D
        /// Updates running statistics, in which this batch weighs `momentum`: 0 keeps them, 1 replaces them.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] outside 0 to 1, in inference, or where the running statistics count batches.
        momentum(momentum: f64) = |it| it.real("momentum", momentum, |f, momentum| f.momentum = Some(momentum));
    } };
    (stats $D:ident) => { steps! { $D
        /// Writes the statistics that backward needs: rstd, and but for RMSNorm the mean.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] in inference, whose backward takes the running statistics.
        stats() = |it| it.with(|f| f.stats = true);
    } };
    (layout $D:ident) => { steps! { $D
        /// Gives a declared operand other strides or another alignment than its default.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] if no such operand is declared, if shape or type differ, or if an output would write an element
        /// twice.
        layout(operand: &str, desc: $crate::tensor::TensorDesc) = |it| it.layout(operand, desc);
    } };
    (beta $D:ident) => { steps! { $D
        /// Adds the gradient to `beta` times what is there; a beta of 0, the default, reads nothing.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] if beta is, unless operands are f64, neither 0 nor a normal number of f32.
        beta(beta: f64) = |it| it.real("beta", beta, |f, beta| f.beta = beta);
    } };
    (accumulate $D:ident) => { steps! { $D
        /// Adds the gradients of these names to what is there, each after it has been rounded to its type. They may lie in the place of no other operand, and
        /// [`Determinism::BatchInvariant`](crate::Determinism::BatchInvariant) is refused.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] for a name that is not that of a gradient which the descriptor declares.
        accumulate(gradients: &[&str]) = |it| it.accumulate(gradients);
    } };
    (accumulate_by_beta $D:ident) => { steps! { $D
        /// Adds the gradients of these names to what is there: each has a beta of 1.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] for a name that is not that of a gradient which the descriptor declares, or if another beta than 0 is said.
        accumulate(gradients: &[&str]) = |it| it.accumulate(gradients);
    } };
    (y $D:ident) => { steps! { $D
        /// Gives `y` other strides than x's.
        ///
        /// # Errors
        /// As [`layout`](Self::layout).
        y(desc: $crate::tensor::TensorDesc) = |it| it.layout("y", desc);
    } };
    (gradient_weight $D:ident) => { steps! { $D
        /// Forward had a weight of the given type; `gradient` asks for its gradient.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the bias's where the op has one.
        weight(dtype: $crate::dtype::DType, gradient: bool) =
            |it| it.with(|f| (f.weight, f.dweight) = (Some(dtype), gradient));
    } };
    (gradient_bias $D:ident) => { steps! { $D
        /// Forward had a bias of the given type; `gradient` asks for its gradient. The bias itself is an operand with an activation.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] if the type is neither x's nor f32, or is not the weight's.
        bias(dtype: $crate::dtype::DType, gradient: bool) =
            |it| it.with(|f| (f.bias, f.dbias) = (Some(dtype), gradient));
    } };
    (gradient_activation $D:ident) => { steps! { $D
        /// Forward had an activation.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] if the gradient comes from y and the activation is not ReLU, or if dx is asked for and the
        /// gradient of a residual is not.
        activation(activation: $crate::ops::activation::Activation) = |it| it.with(|f| f.activation = activation);
    } };
    (dh $D:ident) => { steps! { $D
        /// Adds to dx the gradient `dh` that reaches forward's `h` from elsewhere.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] without `dx`.
        dh(is_added: bool) = |it| it.with(|f| f.dh = is_added);
    } };
    (residual_sum $D:ident) => { steps! { $D
        /// Adds a residual first, and writes the sum as `h`.
        ///
        /// # Errors
        /// None; the type is that of every other step.
        residual() = |it| it.with(|f| f.residual = true);
    } };
    (weight_offset $D:ident) => { steps! { $D
        /// The constant that is added to the weight before it multiplies, in backward the one that forward added: 1 where the
        /// stored weight is the distance from 1.
        ///
        /// # Errors
        /// [`Error::InvalidDescriptor`] without a weight, or if the number is, unless operands are f64, neither 0 nor a normal number of f32.
        weight_offset(offset: f64) = |it| it.real("weight_offset", offset, |f, offset| f.weight_offset = offset);
    } };
}
pub(crate) use shared_steps;
