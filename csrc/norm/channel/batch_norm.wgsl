// BatchNorm: a group, whose elements share statistics, is one channel of all samples.
const GROUPS_ARE_CHANNELS: bool = true;
