//! A kernel's text, decoded into instructions that the machine steps through.

use std::collections::HashMap;

use crate::alu::{self, Function};
use crate::driver;
use crate::machine::{PARAMETER_MARK, SHARED_MARK};
use crate::ptx::{self, Piece, Type};
use crate::tensor_map::{MOST_AXES, MOST_RANK};

/// A register's place in a warp's file; predicates have a file of their own.
pub(crate) type Register = u32;
/// No register: a result that is dropped.
pub(crate) const NONE: Register = Register::MAX;

/// A kernel ready to run.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) instructions: Vec<Instruction>,
    /// What instructions name by number.
    pub(crate) tensor_copies: Vec<TensorCopy>,
    pub(crate) products: Vec<GroupProduct>,
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
    /// Registers that hold a number from the start.
    pub(crate) constants: Vec<(Register, u64)>,
    /// Registers that hold a place in the grid from the start.
    pub(crate) specials: Vec<(Register, Special)>,
    /// Sizes of the parameters and where each starts.
    pub(crate) parameters: Vec<Parameter>,
    /// Statically declared shared memory; memory asked for at launch comes after it.
    pub(crate) shared_bytes: u64,
    pub(crate) local_bytes: u64,
    pub(crate) max_threads: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// A register that says which thread this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
    Warp,
    ClusterRank,
    ClusterBlocks,
    LanesBelow,
    DynamicBytes,
    /// Half of the address of the memory in which blocks of a cooperative launch meet: the lower, then the upper.
    Environment(usize),
}

pub(crate) struct Instruction {
    /// A predicate, and whether it must be false.
    pub(crate) guard: Option<(Register, bool)>,
    /// Threads may come here from elsewhere.
    pub(crate) is_target: bool,
    pub(crate) op: Op,
    /// Of the statement, for faults.
    pub(crate) text: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
    Parameter,
}

/// An address: a register plus a constant.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(crate) base: Register,
    pub(crate) offset: i64,
}

#[derive(Clone, Copy)]
pub(crate) enum Shuffle {
    Index,
    Up,
    Down,
    Xor,
}

#[derive(Clone, Copy)]
pub(crate) enum Op {
    Nothing,
    Compute {
        f: Function,
        to: Register,
        a: Register,
        b: Register,
        c: Register,
    },
    /// `lop3` with its table, `bfi` and `bfe` with four operands.
    Lop3 {
        to: Register,
        a: Register,
        b: Register,
        c: Register,
        table: Register,
    },
    Insert {
        to: Register,
        a: Register,
        b: Register,
        start: Register,
        bits: Register,
        width: u64,
    },
    Extract {
        to: Register,
        a: Register,
        start: Register,
        bits: Register,
        ty: Type,
    },
    /// Two 16-bit halves from two floats; the first is the upper half.
    PackHalves {
        to: Register,
        upper: Register,
        lower: Register,
        is_brain: bool,
    },
    /// All ones or zeros in each 16-bit half.
    CompareHalves {
        f: fn(u64, u64) -> bool,
        to: Register,
        a: Register,
        b: Register,
    },
    Tf32 {
        to: Register,
        a: Register,
    },
    /// A comparison's result as a number: 1.0 or 0.0, or all ones or zeros.
    Set {
        f: fn(u64, u64) -> bool,
        to: Register,
        a: Register,
        b: Register,
        one: u64,
    },
    Compare {
        f: fn(u64, u64) -> bool,
        to: Register,
        a: Register,
        b: Register,
    },
    Logic {
        f: fn(u32, u32) -> u32,
        to: Register,
        a: Register,
        b: Register,
    },
    Select {
        to: Register,
        a: Register,
        b: Register,
        predicate: Register,
    },
    Pack {
        to: Register,
        parts: [Register; 4],
        count: u8,
        bits: u8,
    },
    Unpack {
        to: [Register; 4],
        a: Register,
        count: u8,
        bits: u8,
    },
    /// 128 bits are two registers.
    MovePair {
        to: [Register; 2],
        from: [Register; 2],
    },
    /// `is_polled`: a loop may wait with it for what another thread stores.
    Load {
        space: Space,
        bytes: u8,
        is_signed: bool,
        is_polled: bool,
        count: u8,
        to: [Register; 4],
        from: Address,
    },
    Store {
        space: Space,
        bytes: u8,
        count: u8,
        values: [Register; 4],
        to: Address,
    },
    Atomic {
        f: Function,
        space: Space,
        bytes: u8,
        old: Register,
        at: Address,
        value: Register,
    },
    CompareSwap {
        space: Space,
        bytes: u8,
        old: Register,
        at: Address,
        expected: Register,
        value: Register,
    },
    Branch {
        target: usize,
    },
    Exit,
    Trap,
    /// Waits for all threads of the block, or for `threads`. `any` is the predicate that is combined, and its result.
    Barrier {
        id: Register,
        threads: Register,
        any: Option<(Register, Register, bool)>,
    },
    BarrierArrive {
        id: Register,
        threads: Register,
    },
    ClusterArrive,
    ClusterWait,
    WarpBarrier {
        mask: Register,
    },
    Shuffle {
        mode: Shuffle,
        to: Register,
        in_range: Register,
        a: Register,
        by: Register,
        clamp: Register,
        mask: Register,
    },
    Vote {
        mode: Vote,
        to: Register,
        a: Register,
        is_negated: bool,
        mask: Register,
    },
    Reduce {
        f: Function,
        to: Register,
        a: Register,
        mask: Register,
    },
    /// Bytes beyond `read` are zeros.
    CopyAsync {
        to: Address,
        from: Address,
        bytes: u8,
        read: Register,
    },
    CopyCommit,
    /// Waits until no more than so many groups are under way.
    CopyWait {
        groups: u32,
        all: bool,
    },
    CopyBulk {
        to: Address,
        from: Address,
        bytes: Register,
        barrier: Address,
    },
    /// A copy of a part of a tensor, by its number.
    CopyTensor {
        number: u32,
    },
    StoreCommit,
    /// Waits until no more than so many groups of stores read shared memory.
    StoreWait {
        groups: u32,
    },
    StoreAsync {
        bytes: u8,
        count: u8,
        values: [Register; 4],
        to: Address,
        barrier: Address,
    },
    BarrierInit {
        at: Address,
        count: Register,
    },
    /// Expects bytes first, if any, then arrives.
    BarrierObjectArrive {
        at: Address,
        expected: Register,
        count: Register,
    },
    BarrierExpect {
        at: Address,
        expected: Register,
    },
    BarrierTry {
        to: Register,
        at: Address,
        parity: Register,
    },
    MapRank {
        to: Register,
        a: Register,
        rank: Register,
    },
    /// Lets others go first.
    Sleep,
    /// A number of cycles that grows with every instruction, or its lower half.
    Clock {
        to: Register,
        bytes: u8,
    },
    LoadMatrix {
        to: [Register; 4],
        count: u8,
        is_transposed: bool,
        from: Address,
    },
    StoreMatrix {
        to: Address,
        values: [Register; 4],
        count: u8,
        is_transposed: bool,
    },
    Multiply {
        shape: Shape,
        to: [Register; 4],
        a: [Register; 4],
        b: [Register; 2],
        c: [Register; 4],
    },
    /// Begins a product of a warpgroup, by its number.
    GroupMultiply {
        number: u32,
    },
    GroupCommit,
    /// Waits until no more than so many groups of products are under way.
    GroupWait {
        groups: u32,
    },
}

