//! Why a trace cannot be read at all.

use std::path::PathBuf;

/// A trace cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The first bytes are those of something else, or there are none.
    #[error("{0}: this is no trace: give a run that was measured with `trace: thin` or `full`")]
    NotATrace(PathBuf),
}
