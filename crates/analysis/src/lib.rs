//! Captures in, statistics out.
//!
//! This crate reads capture files, matches every packet before the device under test with its
//! copy after it, and computes exact latency statistics. It needs no privileges and knows nothing
//! of Python.

pub mod distribution;
pub mod stamps;
