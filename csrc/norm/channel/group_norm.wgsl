// The statistics are those of a group of channels of one sample.
const GROUPS_ARE_CHANNELS: bool = false;
