// The norm subtracts the mean.
const CENTERED: bool = true;
