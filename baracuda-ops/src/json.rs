//! How descriptors are read: from objects that name each field once. What serde's derive takes besides, an array of the values in the
//! order of the fields, and what its maps drop, all but the last of equal keys, is refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::error::{Cause, Error, Result};
use crate::tensor::TensorDesc;

/// A struct that was read from an object.
pub(crate) struct Object<F>(pub(crate) F);

impl<'de, F: Deserialize<'de>> Deserialize<'de> for Object<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        F::deserialize(ByName(deserializer)).map(Self)
    }
}

/// A struct that was read from an object that is no part of another struct of this crate. Its errors begin with the path, in this object, of what is
/// wrong.
pub(crate) struct Document<F>(pub(crate) F);

impl<'de, F: Deserialize<'de>> Deserialize<'de> for Document<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::without(&[], deserializer)
    }
}

impl<'de, F: Deserialize<'de>> Document<F> {
    /// Of an op that lacks some of the fields of `F`.
    pub(crate) fn without<D: Deserializer<'de>>(lacks: &[&str], deserializer: D) -> Result<Self, D::Error> {
        let read = serde_path_to_error::deserialize(deserializer);
        read.map(|Object(fields)| Self(fields)).map_err(|error| de::Error::custom(words(&error, lacks)))
    }
}

/// What is wrong, after the path of where: `x.dims[1]: invalid type: ..`. Fields that the op lacks are not expected.
fn words<E: fmt::Display>(error: &serde_path_to_error::Error<E>, lacks: &[&str]) -> String {
    let (path, rule) = (error.path().to_string(), error.inner().to_string());
    let rule = in_words_of_json(&unknown_field(&rule, lacks).unwrap_or(rule));
    // `?` stands for a key that could not be read, `.` for the whole.
    let path = path.strip_suffix(['?', '.']).map_or(&*path, |rest| rest.trim_end_matches('.'));
    match ["tensor: ", "program: "].into_iter().find_map(|part| rule.strip_prefix(part)) {
        _ if path.is_empty() => rule,
        // A rule of tensors or programs names the field: `tensor: align: must be ..`.
        Some(of_field) => format!("{path}.{of_field}"),
        None => format!("{path}: {rule}"),
    }
}

/// Serde's words on an unknown field, if these are, with the field that has a name like it, and without those that the op lacks.
fn unknown_field(rule: &str, lacks: &[&str]) -> Option<String> {
    let (unknown, rest) = rule.strip_prefix("unknown field `")?.split_once("`, expected one of ")?;
    let (list, place) = rest.split_at(rest.rfind('`')? + 1);
    let expected = || list.split(", ").filter(|field| !lacks.contains(&field.trim_matches('`')));
    let alike = expected().find(|field| is_alike(unknown, field.trim_matches('`')));
    let hint = alike.map(|field| format!(" (did you mean {field}?)")).unwrap_or_default();
    Some(format!(
        "unknown field `{unknown}`{hint}, expected one of {}{place}",
        expected().collect::<Vec<_>>().join(", ")
    ))
}

/// Whether a name may be meant by another, both of three letters or more: one continues the other, or a letter is missing, too many, another, or in
/// its neighbour's place.
fn is_alike(unknown: &str, known: &str) -> bool {
    if unknown.len() < 3 || known.len() < 3 {
        return false;
    }
    let (a, b) = (unknown.as_bytes(), known.as_bytes());
    let ahead = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[ahead..], &b[ahead..]);
    let behind = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&a[..a.len() - behind], &b[..b.len() - behind]) {
        _ if a.is_empty() || b.is_empty() => true,
        ([first, second], [third, fourth]) => first == fourth && second == third,
        (a, b) => a.len() <= 1 && b.len() <= 1,
    }
}

