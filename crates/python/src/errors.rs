//! Rust errors as the exceptions of `tailtap.records.errors`.

use std::fmt::Display;

use pyo3::prelude::*;

/// An exception of `tailtap.records.errors` by its class name, with the error's text as message.
pub fn raise(class: &str, error: impl Display) -> PyErr {
    Python::attach(|py| {
        let message = error.to_string();
        match py.import("tailtap.records.errors").and_then(|module| module.getattr(class)) {
            Ok(class) => match class.call1((message,)) {
                Ok(exception) => PyErr::from_value(exception),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        }
    })
}
