// The statistics are those of a channel, over all samples.
const GROUPS_ARE_CHANNELS: bool = true;
