// y where the condition x is true, else z.
fn f_where(x: Values, y: Values, z: Values) -> Values {
    return select(z, y, x != Values());
}
