// Functions of bools, which are 0 or 1 among the values of the program.

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