/// A copy of a part of a tensor: to shared memory, where `barrier` counts its bytes, or without one from there.
pub(crate) struct TensorCopy {
    pub(crate) map: Address,
    pub(crate) rank: u8,
    pub(crate) at: [Register; MOST_RANK],
    pub(crate) has_windows: bool,
    pub(crate) offsets: [Register; MOST_AXES],
    pub(crate) shared: Address,
    pub(crate) barrier: Option<Address>,
}

/// A product of a warpgroup: 64 rows, two columns for each of a lane's sums.
pub(crate) struct GroupProduct {
    pub(crate) shape: Shape,
    pub(crate) sums: Vec<Register>,
    /// Descriptors of factors in shared memory.
    pub(crate) left: Register,
    pub(crate) right: Register,
    /// A predicate: false for sums that begin with this product.
    pub(crate) adds: Register,
    /// Whether the left and the right factor lie across k.
    pub(crate) across: [bool; 2],
}

#[derive(Clone, Copy)]
pub(crate) enum Vote {
    Any,
    All,
    Ballot,
}

/// Factors of tensor cores with f32 sums; the extents are those of a warp's product, whose k is also that of a warpgroup's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// m16n8k16
    F16,
    /// m16n8k16
    Bf16,
    /// m16n8k8
    Tf32,
    /// m16n8k4
    Tf32Short,
}

#[derive(Clone, Copy)]
enum Name {
    Register(Register),
    Predicate(Register),
    /// `%r<9>` declares its registers by their prefix.
    Range {
        is_predicate: bool,
    },
    Wide(Register, Register),
    Number(u64),
}

struct Decoder {
    scopes: Vec<HashMap<String, Name>>,
    registers: u32,
    predicates: u32,
    constants: HashMap<u64, Register>,
    specials: HashMap<Special, Register>,
    labels: HashMap<String, usize>,
    /// Values of `.param` registers around a call.
    passed: HashMap<String, Register>,
    tensor_copies: Vec<TensorCopy>,
    products: Vec<GroupProduct>,
}

