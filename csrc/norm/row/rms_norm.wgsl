// The norm does not subtract the mean.
const CENTERED: bool = false;
