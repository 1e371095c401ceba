// Bools, which are 0 or 1 among the values of a program, of the type in which it computes, and their functions.

// 1 where it holds, else 0.
fn truth(holds: vec4<bool>) -> Values {
    return select(Values(), Values(1), holds);
}

fn f_logical_not(x: Values) -> Values {
    return truth(x == Values());
}

fn f_logical_and(x: Values, y: Values) -> Values {
    return truth((x != Values()) & (y != Values()));
}

fn f_logical_or(x: Values, y: Values) -> Values {
    return truth((x != Values()) | (y != Values()));
}

fn f_logical_xor(x: Values, y: Values) -> Values {
    return truth((x != Values()) != (y != Values()));
}