/// Decodes an entry.
pub(crate) fn decode(name: &str, entry: &ptx::Entry<'_>) -> Result<Program, String> {
    let (head, body) = entry.text.split_at(entry.text.find('{').ok_or("no body")?);
    let mut decoder = Decoder {
        scopes: vec![HashMap::new()],
        registers: 0,
        predicates: 0,
        constants: HashMap::new(),
        specials: HashMap::new(),
        labels: HashMap::new(),
        passed: HashMap::new(),
        tensor_copies: Vec::new(),
        products: Vec::new(),
    };
    let parameters = decoder.parameters(head);
    let (mut shared_bytes, mut local_bytes) = (0, 0);
    let (mut dynamic, mut dynamic_align) = (Vec::new(), 16);
    let place = |decoder: &mut Decoder, variable: ptx::Variable, bytes: &mut u64| {
        *bytes = bytes.next_multiple_of(variable.align);
        decoder.scopes[0].insert(variable.name, Name::Number(*bytes));
        *bytes += variable.bytes;
    };
    for variable in ptx::variables(entry.module, ".shared").into_iter().chain(ptx::variables(body, ".shared")) {
        if variable.bytes == 0 {
            if is_used(body, &variable.name) {
                dynamic_align = dynamic_align.max(variable.align);
            }
            dynamic.push(variable.name);
        } else if is_used(body, &variable.name) {
            place(&mut decoder, variable, &mut shared_bytes);
        }
    }
    for variable in ptx::variables(body, ".local") {
        place(&mut decoder, variable, &mut local_bytes);
    }
    for (variable, bytes) in ptx::tables(entry.module) {
        if is_used(body, &variable.name) {
            decoder.scopes[0].insert(variable.name, Name::Number(driver::place(&bytes)));
        }
    }
    // Memory asked for at launch lies behind it: as ptxas does, what is declared statically is filled up to the alignment of that memory.
    shared_bytes = shared_bytes.next_multiple_of(dynamic_align);
    for name in dynamic {
        decoder.scopes[0].insert(name, Name::Number(shared_bytes));
    }

    let mut pieces = ptx::pieces(body);
    join_calls(&mut pieces);
    let mut count = 0;
    for piece in &pieces {
        match piece {
            Piece::Label(label) => {
                decoder.labels.insert(label.clone(), count);
            }
            Piece::Statement(text) if !text.starts_with('.') => count += 1,
            _ => {}
        }
    }
    let mut instructions = Vec::with_capacity(count + 1);
    for piece in &pieces {
        match piece {
            Piece::Open => decoder.scopes.push(HashMap::new()),
            Piece::Close => {
                decoder.scopes.pop();
            }
            Piece::Label(_) => {}
            Piece::Statement(text) if text.starts_with('.') => decoder.declare(text)?,
            Piece::Statement(text) => {
                let (guard, op) = decoder.instruction(text).map_err(|e| format!("{text}: {e}"))?;
                instructions.push(Instruction { guard, is_target: false, op, text: text.as_str().into() });
            }
        }
    }
    instructions.push(Instruction { guard: None, is_target: false, op: Op::Exit, text: "end".into() });
    for &target in decoder.labels.values() {
        instructions[target].is_target = true;
    }
    let max_threads = head
        .split_once(".maxntid")
        .map(|(_, sizes)| sizes.trim_start().split(|c: char| !(c.is_ascii_digit() || c == ',' || c == ' ')).next())
        .map_or(1024, |sizes| {
            sizes.unwrap_or("").split(',').filter_map(|n| n.trim().parse::<u32>().ok()).product::<u32>()
        });
    Ok(Program {
        name: name.to_owned(),
        instructions,
        tensor_copies: decoder.tensor_copies,
        products: decoder.products,
        registers: decoder.registers,
        predicates: decoder.predicates,
        constants: decoder.constants.iter().map(|(&value, &register)| (register, value)).collect(),
        specials: decoder.specials.iter().map(|(&special, &register)| (register, special)).collect(),
        parameters,
        shared_bytes,
        local_bytes,
        max_threads,
    })
}

