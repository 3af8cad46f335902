//! Rust errors as the exceptions of `tailtap.base.errors`, with options as Python calls them.

use std::fmt::Display;
use std::io;
use std::path::Path;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tailtap_analysis::capture::{CaptureError, Unreadable as OfCapture};
use tailtap_analysis::cause::cores::LayoutError;
use tailtap_analysis::trace::{TraceError, Unreadable as OfTrace};
use tailtap_datapath::generate::replay::{ReplayError, Unplayable};

/// An exception of `tailtap.base.errors` by its class name, with the error's text as message.
pub fn raise(class: &str, error: impl Display) -> PyErr {
    made(|py| made_of(py, class, (error.to_string(),)))
}

/// The same error, whose place is this file.
pub fn about(path: &Path, error: &PyErr) -> PyErr {
    made(|py| Ok(PyErr::from_value(error.value(py).call_method1("at", (path,))?)))
}

/// Of a capture.
pub fn of_capture(CaptureError { path, why }: &CaptureError) -> PyErr {
    about(path, &unreadable(why))
}

/// Of a capture that is to be replayed.
pub fn of_replay(ReplayError { path, why }: &ReplayError) -> PyErr {
    let wrong = |packet: usize| made(|py| made_of(py, "WrongPacket", (packet, why.to_string())));
    let error = match why {
        Unplayable::Capture(why) => unreadable(why),
        Unplayable::NoCapture { .. } => of_another_kind("capture", why),
        Unplayable::Damaged { packets, .. } => wrong(packets + 1),
        &(Unplayable::Cut { number, .. } | Unplayable::NoEthernet { number }) => wrong(number),
        _ => raise("InputError", why),
    };
    about(path, &error)
}

/// Of a trace.
pub fn of_trace(TraceError { path, why }: &TraceError) -> PyErr {
    let error = match why {
        OfTrace::Io(error) => not_read(error),
        OfTrace::NotATrace => of_another_kind("trace", why),
    };
    about(path, &error)
}

/// Of a trace, or of the stamps beside it.
pub fn of_layout(error: &LayoutError) -> PyErr {
    match error {
        LayoutError::Trace(error) => of_trace(error),
        LayoutError::Stamps(error) => of_capture(error),
    }
}

/// Of a file that could not be written; `kept` says how much of it is there, where that is known.
pub fn not_written(path: &Path, error: &io::Error, kept: &str) -> PyErr {
    made(|py| {
        let refused = py.import("tailtap.base.writing")?.getattr("refused")?;
        Ok(PyErr::from_value(refused.call1((path, os_error(py, error)?, kept))?))
    })
}

fn unreadable(why: &OfCapture) -> PyErr {
    match why {
        OfCapture::Io(error) => not_read(error),
        OfCapture::Empty
        | OfCapture::UnknownFormat { .. }
        | OfCapture::HeaderCut
        | OfCapture::UnknownCompression { .. }
        | OfCapture::Compression { .. } => of_another_kind("capture", why),
        _ => raise("InputError", why),
    }
}

fn not_read(error: &io::Error) -> PyErr {
    made(|py| made_of(py, "NotRead", (os_error(py, error)?, "")))
}

fn of_another_kind(kind: &str, error: impl Display) -> PyErr {
    made(|py| made_of(py, "OfAnotherKind", (kind, "", error.to_string())))
}

/// An error of the system.
pub fn of_system(error: &io::Error) -> PyErr {
    made(|py| os_error(py, error).map(PyErr::from_value))
}

/// The system's error as Python has it, whose text has no number.
fn os_error<'py>(py: Python<'py>, error: &io::Error) -> PyResult<Bound<'py, PyAny>> {
    let class = py.get_type::<PyOSError>();
    match error.raw_os_error() {
        Some(number) => {
            class.call1((number, py.import("os")?.call_method1("strerror", (number,))?))
        }
        None => class.call1((error.to_string(),)),
    }
}

/// What a class of `tailtap.base.errors` makes of `facts`.
fn made_of<'py>(py: Python<'py>, class: &str, facts: impl PyCallArgs<'py>) -> PyResult<PyErr> {
    let class = py.import("tailtap.base.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call1(facts)?))
}

/// The exception that is made, or the one that prevents it.
fn made(make: impl FnOnce(Python<'_>) -> PyResult<PyErr>) -> PyErr {
    Python::attach(make).unwrap_or_else(|failure| failure)
}