/// Serde's words on a value, with JSON's names of types in place of Rust's.
fn in_words_of_json(rule: &str) -> String {
    const WHOLE: &str = ", expected a whole number of at least 0";
    let names = [
        ("invalid type: sequence", "invalid type: array"),
        ("invalid type: map", "invalid type: object"),
        (", expected u64", WHOLE),
        (", expected usize", WHOLE),
        (", expected f64", ", expected a number"),
        (", expected a sequence", ", expected an array"),
    ];
    names.into_iter().fold(rule.to_string(), |rule, (of_serde, of_json)| rule.replacen(of_serde, of_json, 1))
}

/// A deserializer, or the visitor of a struct, that takes fields by their names alone.
struct ByName<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ByName<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, ByName(visitor))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for ByName<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(map)
    }
}

/// Reads a map whose keys differ.
pub(crate) fn unique<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Unique<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Unique<T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            entries(map)
        }
    }

    deserializer.deserialize_map(Unique(PhantomData))
}

fn entries<'de, A: MapAccess<'de>, T: Deserialize<'de>>(mut map: A) -> Result<BTreeMap<String, T>, A::Error> {
    let mut entries = BTreeMap::new();
    while let Some(key) = map.next_key()? {
        match entries.entry(key) {
            Entry::Vacant(place) => place.insert(map.next_value()?),
            // The error that serde's derive reports for a field of a struct.
            Entry::Occupied(known) => return Err(de::Error::custom(format_args!("duplicate field `{}`", known.key()))),
        };
    }
    Ok(entries)
}

/// Serialises types of named values as their names; they have `ALL` and `name`. What is none of the names, or no string, is refused with a list of
/// them. (Of a value that is no string serde_json tells an enum no more than that it is none.)
macro_rules! named {
    ($($Type:ty),*) => {$(
        impl serde::Serialize for $Type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $Type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::json::OneOf { all: &Self::ALL, name: Self::name })
            }
        }
    )*};
}
pub(crate) use named;

/// One of the values of a type, by its name.
pub(crate) struct OneOf<T: 'static> {
    pub(crate) all: &'static [T],
    pub(crate) name: fn(T) -> &'static str,
}

impl<T: Copy> Visitor<'_> for OneOf<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.all.iter().map(|&value| format!("`{}`", (self.name)(value))).collect();
        write!(f, "one of {}", names.join(", "))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
        let found = self.all.iter().copied().find(|&value| (self.name)(value) == name);
        found.ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
    }
}

/// A whole number in JSON, which f64 may not have.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Whole {
    Signed(i64),
    Unsigned(u64),
}

impl Whole {
    /// The nearest number of f64.
    #[expect(clippy::cast_precision_loss, reason = "rounding is what it is for")]
    pub(crate) fn nearest(self) -> f64 {
        match self {
            Self::Signed(number) => number as f64,
            Self::Unsigned(number) => number as f64,
        }
    }

    /// The number, if f64 does not have it.
    pub(crate) fn inexact(self) -> Option<i128> {
        let number = match self {
            Self::Signed(number) => i128::from(number),
            Self::Unsigned(number) => i128::from(number),
        };
        // f64 has what fits into 53 bits but for zeros behind them.
        let digits = number.unsigned_abs();
        let is_exact = digits == 0 || digits >> digits.trailing_zeros() < 1 << 53;
        (!is_exact).then_some(number)
    }
}

/// Any JSON whose objects have different keys.
#[derive(Serialize)]
pub(crate) struct Tree(pub(crate) Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Self)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Tree(value)) = values.next_element()? {
            array.push(value);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        Ok(entries(map)?.into_iter().map(|(key, Tree(value))| (key, value)).collect())
    }
}

