//! The text of PTX: modules, entries, and statements of one function.

use std::collections::HashMap;

/// The text of a function's kernel, found by name in a module.
pub(crate) struct Entry<'t> {
    /// Declarations of the module before it: variables in shared memory that entries share.
    pub(crate) module: &'t str,
    /// From the parenthesis of its parameters to the brace that ends it.
    pub(crate) text: &'t str,
}

/// The entries of a module by name.
pub(crate) fn entries(module: &str) -> HashMap<&str, Entry<'_>> {
    let starts: Vec<usize> = module.match_indices(".entry ").map(|(at, _)| at).collect();
    // Device functions that are called lie before the entries or between them; they are known by name and not read.
    let head = &module[..starts.first().copied().unwrap_or(module.len())];
    starts
        .iter()
        .filter_map(|&start| {
            let text = &module[start + ".entry ".len()..];
            let end = body_end(text)?;
            let name = text.split(|c: char| c == '(' || c.is_whitespace()).next()?;
            Some((name, Entry { module: head, text: &text[name.len()..end] }))
        })
        .collect()
}

/// The position after the brace that closes the first one.
fn body_end(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// A piece of a function's body.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    /// `{` of a scope.
    Open,
    /// `}` of a scope.
    Close,
    /// `name:`
    Label(String),
    /// Text up to a semicolon.
    Statement(String),
}

/// The pieces of a body, its outer braces included.
pub(crate) fn pieces(body: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut vector = 0;
    let mut chars = body.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                for c in chars.by_ref() {
                    if c == '\n' {
                        break;
                    }
                }
            }
            '{' if text.trim().is_empty() => {
                text.clear();
                pieces.push(Piece::Open);
            }
            '}' if vector == 0 => {
                text.clear();
                pieces.push(Piece::Close);
            }
            ';' if vector == 0 => {
                let statement = text.split_whitespace().collect::<Vec<_>>().join(" ");
                if !statement.is_empty() {
                    pieces.push(Piece::Statement(statement));
                }
                text.clear();
            }
            ':' if chars.peek() != Some(&':') && is_name(text.trim()) => {
                pieces.push(Piece::Label(text.trim().to_owned()));
                text.clear();
            }
            _ => {
                vector += i32::from(c == '{') - i32::from(c == '}');
                text.push(c);
            }
        }
    }
    pieces
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '$' || c == '_')
}

/// A variable that a declaration such as `.shared .align 16 .b8 name[64]` makes.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) align: u64,
    pub(crate) bytes: u64,
}

/// The variables of a state space that a text declares, in order. `name[]` has no bytes.
pub(crate) fn variables(text: &str, space: &str) -> Vec<Variable> {
    text.split([';', '{', '\n']).filter_map(|declaration| variable(declaration.trim(), space)).collect()
}

/// The tables in global memory that a text declares, as `.global .align 16 .b8 name[3] = {186, 94};`, and their bytes; those left out are 0.
pub(crate) fn tables(text: &str) -> Vec<(Variable, Vec<u8>)> {
    let table = |declaration: &str| {
        let (declaration, bytes) = declaration[declaration.find(".global ")?..].split_once('=')?;
        let bytes = bytes.trim().strip_prefix('{')?.strip_suffix('}')?;
        let bytes = bytes.split(',').map(|byte| byte.trim().parse().ok()).collect::<Option<Vec<u8>>>()?;
        let variable = variable(declaration.trim(), ".global")?;
        let rest = usize::try_from(variable.bytes).ok()?.checked_sub(bytes.len())?;
        Some((variable, [bytes, vec![0; rest]].concat()))
    };
    text.split(';').filter_map(table).collect()
}

