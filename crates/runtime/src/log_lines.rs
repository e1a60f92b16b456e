//! Log lines as JSON, one object per line, with the documented field names.

use std::{
    fmt::{self, Debug, Write as _},
    io::Write,
    sync::Mutex,
};

use jiff::Timestamp;
use opentelemetry::trace::TraceContextExt;
use serde_json::{Map, Value};
use tracing::{
    Dispatch, Event, Subscriber,
    dispatcher::WeakDispatch,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    layer::Context,
    registry::{LookupSpan, SpanRef},
};

/// Writes every event as one JSON object.
///
/// `timestamp`, `level` and `message` are always present; the fields of the enclosing spans and of the event follow,
/// inner fields override outer ones. The name of the reconciled object also appears under its kind
/// (`"machine": "test-vm"`), which the macros cannot do, because they fix field names at compile time.
pub(crate) struct JsonLines<W> {
    writer: Mutex<W>,
    dispatch: Mutex<Option<WeakDispatch>>,
}

impl<W> JsonLines<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { writer: Mutex::new(writer), dispatch: Mutex::default() }
    }

    fn dispatch(&self) -> Option<Dispatch> {
        self.dispatch.lock().ok()?.as_ref()?.upgrade()
    }
}

/// The fields of one span, stored in its extensions.
struct Fields(Map<String, Value>);

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + Send + 'static,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        if let Ok(mut dispatch) = self.dispatch.lock() {
            *dispatch = Some(subscriber.downgrade());
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields(Map::new());
            attributes.record(&mut Collect(&mut fields.0));
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(&mut Collect(&mut fields.0));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Map::new();
        if let Some(scope) = context.event_scope(event) {
            for span in scope.from_root() {
                if let Some(of_span) = span.extensions().get::<Fields>() {
                    fields.extend(of_span.0.clone());
                }
            }
        }
        event.record(&mut Collect(&mut fields));
        if let Some(span) = context.event_span(event) {
            self.add_trace(&span, &mut fields);
        }

        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let mut line = line(&Timestamp::now(), &level, fields);
        line.push('\n');
        if let Ok(mut writer) = self.writer.lock() {
            // A failure to write a log line cannot be logged.
            let _ = writer.write_all(line.as_bytes());
        }
    }
}

impl<W> JsonLines<W> {
    fn add_trace<'a, S: Subscriber + LookupSpan<'a>>(
        &self,
        span: &SpanRef<'a, S>,
        fields: &mut Map<String, Value>,
    ) {
        let Some(dispatch) = self.dispatch() else { return };
        let Some(context) = tracing_opentelemetry::get_otel_context(&span.id(), &dispatch) else { return };
        let span_context = context.span().span_context().clone();
        if span_context.is_valid() {
            fields.insert("traceID".to_owned(), span_context.trace_id().to_string().into());
            fields.insert("spanID".to_owned(), span_context.span_id().to_string().into());
        }
    }
}

/// Formats one line: the standard fields in the documented order, then the others.
fn line(timestamp: &Timestamp, level: &str, mut fields: Map<String, Value>) -> String {
    if let (Some(Value::String(kind)), Some(name)) = (fields.get("kind"), fields.get("name")) {
        let (kind, name) = (kind.to_lowercase(), name.clone());
        fields.remove("kind");
        fields.insert(kind, name);
    }

    let message = fields.remove("message").unwrap_or_else(|| "".into());
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(text, "{{\"timestamp\":\"{timestamp:.3}\",\"level\":{}", Value::from(level));
    let mut add = |name: &str, value: &Value| {
        let _ = write!(text, ",{}:{value}", Value::from(name));
    };
    if let Some(controller) = fields.remove("controller") {
        add("controller", &controller);
    }
    for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with("otel.")) {
        add(name, value);
    }
    add("message", &message);
    text.push('}');
    text
}

struct Collect<'a>(&'a mut Map<String, Value>);

impl Collect<'_> {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Collect<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.insert(field, fmt::format(format_args!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Map<String, Value> {
        let Value::Object(fields) = value else { panic!("not an object") };
        fields
    }

    #[test]
    fn a_line_has_the_documented_field_names() {
        let text = line(
            &"2024-01-01T12:00:00Z".parse().unwrap(),
            "info",
            fields(json!({
                "message": "Creating VirtualMachine resource", "controller": "Machine", "kind": "machine",
                "name": "test-vm", "namespace": "default", "phase": "Creating", "otel.name": "machine.reconcile",
            })),
        );
        assert!(
            text.starts_with(
                "{\"timestamp\":\"2024-01-01T12:00:00.000Z\",\"level\":\"info\",\"controller\":"
            ),
            "{text}"
        );
        let parsed: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            parsed,
            json!({
                "timestamp": "2024-01-01T12:00:00.000Z", "level": "info", "controller": "Machine",
                "machine": "test-vm", "name": "test-vm", "namespace": "default", "phase": "Creating",
                "message": "Creating VirtualMachine resource",
            })
        );
    }

    #[test]
    fn a_kind_without_a_name_is_an_ordinary_field() {
        let text = line(&Timestamp::UNIX_EPOCH, "warn", fields(json!({"kind": "Machine", "message": "m"})));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["kind"], "Machine");
    }

    #[test]
    fn a_message_with_line_breaks_stays_on_one_line() {
        let text = line(&Timestamp::UNIX_EPOCH, "warn", fields(json!({"message": "a\nb\"c"})));
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["message"], "a\nb\"c");
    }
}
