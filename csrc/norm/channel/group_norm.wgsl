// GroupNorm: a group, whose elements share statistics, is some channels of one sample.
const GROUPS_ARE_CHANNELS: bool = false;
