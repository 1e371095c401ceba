// Channels last, for the split forms: the chunks of AHEAD rows that a thread has in flight.
const HELD: u32 = AHEAD; // chunks of each tensor that a thread has in registers

fn hold_rows(columns: Columns, first: u32) {
    for (var k = 0u; k < AHEAD; k++) {
        let row = first + k * LANES;
        if (columns.count > 0u && row < columns.end) {
            hold_row_chunk(k, columns.batch, columns.first_channel, row, columns.count);
        }
    }
}
