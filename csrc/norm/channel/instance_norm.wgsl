// The statistics are those of one channel of one sample: a group of one. The running ones are those of a channel, as BatchNorm's.
const GROUPS_ARE_CHANNELS: bool = false;