/// A descriptor of the op `op`, which lacks some of the fields of `F`, from its JSON, with the typed error as the cause where a rule is broken.
pub(crate) fn parse<D, F>(op: &'static str, lacks: &[&str], json: &str) -> Result<D>
where
    D: TryFrom<Object<F>, Error = Error>,
    F: DeserializeOwned,
{
    let mut text = serde_json::Deserializer::from_str(json);
    let of_text = |error| cause(serde_json::from_str(json).ok().as_ref(), error, lacks);
    let read = serde_path_to_error::deserialize(&mut text).map_err(of_text);
    validated(op, read.and_then(|object| Ok(text.end().map(|()| object)?)))
}

/// As [`parse`], of JSON that is no text.
pub(crate) fn read<D, F>(op: &'static str, lacks: &[&str], json: &Value) -> Result<D>
where
    D: TryFrom<Object<F>, Error = Error>,
    F: DeserializeOwned,
{
    validated(op, serde_path_to_error::deserialize(json).map_err(|error| cause(Some(json), error, lacks)))
}

fn validated<D: TryFrom<Object<F>, Error = Error>, F>(op: &'static str, read: Result<Object<F>, Cause>) -> Result<D> {
    let descriptor = read.and_then(|object| Ok(D::try_from(object)?));
    descriptor.map_err(|source| Error::InvalidJson { op, source })
}

/// Why JSON was refused. Serde keeps no types: the tensor at the path is asked again for its own.
fn cause(document: Option<&Value>, error: serde_path_to_error::Error<serde_json::Error>, lacks: &[&str]) -> Cause {
    let words = words(&error, lacks);
    let refused = document.and_then(|document| TensorDesc::refusal(at(document, error.path())?));
    match refused.filter(|tensor| error.inner().to_string().starts_with(&tensor.to_string())) {
        Some(tensor) => Cause::quoted(tensor, words),
        None => Cause::quoted(error.into_inner(), words),
    }
}

/// The value at a path.
fn at<'v>(document: &'v Value, path: &Path) -> Option<&'v Value> {
    path.iter().try_fold(document, |value, segment| match segment {
        Segment::Map { key } => value.get(key),
        Segment::Seq { index } => value.get(index),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::dtype::DType;
    use crate::{AnyDescriptor, LayerNormDescriptor, OPS, PlanOptions, WorkspaceReq};

    const X: &str = r#""x":{"dtype":"f32","dims":[2,4,3]}"#;
    const LAYOUT: &str = r#"{"dtype":"f32","dims":[2,4,3],"strides":[24,3,1]}"#;

    /// Each op, with the fields that it needs beside its first tensor, and an operand whose layout is chosen.
    const EXAMPLES: [(&str, &str, &str); 52] = [
        ("layer_norm", r#""normalized_dims":1,"eps":1e-5"#, "y"),
        ("layer_norm_backward", r#""normalized_dims":1,"dx":true"#, "dx"),
        ("rms_norm", r#""normalized_dims":1,"eps":1e-5"#, "y"),
        ("rms_norm_backward", r#""normalized_dims":1,"dx":true"#, "dx"),
        ("batch_norm", r#""eps":1e-5"#, "y"),
        ("batch_norm_backward", r#""dx":true"#, "dx"),
        ("group_norm", r#""groups":2,"eps":1e-5"#, "y"),
        ("group_norm_backward", r#""groups":2,"dx":true"#, "dx"),
        ("instance_norm", r#""eps":1e-5"#, "y"),
        ("instance_norm_backward", r#""dx":true"#, "dx"),
        ("local_response_norm", r#""size":3"#, "y"),
        ("local_response_norm_backward", r#""size":3"#, "dx"),
        ("softmax", r#""axis":1"#, "y"),
        ("softmax_backward", r#""axis":1"#, "dx"),
        ("cross_entropy", r#""axis":3,"targets":"i64","reduction":"none""#, "loss"),
        ("cross_entropy_backward", r#""axis":1,"targets":"i64""#, "dx"),
        ("linear_cross_entropy", r#""weight":{"dtype":"f32","dims":[5,3]},"targets":"i64""#, "x"),
        ("linear_cross_entropy_backward", r#""weight":{"dtype":"f32","dims":[5,3]},"targets":"i64","dx":true"#, "dx"),
        (
            "attention",
            r#""k":{"dtype":"f32","dims":[2,4,6,5]},"v":{"dtype":"f32","dims":[2,4,6,5]},"stats":true"#,
            "lse",
        ),
        (
            "attention_backward",
            r#""k":{"dtype":"f32","dims":[2,4,6,5]},"v":{"dtype":"f32","dims":[2,4,6,5]},"dv":{}"#,
            "lse",
        ),
        ("activation", r#""activation":"silu""#, "y"),
        ("activation_backward", r#""activation":"silu""#, "dx"),
        ("pointwise", r#""program":{"inputs":["a"],"outputs":["a"]}"#, "out0"),
        ("reduce", r#""axes":[],"reduce":"sum""#, "out0"),
        ("scan", r#""axis":1,"scan":"sum""#, "y"),
        ("fft", r#""axis":1"#, "y"),
        ("rfft", r#""axis":1"#, "x"),
        ("irfft", r#""axis":1,"length":6"#, "x"),
        ("copy", r#""starts":[0,1,0],"extents":[2,3,3]"#, "x"),
        ("pad", r#""before":[0,0,0],"after":[0,0,0]"#, "y"),
        ("concat", r#""axis":1"#, "out"),
        ("index_select", r#""axis":1,"indices":{"dtype":"i64","dims":[4]}"#, "y"),
        ("gather", r#""axis":1,"indices":{"dtype":"i32","dims":[2,4,3]}"#, "y"),
        ("index_add", r#""axis":1,"indices":{"dtype":"i64","dims":[4]},"combine":"add""#, "source"),
        ("scatter", r#""axis":1,"indices":{"dtype":"i32","dims":[2,4,3]},"combine":"set""#, "source"),
        ("nonzero", r#""per_axis":true,"size":5"#, "x"),
        ("sort", r#""axis":1,"values":true"#, "values"),
        ("top_k", r#""axis":1,"k":4,"values":true"#, "values"),
        ("search_sorted", r#""values":{"dtype":"f32","dims":[2,4,3]}"#, "values"),
        ("pool", r#""pooling":"max","kernel":[1]"#, "y"),
        ("pool_backward", r#""pooling":"average","kernel":[1]"#, "dx"),
        ("resize", r#""sizes":[3],"mode":"linear""#, "y"),
        ("resize_backward", r#""sizes":[3],"mode":"cubic""#, "dx"),
        ("gemm", r#""b":{"dtype":"f32","dims":[3,3]}"#, "out"),
        ("gemm_backward", r#""b":{"dtype":"f32","dims":[3,3]},"da":{"dtype":"f32"}"#, "dout"),
        ("conv", r#""weight":{"dtype":"f32","dims":[4,4,1]}"#, "y"),
        ("conv_backward_data", r#""weight":{"dtype":"f32","dims":[4,4,1]},"dx":{"dtype":"f32","dims":[2,4,3]}"#, "dx"),
        (
            "conv_backward_weight",
            r#""dy":{"dtype":"f32","dims":[2,4,3]},"dweight":{"dtype":"f32","dims":[4,4,1]}"#,
            "dy",
        ),
        ("conv_backward_bias", r#""beta":0.5"#, "dy"),
        ("conv_transpose", r#""weight":{"dtype":"f32","dims":[4,4,1]},"bias":"f32""#, "y"),
        ("triangular_solve", r#""b":{"dtype":"f32","dims":[2,4,3]}"#, "x"),
        ("cholesky", r#""info":true"#, "factor"),
    ];

    fn refusal(op: &str, json: &str) -> String {
        let error = AnyDescriptor::parse(op, json).expect_err(json);
        assert!(matches!(error, Error::InvalidJson { .. }), "{error:?}");
        error.to_string()
    }

    #[test]
    fn every_descriptor_names_its_fields_each_once() {
        assert!(EXAMPLES.iter().map(|example| example.0).eq(OPS.iter().map(|op| op.name)));
        for (op, fields, operand) in EXAMPLES {
            let is_square = op == "cholesky";
            let is_of_matrices = op.starts_with("linear_cross_entropy");
            let is_of_pairs = ["fft", "irfft"].contains(&op);
            let fitted = |text: &str| match (is_of_matrices, is_square, is_of_pairs) {
                (true, ..) => text.replace("[2,4,3]", "[4,3]").replace("[24,3,1]", "[6,1]"),
                (_, true, _) => text.replace("[2,4,3]", "[2,3,3]"),
                (.., true) => text.replace("[2,4,3]", "[2,4,2]"),
                _ => text.to_string(),
            };
            let x = match op {
                "softmax_backward" | "index_add" | "scatter" => X.replace("\"x\"", "\"y\""),
                "search_sorted" => X.replace("\"x\"", "\"sorted\""),
                // Its losses have the extents of the layout.
                "cross_entropy" => X.replace("[2,4,3]", "[2,4,3,5]"),
                // Its lse has the extents of the layout.
                "attention" | "attention_backward" => X.replace("\"x\"", "\"q\"").replace("[2,4,3]", "[2,4,3,5]"),
                "cholesky" => fitted(X).replace("\"x\"", "\"a\""),
                "triangular_solve" => X.replace("\"x\"", "\"a\"").replace("[2,4,3]", "[2,4,4]"),
                "gemm" | "gemm_backward" => X.replace("\"x\"", "\"a\""),
                "conv_backward_data" | "conv_backward_bias" => X.replace("\"x\"", "\"dy\""),
                "pointwise" | "reduce" | "concat" => X.replace("\"x\":", "\"inputs\":[") + "]",
                _ => fitted(X),
            };
            let layout = format!(r#""{operand}":{}"#, fitted(LAYOUT));
            let layouts = format!(r#""layouts":{{{layout}}}"#);
            let json = format!("{{{x},{fields},{layouts}}}");
            let text = |json: &str| format!(r#"{{"descriptor":{json},"op":"{op}"}}"#);
            let descriptor = AnyDescriptor::parse(op, &json).unwrap_or_else(|error| panic!("{json}: {error}"));
            assert_eq!(serde_json::from_str::<AnyDescriptor>(&text(&json)).unwrap(), descriptor);

            let (dims, strides) = (fitted(r#""dims":[2,4,3]"#), fitted(r#""strides":[24,3,1]"#));
            for entry in [&x, &layouts, &layout, r#""dtype":"f32""#, &dims, &strides] {
                let twice = json.replacen(entry, &format!("{entry},{entry}"), 1);
                let key = entry.split('"').nth(1).unwrap();
                let expected = format!("duplicate field `{key}`");
                let refused = refusal(op, &twice);
                assert!(refused.contains(&expected), "{twice}: {refused}");
                let refused = serde_json::from_str::<AnyDescriptor>(&text(&twice)).unwrap_err().to_string();
                assert!(refused.contains(&expected), "{twice}: {refused}");
            }
            let values: Value = serde_json::from_str(&json).unwrap();
            let array = Value::from_iter(values.as_object().unwrap().values().cloned()).to_string();
            let refused = refusal(op, &array);
            assert!(refused.contains("invalid type: array, expected an object"), "{array}: {refused}");
        }
    }

    #[test]
    fn arrays_in_place_of_objects_are_refused() {
        const EXPECTED: &str = "invalid type: array, expected";
        let x = r#"{"dtype":"f32","dims":[2,4]}"#;
        // As many values as fields, in their order.
        let fields = format!(r#"[{x},1,null,null,1e-5,0.0,false,false,{{}}]"#);
        let error = serde_json::from_str::<LayerNormDescriptor>(&fields).unwrap_err().to_string();
        assert!(error.contains(EXPECTED), "{error}");
        let tensor = r#"{"x":["f32",[2,4],null,null],"normalized_dims":1,"eps":0}"#;
        assert!(refusal("layer_norm", tensor).contains("expected a tensor such as"));
        let layout = format!(r#"{{"x":{x},"axis":1,"layouts":[["y",{x}]]}}"#);
        assert!(refusal("softmax", &layout).contains("invalid type: array, expected an object"));
        let any = format!(r#"["softmax",{{"x":{x},"axis":1}}]"#);
        let error = serde_json::from_str::<AnyDescriptor>(&any).unwrap_err().to_string();
        assert!(error.contains(EXPECTED), "{error}");
        let error = serde_json::from_str::<PlanOptions>(r#"["any","tf32",0,"a"]"#).unwrap_err().to_string();
        assert!(error.contains(EXPECTED), "{error}");
        let error = serde_json::from_str::<WorkspaceReq>("[8,4]").unwrap_err().to_string();
        assert!(error.contains(EXPECTED), "{error}");
    }

    #[test]
    fn the_cause_keeps_its_type_and_the_op_is_named_once() {
        let cause = |json: &str| {
            let error = AnyDescriptor::parse("layer_norm", json).unwrap_err();
            assert_eq!(error.to_string().matches("layer_norm").count(), 1, "{error}");
            error
        };
        let rule = cause(r#"{"x":{"dtype":"f32","dims":[2]},"normalized_dims":2,"eps":0}"#);
        assert!(matches!(
            rule.source().unwrap().downcast_ref(),
            Some(Error::InvalidDescriptor { op: "layer_norm", field: "normalized_dims", .. })
        ));
        let tensor = r#"{"dtype":"f32","dims":[2],"align":3}"#;
        for json in [
            format!(r#"{{"x":{tensor},"normalized_dims":1,"eps":0}}"#),
            format!(r#"{{"x":{{"dtype":"f32","dims":[2]}},"normalized_dims":1,"eps":0,"layouts":{{"y":{tensor}}}}}"#),
        ] {
            let error = cause(&json);
            assert!(error.to_string().contains(".align: must be a power of two from 4 to 4096, got 3 at line 1"));
            assert!(matches!(
                error.source().unwrap().downcast_ref(),
                Some(Error::InvalidDescriptor { op: "tensor", field: "align", .. })
            ));
        }
        for json in [
            "{",
            "null",
            r#"{"x":{"dtype":"f32","dims":[2]},"eps":0}"#,
            r#"{"y":{"dtype":"f32","dims":[2],"align":3}}"#,
        ] {
            let error = cause(json);
            assert!(error.source().unwrap().downcast_ref::<serde_json::Error>().is_some(), "{error:?}");
            assert_eq!(error, error.clone());
        }
    }

    #[test]
    fn errors_name_the_path() {
        let softmax = |x: &str, rest: &str| format!(r#"{{"x":{x},"axis":0{rest}}}"#);
        let x = |rest: &str| softmax(&format!(r#"{{"dtype":"f32"{rest}}}"#), "");
        let with = |rest: &str| softmax(r#"{"dtype":"f32","dims":[2,4]}"#, rest);
        let layout = |y: &str| with(&format!(r#","layouts":{{"y":{y}}}"#));
        for (json, expected) in [
            (
                x(r#","dims":[2,-4]"#),
                "x.dims[1]: invalid value: integer `-4`, expected a whole number of at least 0 at line 1 column",
            ),
            (
                x(r#","dims":[2,1e3]"#),
                "x.dims[1]: invalid type: floating point `1000.0`, expected a whole number of at least 0 at line 1 column",
            ),
            (x(r#","dims":[2,18446744073709551616]"#), "x.dims[1]: invalid type: floating point `"),
            (
                x(r#","dims":[2,null]"#),
                "x.dims[1]: invalid type: null, expected a whole number of at least 0 at line 1 column",
            ),
            (x(r#","dims":[2,4"#), "x.dims: expected `,` or `]` at line 1 column"),
            (x(r#","dims":4"#), "x.dims: invalid type: integer `4`, expected an array at line 1 column"),
            (x(""), "x: missing field `dims` at line 1 column"),
            (x(r#","dims":[2,4],"strides":[1]"#), "x.strides: must be one for each of the 2 extents, got 1 at line 1"),
            (x(r#","dims":[1,1,1,1,1,1,1,1,1]"#), "x.rank: must be at most 8, got 9 at line 1 column"),
            (
                x(r#","dims":[4611686018427387904,2]"#),
                "x.dims: [4611686018427387904, 2] of f32 with strides [2, 1] spans",
            ),
            (x(r#","dims":[2,4],"dims":[2,4]"#), "x: duplicate field `dims` at line 1 column"),
            (softmax("[]", ""), "x: invalid type: array, expected a tensor such as"),
            (layout(r#"{"dtype":"f8","dims":[2,4]}"#), "layouts.y.dtype: "),
            (layout(r#"{"dtype":"f32","dims":[2,4],"align":3}"#), "layouts.y.align: must be a power of two"),
            (with(r#","scale":true"#), "scale: invalid type: boolean `true`, expected a number at line 1 column"),
            (with(r#","scale":1e999"#), "scale: number out of range at line 1 column"),
            (with(r#","scales":1"#), "scales: unknown field `scales` (did you mean `scale`?), expected one of `x`, "),
            (with(",}"), "trailing comma at line 1"),
            ("null".into(), "invalid type: null, expected an object with the fields of the descriptor at line 1"),
            (with("") + "]", "trailing characters at line 1 column"),
        ] {
            let refused = refusal("softmax", &json);
            let expected = format!("softmax: the JSON is not a valid descriptor: {expected}");
            assert!(refused.starts_with(&expected), "{json}: {refused}");
            // Serde's errors, which keep the words alone, say them too.
            let words = &expected["softmax: the JSON is not a valid descriptor: ".len()..];
            let refused = serde_json::from_str::<crate::SoftmaxDescriptor>(&json).unwrap_err().to_string();
            assert!(refused.starts_with(words), "{json}: {refused}");
            // In a descriptor of any op they have no place in the text: by then it is no text.
            let any = format!(r#"{{"op":"softmax","descriptor":{json}}}"#);
            if let (Ok(Tree(any)), Some((path, _))) = (serde_json::from_str(&any), expected.split_once(" at line 1")) {
                let refused = serde_json::from_value::<AnyDescriptor>(any).unwrap_err().to_string();
                assert!(refused.starts_with(path) && !refused.contains(" at line"), "{json}: {refused}");
            }
        }
        let refused = serde_json::from_str::<PlanOptions>(r#"{"workspace_limit":-1}"#).unwrap_err().to_string();
        assert!(
            refused
                .starts_with("workspace_limit: invalid value: integer `-1`, expected a whole number of at least 0 at"),
            "{refused}"
        );
        let refused = serde_json::from_str::<AnyDescriptor>(r#"{"op":3,"descriptor":{}}"#).unwrap_err().to_string();
        assert!(refused.starts_with("op: invalid type: integer `3`, expected a string"), "{refused}");
    }

    #[test]
    fn an_unknown_field_is_told_those_that_the_op_has() {
        let unknown = |op: &str, fields: &str| {
            let x = if op == "softmax_backward" { X.replace("\"x\"", "\"y\"") } else { X.into() };
            let json = format!("{{{x},{fields},\"nonesuch\":1}}");
            let refused = refusal(op, &json);
            // Through serde as well.
            let any = format!(r#"{{"op":"{op}","descriptor":{json}}}"#);
            let words = serde_json::from_str::<AnyDescriptor>(&any).unwrap_err().to_string();
            let list = |words: &str| {
                words.split_once("expected one of ").unwrap().1.split(" at line").next().map(String::from)
            };
            assert_eq!(list(&words), list(&refused));
            list(&refused).unwrap()
        };
        for (op, fields, lacks) in [
            ("layer_norm", r#""normalized_dims":1,"eps":1e-5"#, &["weight_offset"][..]),
            ("rms_norm", r#""normalized_dims":1,"eps":1e-5"#, &["bias"]),
            ("rms_norm_backward", r#""normalized_dims":1,"dx":true"#, &["dbias"]),
            ("batch_norm", r#""eps":1e-5"#, &["groups"]),
            ("batch_norm_backward", r#""dx":true"#, &["groups"]),
            ("group_norm", r#""groups":2,"eps":1e-5"#, &["residual", "momentum", "cumulative", "inference"]),
            (
                "group_norm_backward",
                r#""groups":2,"dx":true"#,
                &["eps", "residual", "from_y", "inference", "dresidual"],
            ),
            ("instance_norm", r#""eps":1e-5"#, &["groups", "residual", "cumulative"]),
            ("instance_norm_backward", r#""dx":true"#, &["groups", "residual", "from_y", "dresidual"]),
            ("activation", r#""activation":"relu""#, &["from_y"]),
            ("activation_backward", r#""activation":"relu""#, &[]),
        ] {
            let list = unknown(op, fields);
            assert!(list.contains("`layouts`"), "{op}: {list}");
            for field in lacks {
                assert!(!list.contains(&format!("`{field}`")), "{op}: {list}");
                // It is refused indeed, and not for its type.
                let values =
                    ["2", "true", "\"f32\"", "0.5"].map(|value| format!("{{{X},{fields},\"{field}\":{value}}}"));
                assert!(values.iter().all(|json| AnyDescriptor::parse(op, json).is_err()), "{op}: {field}");
            }
        }
    }

    #[test]
    fn a_name_like_that_of_a_field_is_told_which() {
        let of =
            |field: &str| refusal("softmax", &format!(r#"{{"x":{{"dtype":"f32","dims":[2]}},"axis":0,"{field}":1}}"#));
        for (field, meant) in
            [("axes", "axis"), ("scales", "scale"), ("scal", "scale"), ("layuots", "layouts"), ("logs", "log")]
        {
            let words = format!("unknown field `{field}` (did you mean `{meant}`?), expected one of `x`, `axis`");
            assert!(of(field).contains(&words), "{}", of(field));
        }
        for field in ["dim", "n", "", "é", "`, expected one of `"] {
            assert!(of(field).contains(&format!("unknown field `{field}`, expected one of ")), "{}", of(field));
        }
    }

    #[test]
    fn fields_of_sibling_ops_are_refused() {
        let complex = r#""x":{"dtype":"f32","dims":[2,6,2]},"axis":1"#;
        let real = r#""x":{"dtype":"f32","dims":[2,6]},"axis":1"#;
        for (op, fields, foreign, field) in [
            ("fft", complex, r#""length":8"#, "length"),
            ("fft", complex, r#""adjoint":true"#, "adjoint"),
            ("rfft", real, r#""direction":"inverse""#, "direction"),
        ] {
            let words = refusal(op, &format!("{{{fields},{foreign}}}"));
            assert!(words.contains(field) && words.contains("is a field of other ops"), "{op}: {words}");
        }
    }

    #[test]
    fn names_are_told_where_a_value_is_none() {
        let dtypes = format!("one of {}", DType::ALL.map(|dtype| format!("`{dtype}`")).join(", "));
        let gemm = |fields: &str| {
            let factor = r#"{"dtype":"f32","dims":[2,2]}"#;
            refusal("gemm", &format!(r#"{{"a":{factor},"b":{factor},{fields}}}"#))
        };
        for (fields, words) in [
            (r#""bias":true"#, format!("bias: invalid type: boolean `true`, expected {dtypes} at line 1 column")),
            (r#""bias":{}"#, format!("bias: invalid type: object, expected {dtypes} at line 1 column")),
            (r#""bias":"float""#, format!("bias: invalid value: string \"float\", expected {dtypes} at line 1 column")),
            (r#""activation":1"#, "activation: invalid type: integer `1`, expected one of `identity`, `relu`, ".into()),
        ] {
            assert!(gemm(fields).contains(&words), "{}", gemm(fields));
        }
        for name in [r#""run_to_run""#, r#""any""#] {
            let options: PlanOptions = serde_json::from_str(&format!(r#"{{"determinism":{name}}}"#)).unwrap();
            assert_eq!(serde_json::to_string(&options.determinism).unwrap(), name);
        }
        let refused = serde_json::from_str::<PlanOptions>(r#"{"math":true}"#).unwrap_err().to_string();
        assert!(
            refused.starts_with("math: invalid type: boolean `true`, expected one of `tf32`, `strict`"),
            "{refused}"
        );
    }

    #[test]
    fn any_json_is_kept_as_it_is() {
        let text = r#"{"a":[1,-2,0.1,null,true,"s",{"b":18446744073709551615}]}"#;
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Tree>(text).unwrap()).unwrap(), text);
    }
}
