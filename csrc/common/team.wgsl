// Rows, or other units of work, that a workgroup takes at a time, each with a team of THREADS threads.
const TEAMS: u32 = WORKGROUP / THREADS;

// Plainly the same for all threads where there is one team.
fn team_of(thread: u32) -> u32 {
    return select(thread / THREADS, 0u, TEAMS == 1u);
}
