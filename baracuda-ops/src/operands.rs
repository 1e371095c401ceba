//! Tables of operands: a family states its operands once, its ops name those that they have, and the rest follows.
//!
//! [`operands!`] makes of a table the constants by which slots are declared and kernels find operands. [`args!`] makes of some names of a
//! table the struct that a run takes. Neither holds more than declarations and bodies of one line.

use crate::slots::{OperandEntry, index_of, is_same};

/// A table of operands. A row is a constant for its index, the name, the access, when it is declared, the partner in place, and in the args of
/// the ops that say nothing else the documentation of its field, and of the step of those that come together, if it is the first:
///
/// `MEAN mean: Out, if stats => "Mean of each row, if declared.", step "Where the statistics go.";`
///
/// An access `InOut or In` follows from a field. The table becomes a module: `TABLE`; for each row its index, which is where a run
/// finds the operand, whatever others an op declares; the type of a row's memory, `memory!(mean 'a)`; and the C struct whose fields are the
/// pointers of all rows, `memory!(pointers Operands, located)`. The `$` in front stands for itself in that inner macro.
macro_rules! operands {
    ($dollar:tt $(#[$doc:meta])* mod $table:ident { $(
        $index:ident $name:ident: $access:ident $(or $other:ident)?, $($declared:ident)+ $(, in place $partner:ident)?
            => $text:literal $(, step $step:literal)?;
    )* }) => {
        $(#[$doc])*
        pub(crate) mod $table {
            use $crate::slots::{Access, OperandEntry, index_of};

            pub(crate) const TABLE: &[OperandEntry] = &[$(OperandEntry {
                name: stringify!($name),
                access: Access::$access,
                declared: stringify!($($declared)+),
                in_place: [$(Some(stringify!($partner)),)? None][0],
            }),*];
            $(pub(crate) const $index: usize = index_of(TABLE, stringify!($name));)*

            macro_rules! memory {
                $(
                    ($name $dollar a:lifetime) => { $crate::operands::memory_of!($access $(or $other)?, $dollar a) };
                    (doc $name) => { $text };
                    (doc $name $dollar own:literal) => { $dollar own };
                    (step $name) => { concat!($($step)?) };
                    (index $name) => { $table::$index };
                )*
                (pointers $dollar($dollar Operands:ident)::+, $dollar located:expr) => {
                    $dollar($dollar Operands)::+ { $($name: $dollar located.pointer($table::$index)),* }
                };
            }
            pub(crate) use memory;
        }
    };
}
pub(crate) use operands;

/// What a run is passed for an operand of an access.
macro_rules! memory_of {
    (In, $a:lifetime) => { $crate::memory::Mem<$a> };
    (InOut or In, $a:lifetime) => { $crate::memory::Operand<$a> };
    ($written:ident, $a:lifetime) => { $crate::memory::MemMut<$a> };
}
pub(crate) use memory_of;

