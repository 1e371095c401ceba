//! Choices on devices that are not there.