fn is_used(body: &str, name: &str) -> bool {
    body.match_indices(name)
        .any(|(at, _)| !body[at + name.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$'))
}

/// A call is a scope with `.param` registers, stores to them, the call and a load: one statement `call to, name, arguments`.
fn join_calls(pieces: &mut [Piece]) {
    for piece in pieces {
        if let Piece::Statement(text) = piece
            && let Some(rest) = text.strip_prefix("call.uni ")
        {
            *text = format!("call {}", rest.replace(['(', ')'], ""));
        }
    }
}

impl Decoder {
    fn parameters(&mut self, head: &str) -> Vec<Parameter> {
        let mut parameters = Vec::new();
        let mut end = 0usize;
        let list = head.split_once('(').map_or("", |(_, list)| list);
        for declaration in list.split([',', ')', '\n']) {
            let Some(variable) = ptx::variable(declaration.trim(), ".param") else { continue };
            let offset = end.next_multiple_of(variable.align.max(1) as usize);
            end = offset + variable.bytes as usize;
            self.scopes[0].insert(variable.name, Name::Number(offset as u64));
            parameters.push(Parameter { offset, bytes: variable.bytes as usize });
        }
        parameters
    }

    fn declare(&mut self, text: &str) -> Result<(), String> {
        let Some(rest) = text.strip_prefix(".reg ") else { return Ok(()) };
        let (ty, names) = rest.trim().split_once(' ').ok_or("a declaration without a name")?;
        for name in names.split(',').map(str::trim) {
            let is_predicate = ty == ".pred";
            let (name, slot) = match name.split_once('<') {
                Some((prefix, _)) => (prefix, Name::Range { is_predicate }),
                None if is_predicate => (name, Name::Predicate(self.predicate())),
                None if ty == ".b128" => (name, Name::Wide(self.register(), self.register())),
                None => (name, Name::Register(self.register())),
            };
            let scope = self.scopes.last_mut().ok_or("a declaration outside a scope")?;
            scope.insert(name.to_owned(), slot);
        }
        Ok(())
    }

    fn register(&mut self) -> Register {
        self.registers += 1;
        self.registers - 1
    }

    fn predicate(&mut self) -> Register {
        self.predicates += 1;
        self.predicates - 1
    }

    fn constant(&mut self, value: u64) -> Register {
        if let Some(&register) = self.constants.get(&value) {
            return register;
        }
        let register = self.register();
        self.constants.insert(value, register);
        register
    }

    fn name(&mut self, name: &str) -> Option<Name> {
        if let Some(&slot) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Some(slot);
        }
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let depth = self.scopes.iter().rposition(|scope| matches!(scope.get(prefix), Some(Name::Range { .. })))?;
        let Some(&Name::Range { is_predicate }) = self.scopes[depth].get(prefix) else { return None };
        let slot = if is_predicate { Name::Predicate(self.predicate()) } else { Name::Register(self.register()) };
        self.scopes[depth].insert(name.to_owned(), slot);
        Some(slot)
    }

    fn special(&mut self, name: &str) -> Option<Register> {
        let dimension = |name: &str| ["x", "y", "z"].iter().position(|&d| name.ends_with(&format!(".{d}")));
        let special = match name.split('.').next()? {
            "%tid" => Special::Thread(dimension(name)?),
            "%ntid" => Special::Threads(dimension(name)?),
            "%ctaid" => Special::Block(dimension(name)?),
            "%nctaid" => Special::Blocks(dimension(name)?),
            "%laneid" => Special::Lane,
            "%warpid" => Special::Warp,
            "%cluster_ctarank" => Special::ClusterRank,
            "%cluster_nctarank" => Special::ClusterBlocks,
            "%lanemask_lt" => Special::LanesBelow,
            "%envreg1" => Special::Environment(1),
            "%envreg2" => Special::Environment(0),
            "%dynamic_smem_size" => Special::DynamicBytes,
            _ => return None,
        };
        if let Some(&register) = self.specials.get(&special) {
            return Some(register);
        }
        let register = self.register();
        self.specials.insert(special, register);
        Some(register)
    }

    /// The register of an operand; numbers get one of their own.
    fn value(&mut self, text: &str) -> Result<Register, String> {
        if text == "_" {
            return Ok(NONE);
        }
        if let Some(register) = self.special(text) {
            return Ok(register);
        }
        match self.name(text) {
            Some(Name::Register(register)) => return Ok(register),
            Some(Name::Number(number)) => return Ok(self.constant(number)),
            Some(_) => return Err(format!("{text} is not a register")),
            None => {}
        }
        let number = number(text).ok_or_else(|| format!("unknown operand {text}"))?;
        Ok(self.constant(number))
    }

    fn truth(&mut self, text: &str) -> Result<Register, String> {
        match self.name(text) {
            Some(Name::Predicate(register)) => Ok(register),
            _ if text == "_" => Ok(NONE),
            _ => Err(format!("{text} is not a predicate")),
        }
    }

    fn address(&mut self, text: &str) -> Result<Address, String> {
        let inner = text.trim().trim_start_matches('[').trim_end_matches(']').trim();
        let (base, offset) = match inner.split_once('+') {
            Some((base, offset)) => (base.trim(), offset.trim().parse().map_err(|_| format!("offset {offset}"))?),
            None => (inner, 0),
        };
        Ok(Address { base: self.value(base)?, offset })
    }

    fn vector<const N: usize>(&mut self, text: &str) -> Result<([Register; N], u8), String> {
        let mut registers = [NONE; N];
        let inner = text.trim().trim_start_matches('{').trim_end_matches('}');
        let mut count = 0;
        for part in inner.split(',').map(str::trim) {
            match self.name(part) {
                Some(Name::Wide(low, high)) => {
                    *registers.get_mut(count).ok_or("too many parts")? = low;
                    *registers.get_mut(count + 1).ok_or("too many parts")? = high;
                    count += 2;
                }
                _ => {
                    *registers.get_mut(count).ok_or("too many parts")? = self.value(part)?;
                    count += 1;
                }
            }
        }
        Ok((registers, count as u8))
    }

    fn instruction(&mut self, text: &str) -> Result<(Option<(Register, bool)>, Op), String> {
        let (guard, text) = match text.strip_prefix('@') {
            Some(rest) => {
                let (name, rest) = rest.split_once(' ').ok_or("a guard alone")?;
                let is_negated = name.starts_with('!');
                (Some((self.truth(name.trim_start_matches('!'))?, is_negated)), rest.trim())
            }
            None => (None, text),
        };
        let (opcode, operands) = text.split_once(' ').unwrap_or((text, ""));
        let operands = split(operands);
        let words: Vec<&str> = opcode.split('.').collect();
        self.op(&words, &operands).map(|op| (guard, op))
    }

    fn op(&mut self, words: &[&str], operands: &[&str]) -> Result<Op, String> {
        let base = words[0];
        let has = |word: &str| words[1..].contains(&word);
        let last = words.last().copied().unwrap_or("");
        let ty = Type::parse(last);
        let at = |i: usize| operands.get(i).copied().ok_or_else(|| format!("operand {i} is missing"));
        let typed = || ty.ok_or_else(|| format!("unknown type {last}"));
        Ok(match base {
            "ld" | "ldu" => return self.load(words, operands),
            "st" if has("async") => {
                let (values, count) = self.vector(at(1)?)?;
                let (to, barrier) = (self.address(at(0)?)?, self.address(at(2)?)?);
                Op::StoreAsync { bytes: typed()?.bytes(), count, values, to, barrier }
            }
            "st" => return self.store(words, operands),
            "mov" if matches!(at(1)?, "%clock" | "%clock64") => {
                Op::Clock { to: self.value(at(0)?)?, bytes: typed()?.bytes() }
            }
            "mov" if at(0)?.starts_with('{') => {
                let (to, count) = self.vector(at(0)?)?;
                match self.name(at(1)?) {
                    Some(Name::Wide(low, high)) => Op::MovePair { to: [to[0], to[1]], from: [low, high] },
                    _ => Op::Unpack { to, a: self.value(at(1)?)?, count, bits: typed()?.bytes() * 8 / count },
                }
            }
            "mov" if at(1)?.starts_with('{') => {
                let (parts, count) = self.vector(at(1)?)?;
                match self.name(at(0)?) {
                    Some(Name::Wide(low, high)) => Op::MovePair { to: [low, high], from: [parts[0], parts[1]] },
                    _ => Op::Pack { to: self.value(at(0)?)?, parts, count, bits: typed()?.bytes() * 8 / count },
                }
            }
            "mov" if ty == Some(Type::Predicate) => {
                let to = self.truth(at(0)?)?;
                match number(at(1)?) {
                    Some(0) => Op::Logic { f: |_, _| 0, to, a: to, b: to },
                    Some(_) => Op::Logic { f: |_, _| u32::MAX, to, a: to, b: to },
                    None => Op::Logic { f: |a, _| a, to, a: self.truth(at(1)?)?, b: to },
                }
            }
            "and" | "or" | "xor" | "not" if ty == Some(Type::Predicate) => {
                let f: fn(u32, u32) -> u32 = match base {
                    "and" => |a, b| a & b,
                    "or" => |a, b| a | b,
                    "xor" => |a, b| a ^ b,
                    _ => |a, _| !a,
                };
                let (to, a) = (self.truth(at(0)?)?, self.truth(at(1)?)?);
                Op::Logic { f, to, a, b: if base == "not" { a } else { self.truth(at(2)?)? } }
            }
            "cvta" => {
                // Generic addresses of global memory are those of the machine; of shared memory and of parameters they have a mark.
                let (to, a) = (self.value(at(0)?)?, self.value(at(1)?)?);
                let f: Function = match (has("to"), has("shared") || has("shared::cta")) {
                    (_, false) if has("global") => |a, _, _| a,
                    (true, true) => |a, _, _| a & 0xffff_ffff,
                    (false, true) => |a, _, _| a | SHARED_MARK,
                    (false, false) if has("param") => |a, _, _| a | PARAMETER_MARK,
                    _ => return Err("another state space".into()),
                };
                Op::Compute { f, to, a, b: a, c: a }
            }
            "cvt" if has("f16x2") || has("bf16x2") => Op::PackHalves {
                to: self.value(at(0)?)?,
                upper: self.value(at(1)?)?,
                lower: self.value(at(2)?)?,
                is_brain: has("bf16x2"),
            },
            "cvt" if has("tf32") => Op::Tf32 { to: self.value(at(0)?)?, a: self.value(at(1)?)? },
            "cvt" => {
                let to = words.get(words.len() - 2).and_then(|word| Type::parse(word)).ok_or("unknown type")?;
                let f = alu::conversion(to, typed()?, &words[1..words.len() - 2]).ok_or("unknown conversion")?;
                let (to, a) = (self.value(at(0)?)?, self.value(at(1)?)?);
                Op::Compute { f, to, a, b: a, c: a }
            }
            "setp" => {
                let f = alu::comparison(words[1], typed()?).ok_or("unknown comparison")?;
                if words.len() != 3 {
                    return Err("a comparison with another predicate".into());
                }
                Op::Compare { f, to: self.truth(at(0)?)?, a: self.value(at(1)?)?, b: self.value(at(2)?)? }
            }
            "set" => {
                let (to, a, b) = (self.value(at(0)?)?, self.value(at(1)?)?, self.value(at(2)?)?);
                match last {
                    "f16x2" | "bf16x2" => {
                        let ty = if last == "f16x2" { Type::F16 } else { Type::Bf16 };
                        let f = alu::comparison(words[1], ty).ok_or("unknown comparison")?;
                        Op::CompareHalves { f, to, a, b }
                    }
                    _ => {
                        let one = if words[2] == "f32" { u64::from(1f32.to_bits()) } else { 0xffff_ffff };
                        Op::Set { f: alu::comparison(words[1], typed()?).ok_or("unknown comparison")?, to, a, b, one }
                    }
                }
            }
            "selp" => Op::Select {
                to: self.value(at(0)?)?,
                a: self.value(at(1)?)?,
                b: self.value(at(2)?)?,
                predicate: self.truth(at(3)?)?,
            },
            "lop3" => Op::Lop3 {
                to: self.value(at(0)?)?,
                a: self.value(at(1)?)?,
                b: self.value(at(2)?)?,
                c: self.value(at(3)?)?,
                table: self.value(at(4)?)?,
            },
            "bfi" => Op::Insert {
                to: self.value(at(0)?)?,
                a: self.value(at(1)?)?,
                b: self.value(at(2)?)?,
                start: self.value(at(3)?)?,
                bits: self.value(at(4)?)?,
                width: u64::from(typed()?.bytes()) * 8,
            },
            "bfe" => Op::Extract {
                to: self.value(at(0)?)?,
                a: self.value(at(1)?)?,
                start: self.value(at(2)?)?,
                bits: self.value(at(3)?)?,
                ty: typed()?,
            },
            "atom" | "red" => return self.atomic(words, operands),
            "bra" => {
                let target = *self.labels.get(at(0)?).ok_or("unknown label")?;
                Op::Branch { target }
            }
            "ret" | "exit" => Op::Exit,
            "trap" => Op::Trap,
            "call" => return self.call(operands),
            "bar" | "barrier" if has("cluster") => {
                if has("arrive") {
                    Op::ClusterArrive
                } else {
                    Op::ClusterWait
                }
            }
            "bar" if has("warp") => Op::WarpBarrier { mask: self.value(at(0)?)? },
            "bar" | "barrier" if has("red") => {
                let with_threads = operands.len() == 4;
                let source = at(operands.len() - 1)?;
                let any = (
                    self.truth(source.trim_start_matches('!'))?,
                    self.truth(at(0)?)?,
                    match (has("or"), source.starts_with('!')) {
                        (true, false) => false,
                        _ => return Err("another combination of predicates".into()),
                    },
                );
                let threads = if with_threads { self.value(at(2)?)? } else { NONE };
                Op::Barrier { id: self.value(at(1)?)?, threads, any: Some(any) }
            }
            "bar" | "barrier" => {
                let threads = if operands.len() > 1 { self.value(at(1)?)? } else { NONE };
                let id = self.value(at(0)?)?;
                if has("arrive") { Op::BarrierArrive { id, threads } } else { Op::Barrier { id, threads, any: None } }
            }
            "shfl" => {
                let (to, in_range) = at(0)?.split_once('|').unwrap_or((at(0)?, "_"));
                Op::Shuffle {
                    mode: match words[2] {
                        "idx" => Shuffle::Index,
                        "up" => Shuffle::Up,
                        "down" => Shuffle::Down,
                        "bfly" => Shuffle::Xor,
                        mode => return Err(format!("unknown mode {mode}")),
                    },
                    to: self.value(to)?,
                    in_range: self.truth(in_range)?,
                    a: self.value(at(1)?)?,
                    by: self.value(at(2)?)?,
                    clamp: self.value(at(3)?)?,
                    mask: self.value(at(4)?)?,
                }
            }
            "vote" => {
                let mode = match words[2] {
                    "any" => Vote::Any,
                    "all" => Vote::All,
                    "ballot" => Vote::Ballot,
                    mode => return Err(format!("unknown mode {mode}")),
                };
                let to = match mode {
                    Vote::Ballot => self.value(at(0)?)?,
                    _ => self.truth(at(0)?)?,
                };
                let is_negated = at(1)?.starts_with('!');
                let a = self.truth(at(1)?.trim_start_matches('!'))?;
                Op::Vote { mode, to, a, is_negated, mask: self.value(at(2)?)? }
            }
            "redux" => {
                let name = if matches!(words[2], "and" | "or" | "xor") { "b32" } else { last };
                let ty = Type::parse(name).ok_or("unknown type")?;
                let f = alu::function(words[2], &[], ty).ok_or("unknown reduction")?;
                Op::Reduce { f, to: self.value(at(0)?)?, a: self.value(at(1)?)?, mask: self.value(at(2)?)? }
            }
            "cp" => return self.copy(words, operands),
            "mbarrier" => return self.barrier_object(words, operands),
            "mapa" => Op::MapRank { to: self.value(at(0)?)?, a: self.value(at(1)?)?, rank: self.value(at(2)?)? },
            "nanosleep" => Op::Sleep,
            "griddepcontrol" | "fence" | "membar" | "prefetch" | "discard" | "applypriority" | "createpolicy"
            | "setmaxnreg" => {
                match operands {
                    // A policy of the cache is a number that nothing here looks at.
                    [to, ..] if base == "createpolicy" => {
                        let zero = self.constant(0);
                        Op::Compute { f: |a, _, _| a, to: self.value(to)?, a: zero, b: zero, c: zero }
                    }
                    _ => Op::Nothing,
                }
            }
            "ldmatrix" => {
                let (to, count) = self.vector(at(0)?)?;
                Op::LoadMatrix { to, count, is_transposed: has("trans"), from: self.address(at(1)?)? }
            }
            "stmatrix" => {
                let (values, count) = self.vector(at(1)?)?;
                Op::StoreMatrix { to: self.address(at(0)?)?, values, count, is_transposed: has("trans") }
            }
            "wgmma" => return self.warpgroup(words, operands),
            "mma" => {
                let shape = match (words[3], words[7]) {
                    ("m16n8k16", "f16") => Shape::F16,
                    ("m16n8k16", "bf16") => Shape::Bf16,
                    ("m16n8k8", "tf32") => Shape::Tf32,
                    ("m16n8k4", "tf32") => Shape::Tf32Short,
                    _ => return Err("unknown shape".into()),
                };
                if words[4..7] != ["row", "col", "f32"] || last != "f32" {
                    return Err("unknown layout".into());
                }
                let (to, a) = (self.vector(at(0)?)?.0, self.vector(at(1)?)?.0);
                let (b, c) = (self.vector(at(2)?)?.0, self.vector(at(3)?)?.0);
                Op::Multiply { shape, to, a, b, c }
            }
            _ => {
                // mul.wide has the type of its factors, sqrt.rn.f32 that of its result.
                let f = alu::function(base, &words[1..words.len() - 1], typed()?).ok_or("unknown instruction")?;
                let mut values = [0; 3];
                for (i, value) in values.iter_mut().enumerate() {
                    *value = self.value(at((i + 1).min(operands.len() - 1))?)?;
                }
                Op::Compute { f, to: self.value(at(0)?)?, a: values[0], b: values[1], c: values[2] }
            }
        })
    }

    fn space(words: &[&str]) -> Space {
        let is = |names: &[&str]| words.iter().any(|word| names.contains(word));
        if is(&["shared", "shared::cta", "shared::cluster"]) {
            Space::Shared
        } else if is(&["local"]) {
            Space::Local
        } else if is(&["param", "param::entry"]) {
            Space::Parameter
        } else {
            Space::Global
        }
    }

    fn load(&mut self, words: &[&str], operands: &[&str]) -> Result<Op, String> {
        let last = words.last().copied().unwrap_or("");
        let ty = Type::parse(last).ok_or_else(|| format!("unknown type {last}"))?;
        let &[to, from, ..] = operands else { return Err("two operands are needed".into()) };
        if let Some(&passed) = self.passed.get(parameter(from)) {
            return Ok(Op::Compute { f: |a, _, _| a, to: self.value(to)?, a: passed, b: passed, c: passed });
        }
        let (to, count) = self.vector(to)?;
        let bytes = ty.bytes().min(8);
        let is_signed = matches!(ty, Type::Signed(..=4));
        let is_polled = ["acquire", "relaxed", "volatile"].iter().any(|order| words.contains(order));
        Ok(Op::Load { space: Self::space(words), bytes, is_signed, is_polled, count, to, from: self.address(from)? })
    }

    fn store(&mut self, words: &[&str], operands: &[&str]) -> Result<Op, String> {
        let last = words.last().copied().unwrap_or("");
        let ty = Type::parse(last).ok_or_else(|| format!("unknown type {last}"))?;
        let &[to, values, ..] = operands else { return Err("two operands are needed".into()) };
        if words.contains(&"param") {
            let value = self.value(values)?;
            self.passed.insert(parameter(to).to_owned(), value);
            return Ok(Op::Nothing);
        }
        let (values, count) = self.vector(values)?;
        Ok(Op::Store { space: Self::space(words), bytes: ty.bytes().min(8), count, values, to: self.address(to)? })
    }

    fn atomic(&mut self, words: &[&str], operands: &[&str]) -> Result<Op, String> {
        let last = words.last().copied().unwrap_or("");
        let ty = Type::parse(last).ok_or_else(|| format!("unknown type {last}"))?;
        let space = Self::space(words);
        let (old, operands) = match (words[0], operands) {
            ("atom", [old, rest @ ..]) => (self.value(old)?, rest),
            _ => (NONE, operands),
        };
        let &[at, value, ..] = operands else { return Err("an address and a value are needed".into()) };
        let (at, value, bytes) = (self.address(at)?, self.value(value)?, ty.bytes());
        if words.contains(&"cas") {
            let new = self.value(operands.get(2).copied().ok_or("no new value")?)?;
            return Ok(Op::CompareSwap { space, bytes, old, at, expected: value, value: new });
        }
        let name = ["add", "min", "max", "and", "or", "xor", "exch"].into_iter().find(|name| words.contains(name));
        let f: Function = match name.ok_or("unknown operation")? {
            "exch" => |_, b, _| b,
            name => alu::function(name, &[], ty).ok_or("unknown operation")?,
        };
        Ok(Op::Atomic { f, space, bytes, old, at, value })
    }

    fn copy(&mut self, words: &[&str], operands: &[&str]) -> Result<Op, String> {
        let has = |word: &str| words.contains(&word);
        let at = |i: usize| operands.get(i).copied().ok_or_else(|| format!("operand {i} is missing"));
        if !has("async") {
            return Err("unknown copy".into());
        }
        if has("bulk") {
            return self.bulk_copy(words, operands);
        }
        Ok(if has("commit_group") {
            Op::CopyCommit
        } else if has("wait_group") {
            Op::CopyWait { groups: at(0)?.parse().map_err(|_| "not a number")?, all: false }
        } else if has("wait_all") {
            Op::CopyWait { groups: 0, all: true }
        } else {
            let bytes: u8 = at(2)?.parse().map_err(|_| "not a number")?;
            // With a policy of the cache the last operand is no size.
            let sizes = operands.len() - usize::from(words.iter().any(|word| word.ends_with("cache_hint")));
            let read = if sizes > 3 { self.value(at(3)?)? } else { self.constant(u64::from(bytes)) };
            Op::CopyAsync { to: self.address(at(0)?)?, from: self.address(at(1)?)?, bytes, read }
        })
    }

    fn bulk_copy(&mut self, words: &[&str], operands: &[&str]) -> Result<Op, String> {
        let at = |i: usize| operands.get(i).copied().ok_or_else(|| format!("operand {i} is missing"));
        let complete = "mbarrier::complete_tx::bytes";
        let rank = |word: &str| word.strip_suffix('d').and_then(|rank| rank.parse::<u8>().ok());
        let copy = match words[3..] {
            ["commit_group"] => return Ok(Op::StoreCommit),
            ["wait_group"] | ["wait_group", "read"] => {
                return Ok(Op::StoreWait { groups: at(0)?.parse().map_err(|_| "not a number")? });
            }
            // A policy of the cache changes no result.
            ["shared::cluster", "global", word] | ["shared::cluster", "global", word, "L2::cache_hint"]
                if word == complete =>
            {
                let (to, from) = (self.address(at(0)?)?, self.address(at(1)?)?);
                return Ok(Op::CopyBulk { to, from, bytes: self.value(at(2)?)?, barrier: self.address(at(3)?)? });
            }
            ["tensor", dims, "shared::cluster", "global", ref kind @ .., word]
                if word == complete && matches!(kind, [] | ["tile"] | ["im2col"]) =>
            {
                let has_windows = *kind == ["im2col"];
                let offsets = if has_windows { self.vector(at(3)?)?.0 } else { [NONE; MOST_AXES] };
                let barrier = Some(self.address(at(2)?)?);
                let (map, at_indices) = self.tensor(at(1)?)?;
                TensorCopy {
                    map,
                    rank: rank(dims).ok_or("unknown rank")?,
                    at: at_indices,
                    has_windows,
                    offsets,
                    shared: self.address(at(0)?)?,
                    barrier,
                }
            }
            ["tensor", dims, "global", "shared::cta", ref kind @ .., "bulk_group"] if matches!(kind, [] | ["tile"]) => {
                let (map, at_indices) = self.tensor(at(0)?)?;
                TensorCopy {
                    map,
                    rank: rank(dims).ok_or("unknown rank")?,
                    at: at_indices,
                    has_windows: false,
                    offsets: [NONE; MOST_AXES],
                    shared: self.address(at(1)?)?,
                    barrier: None,
                }
            }
            _ => return Err("unknown copy".into()),
        };
        self.tensor_copies.push(copy);
        Ok(Op::CopyTensor { number: (self.tensor_copies.len() - 1) as u32 })
    }

    /// A map and the indices at which a copy begins: `[map, {indices}]`.
    fn tensor(&mut self, text: &str) -> Result<(Address, [Register; MOST_RANK]), String> {
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        let (map, indices) = inner.split_once(',').ok_or("no indices")?;
        Ok((self.address(map)?, self.vector(indices)?.0))
    }

    fn warpgroup(&mut self, words: &[&str], operands: &[&str]) -> Result<Op, String> {
        let at = |i: usize| operands.get(i).copied().ok_or_else(|| format!("operand {i} is missing"));
        Ok(match words[1] {
            "fence" => Op::Nothing,
            "commit_group" => Op::GroupCommit,
            "wait_group" => Op::GroupWait { groups: at(0)?.parse().map_err(|_| "not a number")? },
            "mma_async" => {
                let [_, _, "sync", "aligned", extents, "f32", left, right] = *words else {
                    return Err("unknown form".into());
                };
                let (columns, depth) = extents
                    .strip_prefix("m64n")
                    .and_then(|extents| extents.split_once('k'))
                    .ok_or("unknown extents")?;
                let shape = match (depth, left, right) {
                    ("16", "f16", "f16") => Shape::F16,
                    ("16", "bf16", "bf16") => Shape::Bf16,
                    ("8", "tf32", "tf32") => Shape::Tf32,
                    _ => return Err("unknown shape".into()),
                };
                let sums = at(0)?.trim_start_matches('{').trim_end_matches('}');
                let sums: Vec<Register> =
                    sums.split(',').map(|sum| self.value(sum.trim())).collect::<Result<_, String>>()?;
                if columns.parse() != Ok(2 * sums.len()) || !sums.len().is_multiple_of(4) {
                    return Err(format!("{} sums", sums.len()));
                }
                let across = match operands.get(4..).unwrap_or(&[])[..] {
                    ["1", "1"] if shape == Shape::Tf32 => [false; 2],
                    ["1", "1", left, right] if shape != Shape::Tf32 => [left, right].map(|across| across == "1"),
                    _ => return Err("unknown signs or majors".into()),
                };
                let (left, right, adds) = (self.value(at(1)?)?, self.value(at(2)?)?, self.truth(at(3)?)?);
                self.products.push(GroupProduct { shape, sums, left, right, adds, across });
                Op::GroupMultiply { number: (self.products.len() - 1) as u32 }
            }
            _ => return Err("unknown instruction".into()),
        })
    }

    fn barrier_object(&mut self, words: &[&str], operands: &[&str]) -> Result<Op, String> {
        let has = |word: &str| words.contains(&word);
        let at = |i: usize| operands.get(i).copied().ok_or_else(|| format!("operand {i} is missing"));
        Ok(match words[1] {
            "init" => Op::BarrierInit { at: self.address(at(0)?)?, count: self.value(at(1)?)? },
            "inval" => Op::Nothing,
            "arrive" => {
                if at(0)? != "_" {
                    return Err("a state is asked for".into());
                }
                let one = self.constant(1);
                let expects = has("expect_tx");
                let number = if operands.len() > 2 { self.value(at(2)?)? } else { one };
                let (expected, count) = if expects { (number, one) } else { (NONE, number) };
                Op::BarrierObjectArrive { at: self.address(at(1)?)?, expected, count }
            }
            "expect_tx" => Op::BarrierExpect { at: self.address(at(0)?)?, expected: self.value(at(1)?)? },
            "try_wait" | "test_wait" if has("parity") => {
                Op::BarrierTry { to: self.truth(at(0)?)?, at: self.address(at(1)?)?, parity: self.value(at(2)?)? }
            }
            _ => return Err("unknown instruction".into()),
        })
    }

    /// The functions that the compiler calls by name.
    fn call(&mut self, operands: &[&str]) -> Result<Op, String> {
        let &[to, name, ref arguments @ ..] = operands else { return Err("a name is needed".into()) };
        let f: Function = match name {
            "__internal_accurate_pow" => |a, b, _| f64::from_bits(a).powf(f64::from_bits(b)).to_bits(),
            "__internal_lgamma_pos" => |a, _, _| libm::lgamma(f64::from_bits(a)).to_bits(),
            name => return Err(format!("unknown function {name}")),
        };
        let mut values = [NONE; 2];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = *self.passed.get(*argument).ok_or("an argument that was not stored")?;
        }
        let result = self.register();
        self.passed.insert(to.to_owned(), result);
        Ok(Op::Compute { f, to: result, a: values[0], b: values[1], c: values[1] })
    }
}

/// The name in `[name+0]`.
fn parameter(text: &str) -> &str {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    inner.split_once('+').map_or(inner, |(name, _)| name)
}

/// Operands, separated by commas outside braces and brackets.
fn split(operands: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in operands.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(operands[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(operands[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn number(text: &str) -> Option<u64> {
    if let Some(bits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return u64::from_str_radix(bits, 16).ok();
    }
    if let Some(bits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0D")) {
        return u64::from_str_radix(bits, 16).ok();
    }
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let digits = digits.trim_end_matches('U');
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if is_negative { value.wrapping_neg() } else { value })
}