/// The args of an op: a struct with a field for each operand, whose type follows from the table; `new` with those that are always there;
/// and a step for each group of those that come together. An operand may have documentation of its own: `mean = "Mean of each group."`.
/// The fields `private(..)` have steps that the op writes out.
macro_rules! args {
    ($(#[$doc:meta])* $Args:ident of $table:ident {
        $(#[$new_doc:meta])* new($($always:ident),*) $(private($($private:ident),*))?;
        $($step:ident($first:ident $(= $text:literal)? $(, $more:ident)*);)*
    }) => {
        $(#[$doc])*
        #[non_exhaustive]
        #[derive(Debug)]
        pub struct $Args<'a> {
            $(#[doc = $table::memory!(doc $always)] pub $always: $table::memory!($always 'a),)*
            $(
                #[doc = $table::memory!(doc $first $($text)?)]
                pub $first: Option<$table::memory!($first 'a)>,
                $(#[doc = $table::memory!(doc $more)] pub $more: Option<$table::memory!($more 'a)>,)*
            )*
            $($($private: Option<$table::memory!($private 'a)>,)*)?
        }

        impl<'a> $Args<'a> {
            pub(crate) const OPERANDS: &'static [&'static str] = &$crate::operands::in_order(
                $table::TABLE,
                [$(stringify!($always),)* $(stringify!($first), $(stringify!($more),)*)* $($(stringify!($private),)*)?],
            );

            $(#[$new_doc])*
            pub fn new($($always: impl Into<$table::memory!($always 'a)>),*) -> Self {
                Self { $($always: $always.into(),)* $($first: None, $($more: None,)*)* $($($private: None,)*)? }
            }

            $(
                #[doc = $table::memory!(step $first)]
                pub fn $step(
                    self,
                    $first: impl Into<$table::memory!($first 'a)>,
                    $($more: impl Into<$table::memory!($more 'a)>,)*
                ) -> Self {
                    Self { $first: Some($first.into()), $($more: Some($more.into()),)* ..self }
                }
            )*
        }

        const _: () = $crate::operands::check_groups(
            $table::TABLE,
            &[$(stringify!($always)),*],
            &[$(&[stringify!($first), $(stringify!($more)),*]),*],
        );

        impl $crate::plan::sealed::Sealed for $Args<'_> {}

        impl<'a> $crate::plan::Args<'a> for $Args<'a> {
            #[inline]
            fn lend<R>(self, to: impl FnOnce(&$crate::memory::Operands<'_>) -> R) -> R {
                let mut operands = $crate::memory::Operands::none();
                $(operands.put($table::memory!(index $always), self.$always.0);)*
                $(
                    if let Some(memory) = self.$first { operands.put($table::memory!(index $first), memory.0) }
                    $(if let Some(memory) = self.$more { operands.put($table::memory!(index $more), memory.0) })*
                )*
                $($(if let Some(memory) = self.$private { operands.put($table::memory!(index $private), memory.0) })*)?
                to(&operands)
            }
        }
    };
}
pub(crate) use args;

/// Names in the order of a table.
pub(crate) const fn in_order<const N: usize>(
    table: &[OperandEntry],
    mut names: [&'static str; N],
) -> [&'static str; N] {
    let mut sorted = 0;
    while sorted < N {
        let mut at = sorted;
        while at > 0 && index_of(table, names[at - 1]) > index_of(table, names[at]) {
            (names[at - 1], names[at]) = (names[at], names[at - 1]);
            at -= 1;
        }
        sorted += 1;
    }
    names
}

/// Stops the compiler where the fields of args are not the groups of the table: `always` those that are always there, each step those that
/// the same field declares.
pub(crate) const fn check_groups(table: &[OperandEntry], always: &[&str], steps: &[&[&str]]) {
    let mut at = 0;
    while at < always.len() {
        assert!(is_same(table[index_of(table, always[at])].declared, "always"));
        at += 1;
    }
    let mut step = 0;
    while step < steps.len() {
        let group = table[index_of(table, steps[step][0])].declared;
        assert!(!is_same(group, "always"));
        let mut at = 0;
        while at < steps[step].len() {
            assert!(is_same(table[index_of(table, steps[step][at])].declared, group));
            at += 1;
        }
        step += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::list::OPS;
    use crate::slots::Access;

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let found = paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
        found.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
    }

    /// The rows of the table of operands in a file's header, as cells: `| forward operand | shape | type | access | declared by |`.
    fn rows<'t>(header: &'t str, pass: &str) -> Vec<Vec<&'t str>> {
        let cells = |line: &'t str| line.trim_start_matches("//! |").split('|').map(str::trim).collect();
        let title = format!("//! | {pass} operand | shape | type | access | declared by |");
        let lines = header.lines().skip_while(|line| *line != title).skip(2);
        lines.take_while(|line| line.starts_with("//! |")).map(cells).collect()
    }

    #[test]
    fn the_tables_in_the_headers_are_those_of_the_code() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
        let read = |path: PathBuf| (fs::read_to_string(&path).unwrap(), path);
        let texts: Vec<(String, PathBuf)> = sources(&folder).into_iter().map(read).collect();
        for op in OPS {
            let name = format!(": \"{}\", ", op.name);
            let found = texts.iter().find(|(text, _)| text.contains("descriptor! {") && text.contains(&name));
            let (text, path) = found.unwrap_or_else(|| panic!("{} has no descriptor", op.name));
            // Descriptors in files of their own have the header of their folder.
            let of_folder = texts.iter().find(|(_, other)| *other == path.with_file_name("mod.rs"));
            let header = if text.contains("//! |") { text } else { &of_folder.expect("a module").0 };
            let pass = match op.name.split_once("_backward") {
                Some((_, of)) => format!("backward{}", of.replace('_', " ")),
                None => "forward".into(),
            };
            let mut named = Vec::new();
            for row in rows(header, &pass) {
                for operand in row[0].split(", ").map(|operand| operand.trim_matches('`')) {
                    let entry = &op.table[index_of(op.table, operand)];
                    let access = match entry.access {
                        Access::In => "in",
                        Access::Out => "out",
                        Access::InOut => "in, out",
                    };
                    let of_header = row[3].split(';').next();
                    assert_eq!(of_header, Some(access), "the access of {operand} of {}", op.name);
                    assert!(entry.declared != "always" || row[4].starts_with("always"), "{operand} of {}", op.name);
                    named.push(operand);
                }
            }
            assert_eq!(named, op.operands, "the operands of {} in the header and in the table", op.name);
        }
    }

    #[test]
    fn a_name_is_found_in_its_row_and_sorted_by_it() {
        let row = |name, declared| OperandEntry { name, access: Access::In, declared, in_place: None };
        let table = [row("x", "always"), row("xs", "if y"), row("y", "if y")];
        assert_eq!(["x", "xs", "y"].map(|name| index_of(&table, name)), [0, 1, 2]);
        assert_eq!(in_order(&table, ["y", "x", "xs"]), ["x", "xs", "y"]);
        check_groups(&table, &["x"], &[&["xs", "y"]]);
    }

    #[test]
    #[should_panic(expected = "is_same")]
    fn operands_that_come_apart_are_no_step() {
        let row = |name, declared| OperandEntry { name, access: Access::In, declared, in_place: None };
        check_groups(&[row("mean", "if stats"), row("dx", "if dx")], &[], &[&["mean", "dx"]]);
    }
}
