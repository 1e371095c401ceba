//! The gradients of every op with every option, by a tape that knows steps and roles alone: in f64 on the CPU against finite differences of
//! forward, and in f32 on the CPU and through wgpu against those in f64.
//!
//! The loss is the sum over the outputs at which gradients arrive of output times cotangent. Each element of each input is moved, and its
//! gradient compared with the central difference of the loss.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Mutex;

use baracuda_ops::{Access, AnyDescriptor, DType, Device, Error, Function, OPS, PlanOptions, Role, Step};
use baracuda_ops_tests::case::Random;
use baracuda_ops_tests::tape::{Tape, Values, check};
use baracuda_ops_tests::target::TARGETS;
use baracuda_ops_tests::values::{offsets, rounded};
use rayon::prelude::*;
use serde_json::{Value, json};

/// Half the distance of the two losses of a difference.
const STEP: f64 = 2e-5;
/// What a gradient may differ by from the difference quotient, of the greater of 1 and itself.
const TOLERANCE: f64 = 1e-6;
/// What a gradient may differ by from that in f64, of the greater of 1 and the largest element: in f32, and with operands of 16 bits.
const TOLERANCE_OF_F32: f64 = 2e-6;
const TOLERANCE_OF_16_BITS: f64 = 0.01;
/// As above, with operands of 8 bits, which have two or three digits.
const TOLERANCE_OF_8_BITS: f64 = 0.13;

/// The forwards of an op: the fields that it needs, and of each option the texts that it may have, `""` where it is left out. Every
/// combination is a line, but those that the op refuses.
struct Forwards {
    op: &'static str,
    tensors: &'static [&'static str],
    options: &'static [&'static [&'static str]],
}

