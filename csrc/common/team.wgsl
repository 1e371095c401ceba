// A team is THREADS threads that work on one row, group or slice together; a workgroup has TEAMS of them.
const TEAMS: u32 = WORKGROUP / THREADS;

// The team of a thread. With one team it is the constant 0, which compilers see to be uniform.
fn team_of(thread: u32) -> u32 {
    return select(thread / THREADS, 0u, TEAMS == 1u);
}
