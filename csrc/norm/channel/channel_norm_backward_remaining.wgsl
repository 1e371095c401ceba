// The workgroups past those of the slices take the parameters: of a channel with few parts a thread (PARTS_ARE_FEW), else as many as share out
// what a thread may know, CHANNELS channels a workgroup.
fn put_remaining(at: Invocation, thread: u32, group: u32) {
    if (PARTS_ARE_FEW) {
        let channel = group * WORKGROUP + thread;
        if (WANTS_PARAMETERS && channel < params.channels) {
            put_parameters(channel, sums_of_channel(channel, 0u, 1u));
        }
        return;
    }
    for (var first = 0u; first < CHANNELS; first += WORKGROUP / member_count(at)) {
        let number = group * CHANNELS + first + members_number(at);
        let channel = min(number, params.channels - 1u);
        let sums = members_sums(at, sums_of_channel(channel, member_index(at), member_count(at)), 0u);
        if (WANTS_PARAMETERS && number == channel && member_index(at) == 0u) {
            put_parameters(channel, sums);
        }
    }
}
