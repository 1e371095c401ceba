// InstanceNorm: a group, whose elements share statistics, is one channel of one sample. The running statistics are those of a channel.
const GROUPS_ARE_CHANNELS: bool = false;
