// What a thread has of a row: every THREADS-th chunk of the whole row, or of a slice of it if several workgroups share rows.
const SLICE: u32 = THREADS * CHUNKS * ELEMENTS; // columns of a slice that is not the last

struct RowPart {
    item: u32, // the number of the row, or of the slice among those of all rows
    row: u32,
    exists: bool, // false for a team or a workgroup past the last item; `item` and `row` are existing ones all the same
    first_col: u32,
    end_col: u32, // chunks from here on are none of the thread's
}

// The thread's part of the row that its team takes in round `round`. `round` may be params.rounds: then no row exists.
fn team_part(at: Invocation, round: u32, cols: u32) -> RowPart {
    let thread = thread_index(at);
    let workgroup = at.workgroup.y * params.groups_x + at.workgroup.x;
    let number = (workgroup * params.rounds + round) * TEAMS + team_of(thread);
    let row = min(number, params.rows - 1u);
    let exists = (round < params.rounds) & (number == row);
    return RowPart(row, row, exists, thread % THREADS * ELEMENTS, select(0u, cols, exists));
}

// The thread's part of the slice whose number, in [rows][slices], is that of the workgroup; with `from_last` slices are numbered from the last one on.
// The workgroup is one team: WORKGROUP is THREADS.
fn slice_part(at: Invocation, slices: u32, cols: u32, from_last: bool) -> RowPart {
    let number = at.workgroup.y * params.groups_x + at.workgroup.x;
    let last = params.rows * slices - 1u;
    let existing = min(number, last);
    let item = select(existing, last - existing, from_last);
    let first = item % slices * SLICE;
    let end_col = select(0u, min(first + SLICE, cols), number == existing);
    return RowPart(item, item / slices, number == existing, first + thread_index(at) * ELEMENTS, end_col);
}
