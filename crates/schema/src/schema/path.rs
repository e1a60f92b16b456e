//! The location of a check in an object: a chain of borrowed steps, printed only when there is an error.

use std::fmt::Write as _;

/// One step of a path, linked to the step before it; creating one costs nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    /// The object itself.
    Root,
    /// A declared field.
    Field(&'a Path<'a>, &'a str),
    /// A key of a map.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The path inside a message of the schema checks: map keys are joined with a dot, the root is empty.
    pub(crate) fn in_body(&self) -> String {
        let mut text = String::new();
        self.write_body(&mut text);
        text
    }

    /// The field of a cause found by the schema checks; Kubernetes writes `<nil>` for the root.
    pub(crate) fn schema_field(&self) -> String {
        let body = self.in_body();
        let trimmed = body.strip_prefix('.').unwrap_or(&body);
        if trimmed.is_empty() { NIL.to_owned() } else { trimmed.to_owned() }
    }

    /// The field of a cause found by list-type checks and rules: map keys are in brackets.
    pub(crate) fn field(&self) -> String {
        let mut text = String::new();
        self.write_field(&mut text);
        if text.is_empty() { NIL.to_owned() } else { text }
    }

    fn write_body(&self, text: &mut String) {
        match self {
            Path::Root => {}
            Path::Field(parent, name) => {
                parent.write_body(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Path::Key(parent, name) => {
                parent.write_body(text);
                text.push('.');
                text.push_str(name);
            }
            Path::Index(parent, index) => {
                parent.write_body(text);
                let _ = write!(text, "[{index}]");
            }
        }
    }

    pub(crate) fn write_field(&self, text: &mut String) {
        match self {
            Path::Root => {}
            Path::Field(parent, name) => {
                parent.write_field(text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Path::Key(parent, name) => {
                parent.write_field(text);
                let _ = write!(text, "[{name}]");
            }
            Path::Index(parent, index) => {
                parent.write_field(text);
                let _ = write!(text, "[{index}]");
            }
        }
    }
}

/// The path of the whole object, as Kubernetes prints it.
pub(crate) const NIL: &str = "<nil>";
