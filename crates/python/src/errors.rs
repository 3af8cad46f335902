//! Rust errors as the exceptions of `tailtap.records.errors`, with options as Python calls them.

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

/// What to call the parameter `name` in a message, as `tailtap.records.options` says it.
pub fn option(name: &str) -> String {
    let called = Python::attach(|py| {
        py.import("tailtap.records.options")?.getattr("option")?.call1((name,))?.extract()
    });
    called.unwrap_or_else(|_: PyErr| name.to_owned())
}
