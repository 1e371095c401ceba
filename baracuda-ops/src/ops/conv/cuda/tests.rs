//! Choices for devices that are not there.