const ACTIVATIONS: &[&str] = &[
    "",
    r#""activation":"relu""#,
    r#""activation":"gelu_erf""#,
    r#""activation":"gelu_tanh""#,
    r#""activation":"silu""#,
    r#""activation":"sigmoid""#,
    r#""activation":"tanh""#,
];
const WEIGHT: &[&str] = &["", r#""weight":"f64""#];
const BIAS: &[&str] = &["", r#""bias":"f64""#];
const STATS: &[&str] = &["", r#""stats":true"#];
const RESIDUAL: &[&str] = &["", r#""residual":true"#];
const RUNNING: &[&str] = &["", r#""momentum":0.1"#, r#""inference":true"#];

const SCANNED: &[&str] = &[
    r#""x":{"dtype":"f64","dims":[3,4]},"axis":1"#,
    r#""x":{"dtype":"f64","dims":[3,4,2],"strides":[1,3,12]},"axis":0"#,
    r#""x":{"dtype":"f64","dims":[3,4],"strides":[0,1]},"axis":1"#,
    r#""x":{"dtype":"f64","dims":[]},"axis":0"#,
    r#""x":{"dtype":"f64","dims":[3,4]},"axis":0,"layouts":{"y":{"dtype":"f64","dims":[3,4],"strides":[9,2]}}"#,
];

const FORWARDS: &[Forwards] = &[
    Forwards {
        op: "layer_norm",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,5]},"normalized_dims":1,"eps":1e-5"#,
            r#""x":{"dtype":"f64","dims":[2,2,3],"strides":[0,3,1]},"normalized_dims":2,"eps":0.1"#,
            r#""x":{"dtype":"f64","dims":[2,2,3],"strides":[16,7,2]},"normalized_dims":1,"eps":0.0,"layouts":{"y":{"dtype":"f64","dims":[2,2,3],"strides":[6,1,2]}}"#,
        ],
        options: &[WEIGHT, BIAS, STATS, RESIDUAL],
    },
    Forwards {
        op: "rms_norm",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,5]},"normalized_dims":1,"eps":1e-5"#,
            r#""x":{"dtype":"f64","dims":[2,2,3],"strides":[0,3,1]},"normalized_dims":2,"eps":0.1"#,
        ],
        options: &[&["", r#""weight":"f64""#, r#""weight":"f64","weight_offset":1.0"#], STATS, RESIDUAL],
    },
    Forwards {
        op: "batch_norm",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,2,2]},"eps":1e-5"#,
            r#""x":{"dtype":"f64","dims":[2,2,1,3],"strides":[6,1,6,2]},"eps":1e-3"#,
        ],
        options: &[
            WEIGHT,
            BIAS,
            STATS,
            RESIDUAL,
            &["", r#""momentum":0.1"#, r#""cumulative":true"#, r#""inference":true"#],
            ACTIVATIONS,
        ],
    },
    Forwards {
        op: "group_norm",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,4,3]},"groups":2,"eps":1e-5"#,
            r#""x":{"dtype":"f64","dims":[2,2,1,3],"strides":[6,1,6,2]},"groups":1,"eps":0.01"#,
        ],
        options: &[WEIGHT, BIAS, STATS, ACTIVATIONS],
    },
    Forwards {
        op: "instance_norm",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,2,4]},"eps":1e-5"#,
            r#""x":{"dtype":"f64","dims":[2,2,1,3],"strides":[6,1,6,2]},"eps":0.01"#,
        ],
        options: &[WEIGHT, BIAS, STATS, RUNNING, ACTIVATIONS],
    },
    Forwards {
        op: "local_response_norm",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,5,2]}"#,
            r#""x":{"dtype":"f64","dims":[1,4,2,2],"strides":[16,1,8,4]}"#,
        ],
        options: &[
            &[r#""size":1"#, r#""size":4"#, r#""size":5"#],
            &["", r#""alpha":0.7"#],
            &["", r#""beta":1.3"#],
            &["", r#""k":0.5"#],
        ],
    },
    Forwards {
        op: "softmax",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,5,2]}"#,
            r#""x":{"dtype":"f64","dims":[3,4,2],"strides":[0,1,4]}"#,
            r#""x":{"dtype":"f64","dims":[2,3,2]},"layouts":{"y":{"dtype":"f64","dims":[2,3,2],"strides":[1,4,2]}}"#,
        ],
        options: &[&[r#""axis":0"#, r#""axis":1"#, r#""axis":2"#], &["", r#""log":true"#], &["", r#""scale":-0.7"#]],
    },
    Forwards {
        op: "softmax",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,3,5]},"axis":2"#,
            r#""x":{"dtype":"f64","dims":[2,3,5],"strides":[15,1,3]},"axis":2"#,
        ],
        options: &[
            &["", r#""causal":true"#],
            &[
                "",
                r#""bias":{"dtype":"f64","dims":[3,5]}"#,
                r#""bias":{"dtype":"f64","dims":[2,1,5]}"#,
                r#""bias":{"dtype":"f64","dims":[3,1]}"#,
                r#""bias":{"dtype":"f64","dims":[2,3,5],"strides":[0,5,1]}"#,
                r#""bias":{"dtype":"f64","dims":[2,3,5]}"#,
            ],
            &["", r#""log":true"#],
            &["", r#""scale":-0.7"#],
        ],
    },
    Forwards {
        op: "softmax",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[5,3]},"axis":1,"causal":true"#,
            r#""x":{"dtype":"f64","dims":[5,3]},"axis":0,"bias":{"dtype":"f64","dims":[3]}"#,
        ],
        options: &[&["", r#""log":true"#]],
    },
    Forwards {
        op: "cross_entropy",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[7,5]},"axis":1,"targets":"i64""#,
            r#""x":{"dtype":"f64","dims":[7,5],"strides":[0,1]},"axis":1,"targets":"u32""#,
            r#""x":{"dtype":"f64","dims":[2,4,5],"strides":[1,10,2]},"axis":1,"targets":"i32","layouts":{"targets":{"dtype":"i32","dims":[2,5],"strides":[1,2]}}"#,
        ],
        options: &[&["", r#""ignore_index":1"#], &["", r#""reduction":"sum""#, r#""reduction":"none""#], STATS],
    },
    Forwards {
        op: "cross_entropy",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[7,5]},"axis":1,"targets":"i64","ignore_index":1"#,
            r#""x":{"dtype":"f64","dims":[2,4,5],"strides":[1,10,2]},"axis":1,"targets":"i32","missing":true"#,
        ],
        options: &[
            &[
                "",
                r#""weight":"f64""#,
                r#""weight":"f32","layouts":{"weight":{"dtype":"f32","dims":[4],"strides":[3]}}"#,
            ],
            &["", r#""label_smoothing":0.2"#],
            &["", r#""z_loss":0.01"#],
            &["", r#""reduction":"sum""#, r#""reduction":"none""#],
            STATS,
        ],
    },
    Forwards {
        op: "cross_entropy",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[7,5]},"axis":1,"targets":"f64""#,
            r#""x":{"dtype":"f64","dims":[2,4,5],"strides":[1,10,2]},"axis":1,"targets":"f32","layouts":{"targets":{"dtype":"f32","dims":[2,4,5],"strides":[0,1,4]}}"#,
        ],
        options: &[
            &["", r#""weight":"f64""#],
            &["", r#""label_smoothing":0.2"#],
            &["", r#""z_loss":0.01"#],
            &["", r#""reduction":"sum""#, r#""reduction":"none""#],
            STATS,
        ],
    },
    Forwards {
        op: "cross_entropy",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[4]},"axis":0,"targets":"i64""#,
            r#""x":{"dtype":"f64","dims":[2,3]},"axis":1,"targets":"i64","reduction":"none","layouts":{"loss":{"dtype":"f64","dims":[2],"strides":[3]}}"#,
        ],
        options: &[STATS],
    },
    Forwards {
        op: "linear_cross_entropy",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[4,3]},"weight":{"dtype":"f64","dims":[5,3]},"targets":"i64""#,
            r#""x":{"dtype":"f64","dims":[3,2],"strides":[1,3]},"weight":{"dtype":"f64","dims":[4,2],"strides":[1,5]},"targets":"u32""#,
            r#""x":{"dtype":"f64","dims":[3,2],"strides":[0,1]},"weight":{"dtype":"f64","dims":[4,2]},"targets":"i32","layouts":{"targets":{"dtype":"i32","dims":[3],"strides":[2]}}"#,
            r#""x":{"dtype":"f64","dims":[2,1]},"weight":{"dtype":"f64","dims":[1027,1]},"targets":"i64""#,
        ],
        options: &[&["", r#""ignore_index":1"#], &["", r#""reduction":"sum""#, r#""reduction":"none""#]],
    },
    Forwards {
        op: "pool",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,2,5,6]},"kernel":[3,2],"stride":[2,1],"padding":[[1,1],[0,1]]"#,
            r#""x":{"dtype":"f64","dims":[1,3,4,5],"strides":[60,1,15,3]},"kernel":[2,2],"ceil_mode":true"#,
            r#""x":{"dtype":"f64","dims":[2,1,7]},"adaptive":[3]"#,
            r#""x":{"dtype":"f64","dims":[1,2,2,3,4]},"adaptive":[1,1,1]"#,
            r#""x":{"dtype":"f64","dims":[2,2,5],"strides":[0,5,1]},"kernel":[2],"stride":[3],"padding":[[1,1]]"#,
        ],
        options: &[&[
            r#""pooling":"max""#,
            r#""pooling":"max","offsets":true"#,
            r#""pooling":"max","offsets":true,"indices":true"#,
            r#""pooling":"average""#,
            r#""pooling":"average","exclude_padding":true"#,
            r#""pooling":"average","divisor":5"#,
            r#""pooling":"norm1""#,
            r#""pooling":"norm2""#,
        ]],
    },
    Forwards {
        op: "pool",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[1,2,6,5]},"kernel":[2,3],"stride":[1,1],"dilation":[3,1],"padding":[[2,1],[1,1]]"#,
        ],
        options: &[&[r#""pooling":"max""#, r#""pooling":"norm2""#]],
    },
    Forwards {
        op: "sort",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,7]},"axis":1"#,
            r#""x":{"dtype":"f64","dims":[5,4],"strides":[1,5]},"axis":0"#,
            r#""x":{"dtype":"f64","dims":[]},"axis":0"#,
        ],
        options: &[&[r#""values":true"#, r#""values":true,"indices":"i32""#], &["", r#""descending":true"#]],
    },
    Forwards {
        op: "top_k",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,7]},"axis":1,"k":3"#,
            r#""x":{"dtype":"f64","dims":[2,5,4]},"axis":1,"k":5"#,
            r#""x":{"dtype":"f64","dims":[4]},"axis":0,"k":0"#,
        ],
        options: &[&[r#""values":true"#, r#""values":true,"indices":"i64""#], &["", r#""least":true"#]],
    },
    Forwards {
        op: "resize",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,2,3,4]},"sizes":[6,7]"#,
            r#""x":{"dtype":"f64","dims":[1,3,5,4],"strides":[60,1,12,3]},"sizes":[3,4]"#,
            r#""x":{"dtype":"f64","dims":[2,1,5]},"sizes":[1]"#,
            r#""x":{"dtype":"f64","dims":[2,2,3,4],"strides":[0,12,4,1]},"sizes":[3,2,9]"#,
        ],
        options: &[
            &[r#""mode":"nearest""#, r#""mode":"linear""#, r#""mode":"cubic""#],
            &["", r#""coordinates":"asymmetric""#],
        ],
    },
    Forwards {
        op: "resize",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,3,4]},"sizes":[7]"#,
            r#""x":{"dtype":"f64","dims":[2,5,4]},"sizes":[3,1]"#,
        ],
        options: &[&[
            r#""mode":"linear","coordinates":"align_corners""#,
            r#""mode":"cubic","coordinates":"align_corners""#,
        ]],
    },
    // Samples of fewer keys than there are, and some that no query sees.
    Forwards {
        op: "attention",
        tensors: &[
            r#""q":{"dtype":"f64","dims":[2,2,3,2]},"k":{"dtype":"f64","dims":[2,1,4,2]},"v":{"dtype":"f64","dims":[2,1,4,3]}"#,
            r#""q":{"dtype":"f64","dims":[1,2,3,2],"strides":[12,2,4,1]},"k":{"dtype":"f64","dims":[1,2,3,2],"strides":[12,0,2,1]},"v":{"dtype":"f64","dims":[1,2,3,1],"strides":[6,1,2,1]},"layouts":{"y":{"dtype":"f64","dims":[1,2,3,1],"strides":[6,1,2,1]}}"#,
        ],
        options: &[
            &[
                "",
                r#""causal":"bottom_right""#,
                r#""causal":"top_left","window_left":1"#,
                r#""window_left":1,"window_right":1"#,
            ],
            &["", r#""soft_cap":1.5,"scale":-0.7"#],
            &["", r#""bias":{"dtype":"f64","dims":[2,1,1]}"#, r#""bias":{"dtype":"bool","dims":[3,1]}"#],
            &["", r#""lengths":"i32""#],
            STATS,
        ],
    },
    Forwards {
        op: "attention",
        tensors: &[
            r#""q":{"dtype":"f64","dims":[2,2,3,2]},"k":{"dtype":"f64","dims":[2,1,4,2]},"v":{"dtype":"f64","dims":[2,1,4,3]}"#,
        ],
        options: &[&[
            r#""bias":{"dtype":"f64","dims":[2,2,3,4]}"#,
            r#""bias":{"dtype":"f64","dims":[3,4],"strides":[1,3]},"stats":true"#,
            r#""bias":{"dtype":"f64","dims":[]}"#,
        ]],
    },
    Forwards {
        op: "activation",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,4]}"#,
            r#""x":{"dtype":"f64","dims":[3,4],"strides":[0,1]}"#,
            r#""x":{"dtype":"f64","dims":[]}"#,
        ],
        options: &[&[
            r#""activation":"identity""#,
            r#""activation":"relu""#,
            r#""activation":"gelu_erf""#,
            r#""activation":"gelu_tanh""#,
            r#""activation":"silu""#,
            r#""activation":"sigmoid""#,
            r#""activation":"tanh""#,
        ]],
    },
    Forwards {
        op: "pointwise",
        tensors: &[
            // Every output alone, an input of several uses, an output that is an input.
            r#""program":{"inputs":["x","y"],"let":[["s","sigmoid","x"],["t","mul","x","s"],["z","mul","t","y"],["d","sub","y",0.5]],"outputs":["z","d","x"]},"inputs":[{"dtype":"f64","dims":[3,4]},{"dtype":"f64","dims":[3,4],"strides":[1,3]}]"#,
            r#""program":{"inputs":["x","y","z"],"let":[["e","exp","x"],["d","add",1.0,"e"],["q","div","y","d"],["r","mul","q","q"],["p","tanh","r"],["w","mul","p","z"]],"outputs":["w"]},"inputs":[{"dtype":"f64","dims":[2,5],"strides":[0,1]},{"dtype":"f64","dims":[2,5]},{"dtype":"f64","dims":[2,5]}]"#,
            r#""program":{"inputs":["x"],"outputs":["x"]},"inputs":[{"dtype":"f64","dims":[]}]"#,
            // Inputs that are repeated: a row, a column, both, one element, one of fewer axes with an extent of 1, one that repeats its own elements.
            r#""program":{"inputs":["x","y","z"],"let":[["t","mul","x","y"],["s","sigmoid","t"],["w","add","s","z"]],"outputs":["w","t"]},"inputs":[{"dtype":"f64","dims":[3,4]},{"dtype":"f64","dims":[4]},{"dtype":"f64","dims":[3,1]}]"#,
            r#""program":{"inputs":["x","y","z"],"let":[["t","mul","x","y"],["w","div","t","z"]],"outputs":["w"]},"inputs":[{"dtype":"f64","dims":[3,1]},{"dtype":"f64","dims":[4]},{"dtype":"f64","dims":[]}]"#,
            r#""program":{"inputs":["x","y"],"let":[["e","exp","y"],["w","mul","x","e"]],"outputs":["w"]},"inputs":[{"dtype":"f64","dims":[2,3,4]},{"dtype":"f64","dims":[3,1]}]"#,
            r#""program":{"inputs":["x","y"],"let":[["w","mul","x","y"]],"outputs":["w"]},"inputs":[{"dtype":"f64","dims":[3,4]},{"dtype":"f64","dims":[1,4],"strides":[4,0]}]"#,
            // A rotary embedding whose pairs are an axis of the output.
            r#""program":{"inputs":["x0","x1","cos","sin"],"let":[["i","index",1],["p","gt","i",0.5],["m","neg","sin"],["u","where","p","sin","cos"],["v","where","p","cos","m"],["s","mul","x0","u"],["t","mul","x1","v"],["y","add","s","t"]],"outputs":["y"]},"inputs":[{"dtype":"f64","dims":[3,2,2],"strides":[4,0,1]},{"dtype":"f64","dims":[3,2,2],"strides":[4,0,1]},{"dtype":"f64","dims":[3,1,2]},{"dtype":"f64","dims":[2]}]"#,
        ],
        options: &[&["", r#""layouts":{"out0":{"dtype":"f64","dims":[3,4],"strides":[6,1]}}"#]],
    },
    Forwards {
        op: "reduce",
        tensors: &[
            r#""inputs":[{"dtype":"f64","dims":[3,4,2]}],"axes":[1]"#,
            r#""inputs":[{"dtype":"f64","dims":[3,4,2],"strides":[1,3,12]}],"axes":[0,2]"#,
            r#""inputs":[{"dtype":"f64","dims":[3,4],"strides":[0,1]}],"axes":[0,1],"keep":[1]"#,
            r#""inputs":[{"dtype":"f64","dims":[2,3]}],"axes":[]"#,
            r#""inputs":[{"dtype":"f64","dims":[3,4]}],"axes":[1],"layouts":{"out0":{"dtype":"f64","dims":[3],"strides":[2]}}"#,
            r#""program":{"inputs":["x","y"],"let":[["d","sub","x","y"],["e","mul","d","d"]],"outputs":["e"]},"inputs":[{"dtype":"f64","dims":[3,4]},{"dtype":"f64","dims":[3,4]}],"axes":[0,1]"#,
            // An input that is repeated along the reduced axis, one along the other, and one along both.
            r#""program":{"inputs":["x","y","z"],"let":[["t","mul","x","y"],["s","sigmoid","t"],["u","mul","s","z"]],"outputs":["u"]},"inputs":[{"dtype":"f64","dims":[3,1]},{"dtype":"f64","dims":[4]},{"dtype":"f64","dims":[]}],"axes":[1]"#,
        ],
        options: &[&[
            r#""reduce":"sum""#,
            r#""reduce":"mean""#,
            r#""reduce":"prod""#,
            r#""reduce":"max""#,
            r#""reduce":"min""#,
            r#""reduce":"norm1""#,
            r#""reduce":"norm2""#,
            r#""reduce":"norm_inf""#,
            r#""reduce":"logsumexp""#,
            r#""reduce":"var","correction":0"#,
        ]],
    },
    // What becomes of results: a p-norm, a root mean square, a soft sign of a mean and its square.
    Forwards {
        op: "reduce",
        tensors: &[
            r#""inputs":[{"dtype":"f64","dims":[3,4,2]}],"axes":[1]"#,
            r#""inputs":[{"dtype":"f64","dims":[3,4,2],"strides":[1,3,12]}],"axes":[0,2],"keep":[2]"#,
            r#""inputs":[{"dtype":"f64","dims":[3,4]}],"axes":[1],"layouts":{"out0":{"dtype":"f64","dims":[3],"strides":[2]}}"#,
            r#""program":{"inputs":["x"],"let":[["s","square","x"],["c","add","s",0.5]],"outputs":["c"]},"inputs":[{"dtype":"f64","dims":[3,4]}],"axes":[0,1]"#,
            r#""program":{"inputs":["x","y"],"let":[["a","abs","x"],["c","pow","a",2.5],["z","mul","c","y"]],"outputs":["z"]},"inputs":[{"dtype":"f64","dims":[3,4]},{"dtype":"f64","dims":[4]}],"axes":[0]"#,
        ],
        options: &[
            &[
                r#""finish":{"inputs":["v"],"let":[["n","count"],["m","div","v","n"],["t","softsign","m"]],"outputs":["t"]}"#,
                r#""finish":{"inputs":["v"],"let":[["n","count"],["s","square","v"],["t","div","s","n"],["o","add","t",1],["y","pow","o",0.4]],"outputs":["y"]}"#,
                r#""finish":{"inputs":["v"],"let":[["y","mul","v",3]],"outputs":["y"]}"#,
            ],
            &[
                r#""reduce":"sum""#,
                r#""reduce":"mean""#,
                r#""reduce":"prod""#,
                r#""reduce":"max""#,
                r#""reduce":"norm1""#,
                r#""reduce":"norm2""#,
                r#""reduce":"norm_inf""#,
                r#""reduce":"logsumexp""#,
                r#""reduce":"var","correction":0"#,
            ],
        ],
    },
    // Norms of orders 2.5 and 0.5, as `ReduceDescriptor::norm` makes them.
    Forwards {
        op: "reduce",
        tensors: &[
            r#""inputs":[{"dtype":"f64","dims":[3,4,2]}],"axes":[1]"#,
            r#""inputs":[{"dtype":"f64","dims":[3,4,2],"strides":[1,3,12]}],"axes":[0,2],"keep":[2]"#,
        ],
        options: &[&[
            r#""reduce":"sum","program":{"inputs":["x"],"let":[["a","abs","x"],["p","pow","a",2.5]],"outputs":["p"]},"finish":{"inputs":["v"],"let":[["c","eq","v",0],["o","where","c",1,"v"],["p","pow","o",0.4],["y","where","c",0,"p"]],"outputs":["y"]}"#,
            r#""reduce":"sum","program":{"inputs":["x"],"let":[["a","abs","x"],["c","eq","a",0],["o","where","c",1,"a"],["p","pow","o",0.5],["y","where","c",0,"p"]],"outputs":["y"]},"finish":{"inputs":["v"],"let":[["c","eq","v",0],["o","where","c",1,"v"],["p","pow","o",2],["y","where","c",0,"p"]],"outputs":["y"]}"#,
        ]],
    },
    // Of one value there is no estimate of a variance, and no root of 0 that has a difference quotient.
    Forwards {
        op: "reduce",
        tensors: &[
            r#""inputs":[{"dtype":"f64","dims":[3,4,2]}],"axes":[1]"#,
            r#""inputs":[{"dtype":"f64","dims":[3,4,2],"strides":[1,3,12]}],"axes":[0,2],"keep":[0,2]"#,
            r#""inputs":[{"dtype":"f64","dims":[3,4],"strides":[0,1]}],"axes":[0,1],"keep":[1]"#,
            r#""program":{"inputs":["x","y","z"],"let":[["t","mul","x","y"],["s","sigmoid","t"],["u","mul","s","z"]],"outputs":["u"]},"inputs":[{"dtype":"f64","dims":[3,1]},{"dtype":"f64","dims":[4]},{"dtype":"f64","dims":[]}],"axes":[1]"#,
        ],
        options: &[&[
            r#""reduce":"var""#,
            r#""reduce":"std""#,
            r#""reduce":"std","correction":0"#,
            r#""reduce":"std","correction":2"#,
        ]],
    },
    Forwards {
        op: "scan",
        tensors: SCANNED,
        options: &[&[r#""scan":"sum""#, r#""scan":"prod""#], &["", r#""reverse":true"#], &["", r#""exclusive":true"#]],
    },
    // Exclusive ones begin with minus infinity, beside which differences are lost.
    Forwards { op: "scan", tensors: SCANNED, options: &[&[r#""scan":"logsumexp""#], &["", r#""reverse":true"#]] },
    Forwards {
        op: "fft",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,4,2]},"axis":1"#,
            r#""x":{"dtype":"f64","dims":[6,2,2],"strides":[1,6,12]},"axis":0"#,
            r#""x":{"dtype":"f64","dims":[2,11,2],"strides":[0,2,1]},"axis":1"#,
        ],
        options: &[&["", r#""direction":"inverse""#], &["", r#""scale":0.25"#]],
    },
    Forwards {
        op: "rfft",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,4]},"axis":1"#,
            r#""x":{"dtype":"f64","dims":[7,2],"strides":[1,7]},"axis":0"#,
        ],
        options: &[&["", r#""adjoint":true"#], &["", r#""scale":0.25"#]],
    },
    Forwards {
        op: "irfft",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,3,2]},"axis":1,"length":4"#,
            r#""x":{"dtype":"f64","dims":[4,2,2],"strides":[1,4,8]},"axis":0,"length":7"#,
            r#""x":{"dtype":"f64","dims":[2,1,2]},"axis":1,"length":1"#,
        ],
        options: &[&["", r#""adjoint":true"#], &["", r#""scale":0.25"#]],
    },
    Forwards {
        op: "copy",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,4]}"#,
            r#""x":{"dtype":"f64","dims":[3,4],"strides":[1,3]}"#,
            r#""x":{"dtype":"f64","dims":[3,4],"strides":[0,1]}"#,
            r#""x":{"dtype":"f64","dims":[]}"#,
            r#""x":{"dtype":"f64","dims":[5,6]},"starts":[1,2],"extents":[3,4]"#,
            r#""x":{"dtype":"f64","dims":[5,7]},"starts":[4,6],"extents":[3,3],"steps":[-2,-3]"#,
            r#""x":{"dtype":"f64","dims":[5,7],"strides":[1,5]},"starts":[0,1],"extents":[2,3],"steps":[3,2]"#,
            r#""x":{"dtype":"f64","dims":[2,3]},"starts":[1,3],"extents":[1,0]"#,
        ],
        options: &[&["", r#""layouts":{"y":{"dtype":"f64","dims":[3,4],"strides":[9,2]}}"#]],
    },
    Forwards {
        op: "pad",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,3]},"before":[1,2],"after":[0,1]"#,
            r#""x":{"dtype":"f64","dims":[4,3],"strides":[1,4]},"before":[-1,2],"after":[2,-1]"#,
            r#""x":{"dtype":"f64","dims":[3,3]},"before":[1,0],"after":[0,0],"interior":[1,2]"#,
            r#""x":{"dtype":"f64","dims":[3,3]},"before":[-1,0],"after":[0,-2],"interior":[1,2]"#,
            r#""x":{"dtype":"f64","dims":[3,2],"strides":[0,1]},"before":[1,1],"after":[1,1]"#,
            r#""x":{"dtype":"f64","dims":[]},"before":[],"after":[]"#,
        ],
        options: &[&["", r#""value":2.5"#]],
    },
    Forwards {
        op: "concat",
        tensors: &[
            r#""inputs":[{"dtype":"f64","dims":[2,3]},{"dtype":"f64","dims":[2,1]},{"dtype":"f64","dims":[2,2],"strides":[1,2]}],"axis":1"#,
            r#""inputs":[{"dtype":"f64","dims":[2,3]},{"dtype":"f64","dims":[1,3]},{"dtype":"f64","dims":[0,3]}],"axis":0"#,
            r#""inputs":[{"dtype":"f64","dims":[3],"strides":[0]}],"axis":0"#,
        ],
        options: &[],
    },
    // Some indices are out of range, and some name what others do.
    Forwards {
        op: "index_select",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,4]},"axis":0,"indices":{"dtype":"i64","dims":[5]}"#,
            r#""x":{"dtype":"f64","dims":[2,3,4],"strides":[0,4,1]},"axis":1,"indices":{"dtype":"u32","dims":[2,3]}"#,
            r#""x":{"dtype":"f64","dims":[4,3],"strides":[1,4]},"axis":1,"indices":{"dtype":"i32","dims":[3],"strides":[2]},"layouts":{"y":{"dtype":"f64","dims":[4,3],"strides":[1,5]}}"#,
            r#""x":{"dtype":"f64","dims":[]},"axis":0,"indices":{"dtype":"i64","dims":[3]}"#,
        ],
        options: &[&["", r#""from_end":true"#], &["", r#""fill":2.5,"missing":true"#]],
    },
    Forwards {
        op: "gather",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[3,4]},"axis":0,"indices":{"dtype":"i64","dims":[5,3]}"#,
            r#""x":{"dtype":"f64","dims":[3,4],"strides":[0,1]},"axis":1,"indices":{"dtype":"i32","dims":[2,7],"strides":[1,2]}"#,
            r#""x":{"dtype":"f64","dims":[3,4]},"axis":0,"indices":{"dtype":"u32","dims":[3,4],"strides":[1,0]}"#,
        ],
        options: &[&["", r#""from_end":true"#]],
    },
    Forwards {
        op: "index_add",
        tensors: &[
            r#""y":{"dtype":"f64","dims":[3,4]},"axis":0,"indices":{"dtype":"i64","dims":[5]},"combine":"add""#,
            r#""y":{"dtype":"f64","dims":[2,3,2],"strides":[1,2,6]},"axis":1,"indices":{"dtype":"u32","dims":[2,3]},"combine":"add""#,
        ],
        options: &[&["", r#""base":true"#], &["", r#""from_end":true,"missing":true"#]],
    },
    Forwards {
        op: "scatter",
        tensors: &[
            r#""y":{"dtype":"f64","dims":[3,4]},"axis":1,"indices":{"dtype":"i64","dims":[2,7]},"combine":"add""#,
            r#""y":{"dtype":"f64","dims":[3,4]},"axis":0,"indices":{"dtype":"i32","dims":[5,4],"strides":[1,0]},"combine":"add","layouts":{"source":{"dtype":"f64","dims":[5,4],"strides":[1,5]}}"#,
        ],
        options: &[&["", r#""base":true"#], &["", r#""from_end":true"#]],
    },
    Forwards {
        op: "gemm",
        tensors: &[
            r#""a":{"dtype":"f64","dims":[3,2]},"b":{"dtype":"f64","dims":[2,4]}"#,
            r#""a":{"dtype":"f64","dims":[2,3],"strides":[1,2]},"transpose_a":true,"b":{"dtype":"f64","dims":[2,4]}"#,
            r#""a":{"dtype":"f64","dims":[2,3]},"b":{"dtype":"f64","dims":[4,3]},"transpose_b":true"#,
            r#""a":{"dtype":"f64","dims":[2,3,2]},"transpose_a":true,"b":{"dtype":"f64","dims":[2,4,3]},"transpose_b":true"#,
            r#""a":{"dtype":"f64","dims":[2,2,2,3]},"b":{"dtype":"f64","dims":[3,2]}"#,
            r#""a":{"dtype":"f64","dims":[2,2,3]},"b":{"dtype":"f64","dims":[1,3,2]}"#,
            r#""a":{"dtype":"f64","dims":[2,1,2,3]},"b":{"dtype":"f64","dims":[3,3,2]}"#,
            r#""a":{"dtype":"f64","dims":[2,2,3]},"b":{"dtype":"f64","dims":[2,3,2],"strides":[0,2,1]}"#,
        ],
        options: &[BIAS, &["", r#""alpha":-0.7"#], &["", r#""pre":"f64""#], ACTIVATIONS],
    },
    Forwards {
        op: "conv",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,2,4]},"weight":{"dtype":"f64","dims":[3,2,2]}"#,
            r#""x":{"dtype":"f64","dims":[1,4,3,4],"strides":[48,1,16,4]},"weight":{"dtype":"f64","dims":[2,2,2,2],"strides":[8,1,4,2]},"groups":2,"stride":[2,1],"dilation":[1,2],"padding":[[1,0],[0,1]]"#,
            r#""x":{"dtype":"f64","dims":[2,2,3,3],"strides":[0,9,3,1]},"weight":{"dtype":"f64","dims":[2,1,2,2]},"groups":2,"layouts":{"y":{"dtype":"f64","dims":[2,2,2,2],"strides":[8,1,4,2]}}"#,
            r#""x":{"dtype":"f64","dims":[1,1,2,2,3]},"weight":{"dtype":"f64","dims":[2,1,1,2,2]},"padding":[[1,1],[0,0],[0,2]]"#,
        ],
        options: &[BIAS, &["", r#""pre":"f64""#], ACTIVATIONS],
    },
    Forwards {
        op: "conv_transpose",
        tensors: &[
            r#""x":{"dtype":"f64","dims":[2,2,3]},"weight":{"dtype":"f64","dims":[2,3,2]}"#,
            r#""x":{"dtype":"f64","dims":[1,4,2,3],"strides":[24,1,12,4]},"weight":{"dtype":"f64","dims":[4,1,2,2],"strides":[4,1,2,1]},"groups":2,"stride":[2,1],"dilation":[1,2],"padding":[[1,0],[0,1]],"output_padding":[1,1]"#,
            r#""x":{"dtype":"f64","dims":[2,2,2,2],"strides":[0,4,2,1]},"weight":{"dtype":"f64","dims":[2,2,2,2]},"layouts":{"y":{"dtype":"f64","dims":[2,2,3,3],"strides":[18,1,6,2]}}"#,
            r#""x":{"dtype":"f64","dims":[1,2,3]},"weight":{"dtype":"f64","dims":[2,2,2]},"dilation":[3],"output_padding":[2]"#,
            r#""x":{"dtype":"f64","dims":[1,1,1,2,2]},"weight":{"dtype":"f64","dims":[1,2,1,2,2]},"padding":[[0,0],[1,1],[0,1]],"stride":[1,2,2]"#,
        ],
        options: &[BIAS, &["", r#""pre":"f64""#], ACTIVATIONS],
    },
    Forwards {
        op: "triangular_solve",
        tensors: &[
            r#""a":{"dtype":"f64","dims":[2,3,3]},"b":{"dtype":"f64","dims":[2,3,3]}"#,
            r#""a":{"dtype":"f64","dims":[2,3,3],"strides":[0,1,3]},"b":{"dtype":"f64","dims":[2,3,3],"strides":[1,6,2]}"#,
            r#""a":{"dtype":"f64","dims":[2,2]},"b":{"dtype":"f64","dims":[2,2],"strides":[0,1]},"layouts":{"x":{"dtype":"f64","dims":[2,2],"strides":[1,2]}}"#,
        ],
        options: &[
            &["", r#""upper":true"#],
            &["", r#""transpose":true"#],
            &["", r#""unit_diagonal":true"#],
            &["", r#""right":true"#],
            &["", r#""alpha":-0.7"#],
        ],
    },
    Forwards {
        op: "cholesky",
        tensors: &[
            r#""a":{"dtype":"f64","dims":[2,3,3]}"#,
            r#""a":{"dtype":"f64","dims":[2,3,3],"strides":[0,1,3]},"layouts":{"factor":{"dtype":"f64","dims":[2,3,3],"strides":[20,6,2]}}"#,
        ],
        options: &[&["", r#""upper":true"#], &["", r#""info":true"#]],
    },
];

/// Forwards of types that differ between operands.
const MIXED: &[&str] = &[
    r#"layer_norm {"x":{"dtype":"bf16","dims":[4,8]},"normalized_dims":1,"eps":1e-5,"weight":"f32","bias":"f32","residual":true}"#,
    r#"rms_norm {"x":{"dtype":"f16","dims":[4,8]},"normalized_dims":1,"eps":1e-5,"weight":"f32","stats":true}"#,
    r#"batch_norm {"x":{"dtype":"bf16","dims":[4,3,4]},"eps":1e-5,"weight":"f32","bias":"f32","residual":true,"activation":"silu","momentum":0.1}"#,
    r#"group_norm {"x":{"dtype":"f16","dims":[2,4,4]},"groups":2,"eps":1e-5,"weight":"f32","bias":"f32","activation":"gelu_erf"}"#,
    r#"instance_norm {"x":{"dtype":"bf16","dims":[2,3,8]},"eps":1e-5,"weight":"bf16","bias":"bf16","inference":true}"#,
    r#"softmax {"x":{"dtype":"bf16","dims":[3,5]},"axis":1,"output":"f32"}"#,
    r#"softmax {"x":{"dtype":"f16","dims":[3,5]},"axis":0,"log":true,"output":"f32"}"#,
    r#"softmax {"x":{"dtype":"bf16","dims":[2,3,5]},"axis":2,"scale":0.5,"causal":true,"bias":{"dtype":"f32","dims":[3,5]},"output":"f32"}"#,
    r#"softmax {"x":{"dtype":"f16","dims":[3,5]},"axis":1,"log":true,"causal":true,"bias":{"dtype":"f32","dims":[3,5]}}"#,
    r#"softmax {"x":{"dtype":"f16","dims":[3,5]},"axis":0,"bias":{"dtype":"f16","dims":[5]}}"#,
    r#"pointwise {"program":{"inputs":["x","y"],"let":[["s","sigmoid","x"],["z","mul","s","y"]],"outputs":["z"]},"inputs":[{"dtype":"bf16","dims":[3,5]},{"dtype":"f32","dims":[3,5]}],"outputs":["f16"]}"#,
    r#"pointwise {"program":{"inputs":["x","y"],"let":[["s","sigmoid","x"],["z","mul","s","y"]],"outputs":["z"]},"inputs":[{"dtype":"bf16","dims":[3,5]},{"dtype":"f32","dims":[5]}]}"#,
    r#"reduce {"program":{"inputs":["x","y"],"let":[["s","sigmoid","x"],["z","mul","s","y"]],"outputs":["z"]},"inputs":[{"dtype":"bf16","dims":[3,5]},{"dtype":"f32","dims":[5]}],"axes":[0],"reduce":"mean","output":"f16"}"#,
    r#"attention {"q":{"dtype":"bf16","dims":[2,2,3,4]},"k":{"dtype":"bf16","dims":[2,1,5,4]},"v":{"dtype":"bf16","dims":[2,1,5,3]},"bias":{"dtype":"f32","dims":[3,5]},"causal":"bottom_right"}"#,
    r#"attention {"q":{"dtype":"f16","dims":[2,2,3,4]},"k":{"dtype":"f16","dims":[2,2,5,4]},"v":{"dtype":"f16","dims":[2,2,5,4]},"bias":{"dtype":"f16","dims":[2,1,5]},"soft_cap":2.0,"stats":true}"#,
    r#"cross_entropy {"x":{"dtype":"bf16","dims":[7,5]},"axis":1,"targets":"i64","stats":true}"#,
    r#"cross_entropy {"x":{"dtype":"bf16","dims":[7,5]},"axis":1,"targets":"f32","label_smoothing":0.1}"#,
    r#"cross_entropy {"x":{"dtype":"f16","dims":[7,5]},"axis":0,"targets":"i32","ignore_index":-100,"reduction":"none"}"#,
    r#"cross_entropy {"x":{"dtype":"bf16","dims":[7,5]},"axis":1,"targets":"u32","weight":"f32","label_smoothing":0.1,"z_loss":1e-4,"missing":true}"#,
    r#"linear_cross_entropy {"x":{"dtype":"bf16","dims":[7,4]},"weight":{"dtype":"bf16","dims":[5,4]},"targets":"i64"}"#,
    r#"linear_cross_entropy {"x":{"dtype":"f16","dims":[7,4]},"weight":{"dtype":"f16","dims":[5,4]},"targets":"i32","ignore_index":-100,"reduction":"none"}"#,
    r#"pool {"x":{"dtype":"bf16","dims":[2,3,5,6]},"pooling":"average","kernel":[3,3],"stride":[2,2],"padding":[[1,1],[1,1]]}"#,
    r#"pool {"x":{"dtype":"f16","dims":[2,3,5,6]},"pooling":"max","kernel":[2,3],"offsets":true}"#,
    r#"resize {"x":{"dtype":"bf16","dims":[2,3,5,6]},"sizes":[8,4],"mode":"linear"}"#,
    r#"resize {"x":{"dtype":"f16","dims":[2,3,5,6]},"sizes":[10,12],"mode":"cubic"}"#,
    r#"scan {"x":{"dtype":"bf16","dims":[3,5]},"axis":1,"scan":"sum","output":"f32"}"#,
    r#"scan {"x":{"dtype":"f16","dims":[3,5]},"axis":0,"scan":"prod"}"#,
    r#"scan {"x":{"dtype":"bf16","dims":[3,5]},"axis":1,"scan":"logsumexp","reverse":true,"output":"f32"}"#,
    r#"scan {"x":{"dtype":"bf16","dims":[3,5]},"axis":1,"scan":"logsumexp"}"#,
    r#"scan {"x":{"dtype":"f64","dims":[3,5]},"axis":1,"scan":"logsumexp","output":"f32"}"#,
    r#"scan {"x":{"dtype":"f64","dims":[3,5]},"axis":1,"scan":"prod","exclusive":true,"output":"f16"}"#,
    r#"scan {"x":{"dtype":"f32","dims":[3,5]},"axis":0,"scan":"prod","reverse":true,"output":"f64"}"#,
    r#"index_select {"x":{"dtype":"bf16","dims":[3,5]},"axis":0,"indices":{"dtype":"i64","dims":[4]}}"#,
    r#"gather {"x":{"dtype":"f16","dims":[3,5]},"axis":1,"indices":{"dtype":"i32","dims":[3,7]}}"#,
    r#"gemm {"a":{"dtype":"bf16","dims":[3,4]},"b":{"dtype":"bf16","dims":[4,5]},"bias":"f32","activation":"silu","out":"f32","pre":"bf16"}"#,
    r#"gemm {"a":{"dtype":"f16","dims":[3,4]},"b":{"dtype":"f16","dims":[4,5]},"bias":"f16","activation":"gelu_tanh","out":"f32"}"#,
    r#"gemm {"a":{"dtype":"bf16","dims":[3,4]},"b":{"dtype":"bf16","dims":[4,5]},"bias":"f32","activation":"tanh","pre":"f32"}"#,
    r#"conv {"x":{"dtype":"bf16","dims":[2,3,5]},"weight":{"dtype":"bf16","dims":[4,3,2]},"bias":"f32","activation":"silu","y":"f32","pre":"bf16"}"#,
    r#"conv {"x":{"dtype":"bf16","dims":[2,3,5]},"weight":{"dtype":"bf16","dims":[4,3,2]},"bias":"bf16","activation":"silu","y":"f32","pre":"f32"}"#,
    r#"conv {"x":{"dtype":"f16","dims":[2,3,5]},"weight":{"dtype":"f16","dims":[4,3,2]},"bias":"f32","activation":"gelu_erf","pre":"f32"}"#,
    r#"conv {"x":{"dtype":"f16","dims":[2,3,5]},"weight":{"dtype":"f16","dims":[4,3,2]},"bias":"f16","activation":"sigmoid","pre":"f32"}"#,
    r#"conv {"x":{"dtype":"bf16","dims":[2,3,5]},"weight":{"dtype":"bf16","dims":[4,3,2]},"bias":"f32","y":"f32"}"#,
    r#"conv_transpose {"x":{"dtype":"bf16","dims":[2,3,5]},"weight":{"dtype":"bf16","dims":[3,4,2]},"stride":[2],"bias":"f32","activation":"silu","y":"f32","pre":"bf16"}"#,
    r#"conv_transpose {"x":{"dtype":"f16","dims":[2,3,5]},"weight":{"dtype":"f16","dims":[3,4,2]},"bias":"f16","activation":"sigmoid","pre":"f32"}"#,
    r#"conv_transpose {"x":{"dtype":"bf16","dims":[2,3,5]},"weight":{"dtype":"bf16","dims":[3,4,2]},"dilation":[3],"output_padding":[2],"bias":"bf16","y":"f32"}"#,
];

/// Reductions and programs whose outputs compute in another type than their inputs: each reduction, alone, of what a program makes, and with a finish; and
/// programs whose outputs have several types, of inputs that are repeated and of such that are not, with numbers of 8 bits.
fn lines_of_other_computing_types() -> Vec<String> {
    let program = r#""program":{"inputs":["x","y"],"let":[["s","sigmoid","x"],["z","mul","s","y"]],"outputs":["z"]}"#;
    let finish =
        r#","finish":{"inputs":["v"],"let":[["n","count"],["t","div","v","n"],["y","tanh","t"]],"outputs":["y"]}"#;
    let linear = r#","finish":{"inputs":["v"],"let":[["y","mul","v",3]],"outputs":["y"]}"#;
    let reductions = ["sum", "mean", "prod", "max", "min", "norm1", "norm2", "norm_inf", "logsumexp", "var", "std"];
    let mut lines = Vec::new();
    for (input, output) in [("f32", "f64"), ("bf16", "f64"), ("f64", "f32"), ("f64", "f16")] {
        let x = format!(r#"{{"dtype":"{input}","dims":[3,4,2],"strides":[1,3,12]}}"#);
        let y = format!(r#"{{"dtype":"{input}","dims":[4,1]}}"#);
        for reduce in reductions {
            let of = format!(r#""axes":[0,2],"reduce":"{reduce}","output":"{output}""#);
            lines.push(format!(r#"reduce {{"inputs":[{x}],{of}}}"#));
            lines.push(format!(r#"reduce {{"inputs":[{x}],{of},"keep":[2]{finish}}}"#));
            lines.push(format!(r#"reduce {{{program},"inputs":[{x},{y}],{of}}}"#));
        }
        lines.push(format!(
            r#"reduce {{{program},"inputs":[{x},{y}],"axes":[1],"reduce":"sum","output":"{output}"{linear}}}"#
        ));
        lines.push(format!(r#"pointwise {{{program},"inputs":[{x},{x}],"outputs":["{output}"]}}"#));
        lines.push(format!(r#"pointwise {{{program},"inputs":[{x},{y}],"outputs":["{output}"]}}"#));
        let outputs = program.replace(r#"["z"]"#, r#"["z","x","s"]"#);
        lines.push(format!(r#"pointwise {{{outputs},"inputs":[{x},{y}],"outputs":["{output}","{input}","f8e4m3"]}}"#));
    }
    for types in [["f8e4m3", "f32"], ["f32", "f8e5m2"], ["f8e5m2", "f8e5m2"]] {
        let [x, y] = types;
        let inputs = format!(r#"[{{"dtype":"{x}","dims":[3,4]}},{{"dtype":"{y}","dims":[4]}}]"#);
        lines.push(format!(r#"pointwise {{{program},"inputs":{inputs},"outputs":["f8e4m3"]}}"#));
        lines.push(format!(r#"pointwise {{{program},"inputs":{inputs},"outputs":["f64"]}}"#));
    }
    lines
}

impl Forwards {
    /// Every line that the op accepts. Each tensor and each text of an option is in one of them.
    fn lines(&self) -> Vec<String> {
        let mut all: Vec<Vec<&str>> = self.tensors.iter().map(|tensors| vec![*tensors]).collect();
        for option in self.options {
            all = all.iter().flat_map(|fields| option.iter().map(|text| [&fields[..], &[*text]].concat())).collect();
        }
        let (mut lines, mut seen) = (Vec::new(), HashSet::new());
        for fields in all {
            let is_there: Vec<&str> = fields.iter().copied().filter(|text| !text.is_empty()).collect();
            let line = format!("{} {{{}}}", self.op, is_there.join(","));
            match AnyDescriptor::parse_line(&line) {
                Ok(_) => {
                    lines.push(line);
                    seen.extend(is_there);
                }
                // Layouts of other extents, and what inference does without.
                Err(error) => {
                    let is_meant =
                        ["inference", "as the other fields say"].iter().any(|w| error.to_string().contains(w));
                    assert!(is_meant, "{line}: {error}");
                }
            }
        }
        for text in self.tensors.iter().chain(self.options.iter().copied().flatten()).filter(|text| !text.is_empty()) {
            assert!(seen.contains(text), "{}: no line has {text}", self.op);
        }
        lines
    }
}

fn lines() -> Vec<String> {
    let has_gradient = |function: &Function| function.computes_in(DType::F64) && function.has_gradient();
    let functions = Function::ALL.into_iter().filter(has_gradient).map(line_of);
    FORWARDS.iter().flat_map(Forwards::lines).chain(functions).collect()
}

/// A function of sigmoids, whose values between 0 and 1 every function but acosh takes, or of what acosh takes.
fn line_of(function: Function) -> String {
    let names = &["x", "y", "z"][..function.arity()];
    let inner = if function == Function::Acosh { "cosh" } else { "sigmoid" };
    let sigmoids = names.iter().map(|name| json!([format!("s{name}"), inner, name]));
    // A bool is made of a number, which the result takes as well, so that it has a gradient.
    let argument = |(at, name): (usize, &&str)| match function {
        // They have no gradients, and are above 1.
        Function::Zeta | Function::IgammaGradA if at == 0 => json!(2.5),
        Function::Betainc if at < 2 => json!(1.5),
        _ => json!(format!("{}{name}", if function.takes_bool(at) { "b" } else { "s" })),
    };
    let arguments = names.iter().enumerate().map(argument);
    let call: Vec<Value> = ["f", function.name()].map(Value::from).into_iter().chain(arguments).collect();
    let bools = names.iter().map(|name| json!([format!("b{name}"), "gt", format!("s{name}"), 0.5]));
    // Of betainc the second argument has none, either.
    let [most, rest] = if function == Function::Betainc { ["t", "sy"] } else { ["f", "sx"] };
    let last = [json!(call), json!(["t", "add", "f", "sx"]), json!(["r", "add", most, rest])];
    let instructions: Vec<Value> = sigmoids.chain(bools).chain(last).collect();
    let json = json!({
        "program": {"inputs": names, "let": instructions, "outputs": ["r"]},
        "inputs": vec![json!({"dtype": "f64", "dims": [3, 4]}); names.len()],
    });
    format!("pointwise {json}")
}

fn parsed(line: &str) -> AnyDescriptor {
    AnyDescriptor::parse_line(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// A line with other types: of f64 f32, of 16 bits and f32 f64.
fn retyped(line: &str, from: &[&str], to: &str) -> String {
    from.iter().fold(line.to_string(), |line, from| line.replace(&format!("\"{from}\""), &format!("\"{to}\"")))
}

/// A forward with the values of what it reads and of the cotangents of the outputs that have gradients.
struct Problem {
    forward: AnyDescriptor,
    inputs: Values,
    outputs: Vec<&'static str>,
    /// The inputs that have gradients.
    wanted: Vec<&'static str>,
    cotangents: Values,
}

impl Problem {
    /// Values are drawn by the text `seed`, and rounded to the types of the descriptor `rounding`.
    fn new(forward: AnyDescriptor, seed: &str, rounding: &AnyDescriptor) -> Self {
        let mut random = Random::of(seed);
        let (mut inputs, mut cotangents) = (Values::new(), Values::new());
        for (slot, rounding) in forward.slots().iter().zip(rounding.slots()) {
            let mut draw = || match slot.name {
                "weight" => 1.0 + 0.3 * random.normal(),
                "running_var" => 0.3 + random.normal().powi(2),
                "num_batches" => 0.0,
                // The fewest classes are three.
                "targets" => (3.0 * random.uniform()).floor(),
                // At least one of four keys, or of three.
                "lengths" => 1.0 + (3.0 * random.uniform()).floor(),
                _ if slot.desc.dtype() == DType::Bool => f64::from(u8::from(random.uniform() < 0.7)),
                "indices" => (4.0 * random.uniform()).floor(),
                _ => random.normal(),
            };
            // What lies at one place has one value.
            let mut at_offset = BTreeMap::new();
            let is_strong = slot.name == "a" && ["triangular_solve", "cholesky"].contains(&forward.name());
            let n = slot.desc.dims().last().copied().unwrap_or(1).max(1) as usize;
            let drawn = offsets(&slot.desc).into_iter().enumerate().map(|(place, at)| {
                let value = match is_strong {
                    // A diagonal that is far from 0, and in a factor positive.
                    true if place / n % n == place % n => 3.0 + 0.3 * draw(),
                    true => 0.4 * draw(),
                    false => draw(),
                };
                *at_offset.entry(at).or_insert_with(|| rounded(rounding.desc.dtype(), value))
            });
            let values: Vec<f64> = drawn.collect();
            match slot.access {
                Access::Out => cotangents.insert(slot.name, values),
                Access::In | Access::InOut => inputs.insert(slot.name, values),
            };
        }
        let Err(Error::NoGradient { known: outputs, .. }) = forward.gradients(&["?"], &[]) else { panic!("{seed}") };
        let Err(Error::NoGradient { known: wanted, .. }) = forward.gradients(&outputs, &["?"]) else {
            panic!("{seed}")
        };
        Self { forward, inputs, outputs, wanted, cotangents }
    }

    fn of(line: &str) -> Self {
        let forward = parsed(line);
        Self::new(forward.clone(), line, &forward)
    }

    fn tape<'d>(&self, device: &'d Device) -> Tape<'d> {
        Tape::new(device, &self.forward, &self.inputs).unwrap_or_else(|e| panic!("{:?}: {e}", self.forward))
    }

    /// What steps give for the gradients that arrive.
    fn gradients(&self, tape: &Tape<'_>, steps: &[Step]) -> Values {
        tape.gradients(steps, &self.cotangents).unwrap_or_else(|error| panic!("{:?}: {error:?}", self.forward))
    }

    /// The difference quotients of the loss, for each element in memory of an input.
    fn quotients(&self, tape: &Tape<'_>, arriving: &[&str], input: &str) -> BTreeMap<u64, f64> {
        let loss = || -> f64 {
            tape.forward().unwrap();
            // What is -infinity, as the logarithm at a masked place, is a constant.
            let of = |output: &&str| {
                let values = tape.values(output).unwrap();
                let terms = values
                    .iter()
                    .zip(&self.cotangents[*output])
                    .filter(|(value, _)| value.is_finite() || value.is_nan());
                terms.map(|(value, cotangent)| value * cotangent).sum::<f64>()
            };
            arriving.iter().map(of).sum()
        };
        let slot = self.forward.slots().iter().find(|slot| slot.name == input).expect("an input");
        let mut quotients = BTreeMap::new();
        for (at, &value) in offsets(&slot.desc).into_iter().zip(&self.inputs[input]) {
            quotients.entry(at).or_insert_with(|| {
                let at_value = |value: f64| {
                    tape.set(input, at, value).unwrap();
                    loss()
                };
                let difference = at_value(value + STEP) - at_value(value - STEP);
                tape.set(input, at, value).unwrap();
                difference / (2.0 * STEP)
            });
        }
        tape.forward().unwrap();
        quotients
    }

    /// The worst of gradients beside their difference quotients, in units of the tolerance, and which that is.
    fn worst(&self, tape: &Tape<'_>, arriving: &[&str], gradients: &Values) -> (f64, String) {
        let mut worst = (0.0, String::new());
        for (input, gradient) in gradients {
            for (at, quotient) in self.quotients(tape, arriving, input) {
                let found = gradient[at as usize];
                let units = (found - quotient).abs() / (TOLERANCE * found.abs().max(1.0));
                // A NaN is the worst.
                if units.is_nan() || units > worst.0 {
                    let units = if units.is_nan() { f64::INFINITY } else { units };
                    worst = (units, format!("that of {input} at {at} is {found}, the difference quotient {quotient}"));
                }
            }
        }
        worst
    }
}

/// Subsets of names: all of them, and each alone.
fn subsets<'n>(names: &[&'n str]) -> Vec<Vec<&'n str>> {
    let mut subsets = vec![names.to_vec()];
    subsets.extend(names.iter().map(|name| vec![*name]).filter(|_| names.len() > 1));
    subsets
}

#[test]
fn steps_are_difference_quotients() {
    let device = Device::cpu();
    lines().par_iter().for_each(|line| {
        let problem = Problem::of(line);
        let tape = problem.tape(&device);
        tape.forward().unwrap();
        for arriving in subsets(&problem.outputs) {
            let gradients = |wanted: &[&str]| {
                let steps = problem.forward.gradients(&arriving, wanted)?;
                check(&problem.forward, &steps, &arriving, wanted).unwrap();
                Ok(problem.gradients(&tape, &steps))
            };
            let mut all = Values::new();
            for input in &problem.wanted {
                match gradients(&[input]) {
                    Ok(gradient) => all.extend(gradient),
                    Err(Error::NoGradient { operand, .. }) if operand == *input => {
                        let is_zero = problem.quotients(&tape, &arriving, input).values().all(|slope| *slope == 0.0);
                        assert!(is_zero, "{line}: {input} has a gradient if {arriving:?} arrive");
                    }
                    Err(error) => panic!("{line}: {error}"),
                }
            }
            let (units, words) = problem.worst(&tape, &arriving, &all);
            assert!(units <= 1.0, "{line}: if {arriving:?} arrive, {words}");
            // Together they are what they are alone.
            let wanted: Vec<&str> = all.keys().copied().collect();
            let together = gradients(&wanted).unwrap_or_else(|error: Error| panic!("{line}: {error}"));
            for (input, gradient) in &together {
                let pairs = gradient.iter().zip(&all[input]);
                assert!(pairs.clone().all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0)), "{line}: {input}");
            }
        }
        assert_eq!(problem.forward.gradients_all(), problem.forward.gradients(&problem.outputs, &problem.wanted));
    });
}

/// The largest distance between gradients, of the greater of 1 and the largest element of the second.
fn distance(gradients: &Values, expected: &Values) -> f64 {
    assert!(gradients.keys().eq(expected.keys()) && !gradients.is_empty());
    let of = |(input, expected): (&&'static str, &Vec<f64>)| {
        let largest = expected.iter().fold(1.0, |most: f64, value| most.max(value.abs()));
        let distances = gradients[input].iter().zip(expected).map(|(a, b)| (a - b).abs() / largest);
        distances.fold(0.0, |most: f64, distance| if distance.is_nan() { f64::INFINITY } else { most.max(distance) })
    };
    expected.iter().map(of).fold(0.0, f64::max)
}

/// All gradients of a problem on a device.
fn gradients_on(device: &Device, problem: &Problem) -> Values {
    let tape = problem.tape(device);
    tape.forward().unwrap();
    problem.gradients(&tape, &problem.forward.gradients_all().unwrap())
}

/// Difference quotients, with elements that are 0: none, one, and several of a line, at its ends and beside each other.
#[test]
fn gradients_of_products_are_right_where_elements_are_zero() {
    let device = Device::cpu();
    for options in ["", r#","reverse":true"#, r#","exclusive":true"#, r#","exclusive":true,"reverse":true"#] {
        let line = format!(r#"scan {{"x":{{"dtype":"f64","dims":[6,5]}},"axis":1,"scan":"prod"{options}}}"#);
        let mut problem = Problem::of(&line);
        let zeros: [&[usize]; 6] = [&[], &[2], &[0], &[4], &[1, 3], &[0, 1, 4]];
        for (row, zeros) in zeros.iter().enumerate() {
            zeros.iter().for_each(|at| problem.inputs.get_mut("x").expect("x")[5 * row + at] = 0.0);
        }
        let tape = problem.tape(&device);
        tape.forward().unwrap();
        let gradients = problem.gradients(&tape, &problem.forward.gradients_all().unwrap());
        let (units, words) = problem.worst(&tape, &problem.outputs, &gradients);
        assert!(units <= 1.0, "{line}: {words}");
    }
}

#[test]
fn gradients_of_logarithms_do_not_read_what_exclusive_scans_begin_with() {
    let device = Device::cpu();
    let line = r#"scan {"x":{"dtype":"f64","dims":[3,5]},"axis":1,"scan":"logsumexp""#;
    // The first result of the exclusive scan is minus infinity, its others are those of an inclusive one: so are the gradients of these.
    let [whole, exclusive] = ["", r#","exclusive":true"#].map(|options| {
        let mut problem = Problem::of(&format!("{line}{options}}}"));
        problem.inputs = Problem::of(&format!("{line}}}")).inputs;
        let cotangent = |i: usize| (i as f64).sin();
        let first = usize::from(!options.is_empty());
        let values = (0..15).map(|i| if first == 1 && i % 5 == 0 { 0.7 } else { cotangent(i - first) });
        let mut values: Vec<f64> = values.collect();
        if first == 0 {
            // Of the last one no exclusive result depends on it.
            [4, 9, 14].into_iter().for_each(|i| values[i] = 0.0);
        }
        problem.cotangents.insert("y", values);
        let tape = problem.tape(&device);
        tape.forward().unwrap();
        problem.gradients(&tape, &problem.forward.gradients_all().unwrap()).remove("x").expect("a gradient")
    });
    assert!(
        whole.iter().zip(&exclusive).all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0)),
        "{whole:?} {exclusive:?}"
    );
}

/// 16 bits have half a unit of numbers near 100, of which the exponential is 1.6.
#[test]
fn gradients_of_logarithms_do_not_depend_on_the_digits_of_the_output() {
    let device = Device::cpu();
    let line = r#"scan {"x":{"dtype":"bf16","dims":[2,4]},"axis":1,"scan":"logsumexp"}"#;
    let mut problem = Problem::of(line);
    problem.inputs.insert("x", vec![100.0; 8]);
    problem.cotangents.insert("y", vec![0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    let gradient = &gradients_on(&device, &problem)["x"];
    assert_eq!(gradient[..], [0.25, 0.25, 0.25, 0.25, 1.0, 0.0, 0.0, 0.0]);
}

/// Results are minus infinity as long as all elements are, which pass nothing on; those behind have the gradients that they have without them.
#[test]
fn gradients_of_logarithms_are_zero_where_nothing_is_added_up() {
    let device = Device::cpu();
    for (options, x) in [
        ("", [f64::NEG_INFINITY, f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 1.5]),
        (r#","reverse":true"#, [1.5, f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, f64::NEG_INFINITY]),
        (r#","exclusive":true"#, [f64::NEG_INFINITY, f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 1.5]),
        ("", [f64::NEG_INFINITY; 5]),
    ] {
        for dtype in ["f64", "bf16"] {
            let line =
                format!(r#"scan {{"x":{{"dtype":"{dtype}","dims":[1,5]}},"axis":1,"scan":"logsumexp"{options}}}"#);
            let mut problem = Problem::of(&line);
            problem.inputs.insert("x", x.to_vec());
            let dy = [2.0, -1.0, 0.5, 4.0, -0.25];
            problem.cotangents.insert("y", dy.to_vec());
            let found = &gradients_on(&device, &problem)["x"];
            // `dy[i] exp(x[j] - y[i])` of all i that j is a part of, and whose sum is one of some.
            let (is_back, is_exclusive) = (options.contains("reverse"), options.contains("exclusive"));
            let is_part = |j: usize, i: usize| match (is_back, is_exclusive) {
                (true, _) => j >= i,
                (_, true) => j < i,
                _ => j <= i,
            };
            let sum = |i: usize| (0..5).filter(|&j| is_part(j, i)).map(|j| x[j].exp()).sum::<f64>();
            let term = |j: usize, i: usize| if sum(i) == 0.0 { 0.0 } else { dy[i] * x[j].exp() / sum(i) };
            for (j, found) in found.iter().enumerate() {
                let expected: f64 = (0..5).filter(|&i| is_part(j, i)).map(|i| term(j, i)).sum();
                let allowed = if dtype == "f64" { 1e-14 } else { 0.01 };
                assert!((found - expected).abs() <= allowed, "{line} of {x:?} at {j}: {found}, expected {expected}");
            }
        }
    }
}

#[test]
fn extremes_say_why_they_have_no_gradient() {
    for scan in ["max", "min"] {
        let forward = parsed(&format!(r#"scan {{"x":{{"dtype":"f32","dims":[6,5]}},"axis":1,"scan":"{scan}"}}"#));
        let error = forward.gradients(&["y"], &["x"]).expect_err("a refusal").to_string();
        assert!(error.contains("scatter to the indices"), "{error}");
    }
}

#[test]
fn what_arrives_in_another_computing_type_is_cast_where_it_is_read_beside_others() {
    for line in lines_of_other_computing_types() {
        let forward = parsed(&line);
        let steps = forward.gradients_all().unwrap_or_else(|error| panic!("{line}: {error}"));
        let Problem { outputs, wanted, .. } = Problem::of(&line);
        check(&forward, &steps, &outputs, &wanted).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    // A sum has one step: it reads nothing else.
    let sum = parsed(r#"reduce {"inputs":[{"dtype":"f64","dims":[3,4]}],"axes":[1],"reduce":"sum","output":"f32"}"#);
    assert_eq!(sum.gradients_all().unwrap().len(), 1);
}

#[test]
fn steps_agree_between_backends_and_types() {
    let (cpu, wgpu) = (Device::cpu(), TARGETS.iter().find(|target| target.name == "wgpu").expect("a target"));
    let (tried, ops) = (Mutex::new(HashSet::new()), Mutex::new(HashSet::new()));
    let narrow = lines().into_iter().map(|line| (retyped(&line, &["f64"], "f32"), line, TOLERANCE_OF_F32));
    let mixed = MIXED
        .iter()
        .map(|line| (line.to_string(), retyped(line, &["bf16", "f16", "f32"], "f64"), TOLERANCE_OF_16_BITS));
    let others = lines_of_other_computing_types().into_iter().map(|line| {
        let tolerance = match () {
            () if line.contains("f8e") => TOLERANCE_OF_8_BITS,
            () if line.contains("f16\"") => TOLERANCE_OF_16_BITS,
            () => TOLERANCE_OF_F32,
        };
        let exact = retyped(&line, &["f8e4m3", "f8e5m2", "bf16", "f16", "f32"], "f64");
        (line, exact, tolerance)
    });
    let all: Vec<_> = narrow.chain(mixed).chain(others).collect();
    all.par_iter().for_each(|(line, exact, tolerance)| {
        let (problem, exact) = (Problem::of(line), Problem::new(parsed(exact), line, &parsed(line)));
        let expected = gradients_on(&cpu, &exact);
        let found = distance(&gradients_on(&cpu, &problem), &expected);
        assert!(found <= *tolerance, "{line}: on the CPU {found:e}");
        // Through wgpu one forward for each list of steps and roles, since software adapters take long to compile a shader.
        let Ok(device) = &wgpu.device else { return };
        let steps = problem.forward.gradients_all().unwrap();
        let all = || steps.iter().map(|step| &step.descriptor).chain([&problem.forward]);
        let options = PlanOptions::default();
        let is_served = all().all(|descriptor| descriptor.supported_by(device, &options).is_ok());
        let roles: Vec<_> = steps.iter().map(|step| (step.descriptor.name(), step.roles.clone())).collect();
        let key = (problem.forward.name(), roles, *tolerance == TOLERANCE_OF_F32);
        if is_served && tried.lock().unwrap().insert(key) {
            ops.lock().unwrap().extend(all().map(AnyDescriptor::name));
            let found = distance(&gradients_on(device, &problem), &expected);
            assert!(found <= *tolerance, "{line}: through wgpu {found:e}");
        }
    });
    let ops = ops.into_inner().unwrap();
    let mut with_gradients = OPS.iter().filter(|op| !OF_POSITIONS.iter().any(|(name, _)| *name == op.name));
    assert!(wgpu.device.is_err() || with_gradients.all(|op| ops.contains(op.name)), "only {ops:?} ran through wgpu");
}

/// With a bias or a mask forward takes any layout on every backend, and so do its gradients.
#[test]
fn gradients_of_masked_softmax_take_the_layouts_that_forward_takes() {
    let wgpu = TARGETS.iter().find(|target| target.name == "wgpu").expect("a target");
    let mut devices = vec![Device::cpu()];
    devices.extend(wgpu.device.clone().ok());
    let masks = [r#""causal":true"#, r#""bias":{"dtype":"f32","dims":[3,5]}"#];
    let layouts = [
        r#""x":{"dtype":"f32","dims":[2,3,5],"strides":[15,1,3]},"layouts":{"y":{"dtype":"f32","dims":[2,3,5]}}"#,
        r#""x":{"dtype":"f32","dims":[2,3,5],"strides":[40,12,2]}"#,
        r#""x":{"dtype":"f32","dims":[2,3,5],"strides":[0,5,1]},"layouts":{"y":{"dtype":"f32","dims":[2,3,5],"strides":[1,10,2]}}"#,
        r#""x":{"dtype":"bf16","dims":[2,3,5],"strides":[1,2,6]},"output":"f32","layouts":{"y":{"dtype":"f32","dims":[2,3,5]}}"#,
    ];
    for (mask, layout) in masks.iter().flat_map(|mask| layouts.map(|layout| (mask, layout))) {
        for option in ["", r#","log":true"#] {
            let line = format!(r#"softmax {{{layout},"axis":2,"scale":0.7,{mask}{option}}}"#);
            let problem = Problem::of(&line);
            let exact = retyped(&line, &["bf16", "f32"], "f64").replace(r#""output":"f64","#, "");
            let expected = gradients_on(&Device::cpu(), &Problem::new(parsed(&exact), &line, &problem.forward));
            let tolerance = if line.contains("bf16") { TOLERANCE_OF_16_BITS } else { TOLERANCE_OF_F32 };
            for device in &devices {
                for step in problem.forward.gradients_all().unwrap() {
                    let served = step.descriptor.supported_by(device, &PlanOptions::default());
                    assert!(served.is_ok(), "{line} on {device}: {:?}", served.err());
                }
                let found = distance(&gradients_on(device, &problem), &expected);
                assert!(found <= tolerance, "{line} on {device}: {found:e}");
            }
        }
    }
}

#[test]
fn every_op_has_lines() {
    let mut run: BTreeSet<&str> = FORWARDS.iter().map(|forwards| forwards.op).collect();
    for line in lines() {
        let steps = parsed(&line).gradients_all().unwrap();
        run.extend(steps.iter().map(|step| step.descriptor.name()));
    }
    run.extend(OF_POSITIONS.iter().map(|(op, _)| *op));
    for op in OPS {
        assert!(run.contains(op.name), "{} has no line in tests/gradients.rs", op.name);
    }
}

/// Ops all of whose results are positions.
const OF_POSITIONS: [(&str, &str); 2] = [
    ("nonzero", r#"{"x":{"dtype":"f64","dims":[3,4]},"count":"i64"}"#),
    ("search_sorted", r#"{"sorted":{"dtype":"f64","dims":[3]},"values":{"dtype":"f64","dims":[4]}}"#),
];

#[test]
fn positions_have_no_gradients() {
    for (op, json) in OF_POSITIONS {
        let forward = AnyDescriptor::parse(op, json).unwrap();
        for refused in [forward.gradients_all(), forward.gradients(&["indices"], &["x"]), forward.gradients(&[], &[])] {
            assert_eq!(refused, Err(Error::NoBackward { op }));
        }
    }
}

/// Wires steps as a tape would that looked at the names of slots instead of their roles: everything is forward's operand of that name, or its
/// gradient.
fn by_name(steps: Vec<Step>) -> Vec<Step> {
    let mut steps = steps;
    for step in &mut steps {
        let names: Vec<&str> = step.descriptor.slots().iter().map(|slot| slot.name).collect();
        for (role, name) in step.roles.iter_mut().zip(names) {
            match (name, &role) {
                ("x", Role::Forward(_)) => *role = Role::Forward("x"),
                ("dy", Role::Intermediate(_)) => *role = Role::GradientOf("y"),
                _ => {}
            }
        }
    }
    steps
}

#[test]
fn steps_that_are_wired_by_name_and_gradients_with_an_error_are_caught() {
    let device = Device::cpu();
    let caught = |problem: &Problem, steps: &[Step], spoil: &dyn Fn(&mut Values)| {
        let tape = problem.tape(&device);
        tape.forward().unwrap();
        let mut gradients = problem.gradients(&tape, steps);
        spoil(&mut gradients);
        problem.worst(&tape, &problem.outputs, &gradients)
    };
    for line in [
        r#"conv {"x":{"dtype":"f64","dims":[2,2,4]},"weight":{"dtype":"f64","dims":[3,2,2]},"activation":"silu"}"#,
        r#"conv {"x":{"dtype":"f64","dims":[2,2,4]},"weight":{"dtype":"f64","dims":[3,2,2]},"activation":"relu"}"#,
        r#"rms_norm {"x":{"dtype":"f64","dims":[3,5]},"normalized_dims":1,"eps":1e-5,"residual":true,"stats":true}"#,
    ] {
        let problem = Problem::of(line);
        let steps = by_name(problem.forward.gradients_all().unwrap());
        let (units, _) = caught(&problem, &steps, &|_| {});
        assert!(units > 1000.0, "{line}: {units}");
    }
    for forwards in FORWARDS {
        let line = forwards.lines().pop().expect("a line");
        let problem = Problem::of(&line);
        let steps = problem.forward.gradients_all().unwrap();
        for input in &problem.wanted {
            let spoil = |gradients: &mut Values| {
                let gradient = gradients.get_mut(input).unwrap();
                let at = (0..gradient.len()).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs())).unwrap();
                gradient[at] += 1e-5 * gradient[at].abs().max(1.0);
            };
            let (units, words) = caught(&problem, &steps, &spoil);
            assert!(units > 1.0 && words.contains(input), "{line}: {units} {words}");
        }
    }
}

#[test]
fn what_has_no_gradient_is_named_with_what_has() {
    let norm = parsed(
        r#"batch_norm {"x":{"dtype":"f64","dims":[3,2,2]},"eps":1e-5,"weight":"f64","momentum":0.1,"stats":true}"#,
    );
    let words = |arriving: &[&str], wanted: &[&str]| norm.gradients(arriving, wanted).unwrap_err().to_string();
    for output in ["mean", "rstd", "running_mean", "x", "pre", ""] {
        assert_eq!(
            words(&[output], &["x"]),
            format!("batch_norm: {output:?} is no output at which a gradient arrives; these are y")
        );
    }
    for input in ["bias", "residual", "running_var", "y", "dx"] {
        assert_eq!(
            words(&["y"], &["x", input]),
            format!("batch_norm: {input:?} is no input that has a gradient; these are x, weight")
        );
    }
    assert!(matches!(norm.gradients(&[], &["x"]), Err(Error::NoGradient { known, .. }) if known == ["y"]));
    assert_eq!(norm.gradients(&["y"], &[]), Ok(Vec::new()));
    let rms = parsed(
        r#"rms_norm {"x":{"dtype":"f64","dims":[3,2]},"normalized_dims":1,"weight":"f64","residual":true,"eps":0.1}"#,
    );
    let refused = rms.gradients(&["h"], &["x", "weight"]);
    assert!(
        matches!(&refused, Err(Error::NoGradient { operand, known, .. }) if operand == "weight" && known[..] == ["y"])
    );
    let none = norm.gradients_all().unwrap()[0].descriptor.gradients(&["dx"], &["dy"]);
    assert_eq!(none, Err(Error::NoBackward { op: "batch_norm_backward" }));
}

/// The gradient of a reduction of one line, each of whose elements is an f64, by the steps alone.
fn of_line(reduce: &str, x: &[f64]) -> Vec<f64> {
    let json = format!(r#"{{"inputs":[{{"dtype":"f64","dims":[1,{}]}}],"axes":[1],"reduce":"{reduce}"}}"#, x.len());
    let (forward, device) = (AnyDescriptor::parse("reduce", &json).unwrap(), Device::cpu());
    let steps = forward.gradients(&["out0"], &["in0"]).unwrap();
    check(&forward, &steps, &["out0"], &["in0"]).unwrap();
    let tape = Tape::new(&device, &forward, &Values::from([("in0", x.to_vec())])).unwrap();
    tape.forward().unwrap();
    tape.gradients(&steps, &Values::from([("out0", vec![2.0])])).unwrap()["in0"].clone()
}

#[test]
fn products_of_zeros_and_extremes_that_are_equal_have_gradients() {
    for (reduce, x, dx) in [
        ("prod", [2.0, 3.0, 5.0], [30.0, 20.0, 12.0]),
        ("prod", [2.0, 0.0, 5.0], [0.0, 20.0, 0.0]),
        ("prod", [0.0, 3.0, -0.0], [0.0, 0.0, 0.0]),
        ("max", [1.0, 3.0, 3.0], [0.0, 1.0, 1.0]),
        ("min", [1.0, 3.0, 3.0], [2.0, 0.0, 0.0]),
        ("max", [1.0, 1.0, 1.0], [2.0 / 3.0; 3]),
        ("norm_inf", [-3.0, 3.0, 1.0], [-1.0, 1.0, 0.0]),
        ("norm1", [-3.0, 0.0, 1.0], [-2.0, 0.0, 2.0]),
        ("norm2", [3.0, 0.0, 4.0], [1.2, 0.0, 1.6]),
        ("norm2", [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ("std", [1.5, 1.5, 1.5], [0.0, 0.0, 0.0]),
        ("logsumexp", [0.0, f64::NEG_INFINITY, 0.0], [1.0, 0.0, 1.0]),
        ("logsumexp", [f64::NEG_INFINITY; 3], [0.0; 3]),
    ] {
        let found = of_line(reduce, &x);
        let is_near = found.iter().zip(&dx).all(|(found, dx)| (found - dx).abs() <= 1e-15);
        assert!(is_near, "{reduce} of {x:?}: {found:?}, expected {dx:?}");
    }
}

#[test]
fn what_is_counted_has_no_gradient_and_says_so() {
    for reduce in ["argmax", "argmin", "any", "all", "count_nonzero"] {
        let json = format!(r#"{{"inputs":[{{"dtype":"f32","dims":[3]}}],"axes":[0],"reduce":"{reduce}"}}"#);
        let error = AnyDescriptor::parse("reduce", &json).unwrap().gradients_all().unwrap_err();
        assert!(matches!(error, Error::NoGradient { op: "reduce", .. }), "{reduce}: {error}");
        assert!(error.to_string().contains("constant between their jumps"), "{reduce}: {error}");
    }
}