/// The variable that a declaration makes, if it is one of this state space.
pub(crate) fn variable(declaration: &str, space: &str) -> Option<Variable> {
    let rest = declaration.trim_start_matches(".extern ").trim_start_matches(".visible ");
    let mut words = rest.strip_prefix(space)?.split_whitespace();
    let (mut align, mut element) = (0, 1);
    while let Some(word) = words.next() {
        match word.strip_prefix('.') {
            Some("align") => align = words.next()?.parse().ok()?,
            Some(ty) => element = u64::from(Type::parse(ty)?.bytes()),
            None => {
                let (name, count) = match word.split_once('[') {
                    Some((name, count)) => (name, count.trim_end_matches(']').parse().unwrap_or(0)),
                    None => (word, 1),
                };
                let name = name.trim_end_matches(',').to_owned();
                return Some(Variable { name, align: align.max(element), bytes: element * count });
            }
        }
    }
    None
}

/// An element type of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bits(u8),
    Unsigned(u8),
    Signed(u8),
    F16,
    Bf16,
    /// Two in one register.
    F16Pair,
    /// Two in one register.
    Bf16Pair,
    F32,
    F64,
    Predicate,
}

impl Type {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pred" => Self::Predicate,
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "f16x2" => Self::F16Pair,
            "bf16x2" => Self::Bf16Pair,
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => {
                let bits: u32 = text.get(1..)?.parse().ok()?;
                let bytes = u8::try_from(bits / 8).ok().filter(|bytes| bytes.is_power_of_two() && *bytes <= 16)?;
                match text.as_bytes().first()? {
                    b'b' => Self::Bits(bytes),
                    b'u' => Self::Unsigned(bytes),
                    b's' => Self::Signed(bytes),
                    _ => return None,
                }
            }
        })
    }

    pub(crate) fn bytes(self) -> u8 {
        match self {
            Self::Bits(bytes) | Self::Unsigned(bytes) | Self::Signed(bytes) => bytes,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::F16Pair | Self::Bf16Pair => 4,
            Self::F64 => 8,
            Self::Predicate => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_cut_at_labels_scopes_and_semicolons() {
        let text = "{\n.reg .b32 %r<3>;\n$L1: // loop\n{ .reg .pred p;\nld.v2.u32 {%r1, %r2}, [%rd1]; }\n\
                    mbarrier.init.shared::cta.b64 [%r1], 1;\n}";
        let statement = |text: &str| Piece::Statement(text.to_owned());
        assert_eq!(
            pieces(text),
            [
                Piece::Open,
                statement(".reg .b32 %r<3>"),
                Piece::Label("$L1".to_owned()),
                Piece::Open,
                statement(".reg .pred p"),
                statement("ld.v2.u32 {%r1, %r2}, [%rd1]"),
                Piece::Close,
                statement("mbarrier.init.shared::cta.b64 [%r1], 1"),
                Piece::Close,
            ]
        );
    }

    #[test]
    fn tables_have_their_bytes() {
        let text = "// head\n.global .align 16 .b8 known[3] = {70, 210,\n 176};\n.global .align 4 .b8 open[4];\n.shared .align 4 .b8 s[4];\n";
        let found = tables(text);
        let [(variable, bytes)] = &found[..] else { panic!("{} tables", found.len()) };
        assert_eq!((&*variable.name, variable.align, &bytes[..]), ("known", 16, &[70, 210, 176][..]));
        assert_eq!(tables(&text.replace("known[3]", "known[4]"))[0].1, [70, 210, 176, 0]);
        assert!(tables(&text.replace("known[3]", "known[2]")).is_empty(), "more bytes than it has");
    }

    #[test]
    fn entries_are_found_by_name() {
        let module = ".extern .shared .align 16 .b8 s[];\n.visible .entry one(\n.param .u32 a\n)\n{\nret;\n}\n.entry two()\n{ret;}";
        let entries = entries(module);
        assert_eq!(entries.len(), 2);
        assert!(entries["one"].text.contains(".param .u32 a"));
        assert_eq!(variables(entries["two"].module, ".shared")[0].name, "s");
    }
}
