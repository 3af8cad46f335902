//! Captures in, statistics out.
//!
//! This crate reads capture files, matches every packet before the device under test with its
//! copy after it, and computes exact latency statistics. It needs no privileges and knows nothing
//! of Python. The way of a packet through the modules:
//!
//! [`capture`] (bytes to packets) → [`source`] (which of them are of a side) → [`key`] (packets to
//! matching keys) → [`stream`] (batches in time order, and on one clock: [`clocks`]) → [`matching`]
//! (which packet is which) → [`evaluate`] (the statistics), with [`distribution`], [`percentile`],
//! [`worst`], [`exceedances`], [`blocks`] and [`series`] as the statistics themselves. Requests and
//! their answers take another way: [`transactions`].

#![deny(unsafe_code)]

pub mod blocks;
pub mod capture;
pub mod cause;
mod chains;
pub mod clocks;
pub mod distribution;
pub mod edges;
mod equals;
pub mod evaluate;
pub mod exceedances;
pub mod key;
pub mod losses;
pub mod marks;
pub mod matching;
mod path_bytes;
pub mod percentile;
mod ring;
pub mod series;
pub mod source;
pub mod stamps;
pub mod stream;
mod streams;
mod table;
pub mod tick;
pub mod trace;
pub mod transactions;
pub mod worst;
