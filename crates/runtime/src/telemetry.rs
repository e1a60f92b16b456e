//! Logs, and traces if a collector is configured.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use snafu::{ResultExt, Snafu};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    layer::SubscriberExt,
    util::{SubscriberInitExt, TryInitError},
};

use crate::{
    args::{LogFormat, LogLevel, OperatorArgs},
    log_lines::JsonLines,
};

/// How long a shutdown waits for a collector.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);
/// Libraries whose messages below warnings are dropped; the spans of the exporter would otherwise trigger more exports.
const CHATTY: [&str; 7] = ["h2", "hyper", "hyper_util", "opentelemetry", "rustls", "tonic", "tower"];
/// Logs whole answers of servers as warnings, also those of servers that are not ours.
const QUOTING: &str = "kube_client::client";

/// Why telemetry cannot start.
#[derive(Debug, Snafu)]
pub enum TelemetryError {
    /// The address of the collector is invalid.
    #[snafu(display(
        "failed to use OTEL_EXPORTER_OTLP_ENDPOINT {endpoint:?}: {source}; write it as http://host:4317 or https://host:4317"
    ))]
    UseEndpoint {
        /// The address.
        endpoint: String,
        /// The error of the exporter.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// An attribute is not a key=value pair.
    #[snafu(display("failed to use OTEL_RESOURCE_ATTRIBUTES {pair:?}: write key=value,key=value"))]
    UseAttributes {
        /// The part that is not a pair.
        pair: String,
    },
    /// Another logger is already installed.
    #[snafu(display("failed to start logging: {source}"))]
    StartLogging {
        /// The error of the subscriber.
        source: TryInitError,
    },
}

/// Running telemetry; call [`Telemetry::finish`] at the end of the process.
#[must_use = "the last traces are lost without finish"]
#[derive(Debug)]
pub struct Telemetry(Option<SdkTracerProvider>);

impl Telemetry {
    /// Starts logging for the whole process, and tracing if a collector is configured.
    ///
    /// This does not contact the collector; while it is unreachable, only its traces are lost. Requires a Tokio runtime.
    pub fn start(settings: &OperatorArgs) -> Result<Self, TelemetryError> {
        let writer = std::io::stderr();
        let is_text = match settings.log_format {
            Some(format) => format == LogFormat::Text,
            None => writer.is_terminal(),
        };
        Self::start_to(settings, is_text, writer)
    }

    /// Like [`Telemetry::start`], but writes the log to `writer`.
    pub fn start_to(
        settings: &OperatorArgs,
        is_text: bool,
        writer: impl Write + Send + Sync + 'static,
    ) -> Result<Self, TelemetryError> {
        let provider = provider(settings)?;
        let subscriber = subscriber(settings.log_level, is_text, writer, provider.as_ref());
        subscriber.try_init().context(StartLoggingSnafu)?;
        Ok(Self(provider))
    }

    /// Sends the remaining traces, for at most a few seconds.
    pub async fn finish(self) {
        if let Some(provider) = self.0 {
            // The call blocks while a collector is slow, so it must not occupy a thread that the exporter needs.
            let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT));
            if !matches!(tokio::time::timeout(FLUSH_LIMIT, flush).await, Ok(Ok(Ok(())))) {
                tracing::warn!("failed to send the last traces to the collector");
            }
        }
    }
}

/// Logs to standard error, for a process that is not an operator.
pub fn log_to_stderr(level: LogLevel) -> Result<(), TelemetryError> {
    let writer = std::io::stderr();
    let is_text = writer.is_terminal();
    subscriber(level, is_text, writer, None).try_init().context(StartLoggingSnafu)
}

fn provider(settings: &OperatorArgs) -> Result<Option<SdkTracerProvider>, TelemetryError> {
    let Some(endpoint) = settings.otel_exporter_otlp_endpoint.as_deref().filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .context(UseEndpointSnafu { endpoint })?;
    let resource = Resource::builder_empty()
        .with_attributes(attributes(&settings.otel_resource_attributes)?)
        .with_service_name(settings.otel_service_name.clone())
        .build();
    Ok(Some(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()))
}

fn attributes(text: &str) -> Result<Vec<KeyValue>, TelemetryError> {
    text.split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(KeyValue::new(key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => UseAttributesSnafu { pair }.fail(),
        })
        .collect()
}

fn subscriber(
    level: LogLevel,
    is_text: bool,
    writer: impl Write + Send + Sync + 'static,
    provider: Option<&SdkTracerProvider>,
) -> impl Subscriber + Send + Sync {
    let lines: Box<dyn Layer<Registry> + Send + Sync> = if is_text {
        Box::new(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::sync::Mutex::new(writer)))
    } else {
        Box::new(JsonLines::new(writer))
    };
    let spans = provider.map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("vitistack"))
            .with_location(false)
            .with_filter(targets(LevelFilter::INFO))
    });
    tracing_subscriber::registry().with(lines.with_filter(targets(level_filter(level)))).with(spans)
}

fn targets(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(level)
        .with_targets(CHATTY.map(|target| (target, level.min(LevelFilter::WARN))))
        .with_target(QUOTING, if level == LevelFilter::DEBUG { level } else { level.min(LevelFilter::ERROR) })
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use clap::Parser;
    use opentelemetry_sdk::trace::InMemorySpanExporter;
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Buffer {
        fn lines(&self) -> Vec<Value> {
            let bytes = self.0.lock().unwrap();
            let text = String::from_utf8(bytes.clone()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    fn reconcile() {
        let span = tracing::info_span!(
            "reconcile",
            controller = "Machine",
            kind = "machine",
            namespace = "default",
            name = "test-vm",
            phase = tracing::field::Empty
        );
        let _entered = span.enter();
        span.record("phase", "Creating");
        tracing::info!(count = 3, "Creating VirtualMachine resource");
        tracing::debug!("not shown");
        tracing::warn!(target: "hyper::client", "shown");
        tracing::info!(target: "hyper::client", "not shown");
    }

    #[test]
    fn log_lines_carry_the_fields_of_the_span_and_the_event() {
        let buffer = Buffer::default();
        let subscriber = subscriber(LogLevel::Info, false, buffer.clone(), None);
        tracing::subscriber::with_default(subscriber, reconcile);
        let lines = buffer.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        let line = &lines[0];
        for (name, value) in [
            ("level", "info"),
            ("controller", "Machine"),
            ("machine", "test-vm"),
            ("namespace", "default"),
            ("phase", "Creating"),
            ("message", "Creating VirtualMachine resource"),
        ] {
            assert_eq!(line[name], value, "{line}");
        }
        assert_eq!(line["count"], 3);
        assert_eq!(line.get("traceID"), None);
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    }

    #[test]
    fn log_lines_carry_the_trace_that_is_exported() {
        let buffer = Buffer::default();
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let subscriber = subscriber(LogLevel::Info, false, buffer.clone(), Some(&provider));
        tracing::subscriber::with_default(subscriber, reconcile);
        let spans = exporter.get_finished_spans().unwrap();
        assert_eq!(spans.len(), 1);
        let line = &buffer.lines()[0];
        assert_eq!(line["traceID"], spans[0].span_context.trace_id().to_string());
        assert_eq!(line["spanID"], spans[0].span_context.span_id().to_string());
    }

    #[test]
    fn attributes_are_key_value_pairs() {
        assert_eq!(attributes("").unwrap(), []);
        assert_eq!(attributes("a=b, c=d=e,").unwrap(), [KeyValue::new("a", "b"), KeyValue::new("c", "d=e")]);
        assert!(attributes("a").unwrap_err().to_string().contains("\"a\""));
        assert!(attributes("=b").is_err());
    }

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        operator: OperatorArgs,
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_unreachable_collector_does_not_block_the_process() {
        let arguments = ["operator", "--otel-exporter-otlp-endpoint", "http://127.0.0.1:1"];
        let provider = provider(&Cli::parse_from(arguments).operator).unwrap();
        let subscriber = subscriber(LogLevel::Info, false, std::io::sink(), provider.as_ref());
        tracing::subscriber::with_default(subscriber, reconcile);
        tokio::time::timeout(FLUSH_LIMIT * 10, Telemetry(provider).finish()).await.unwrap();
    }

    #[tokio::test]
    async fn an_invalid_collector_address_names_the_setting() {
        let arguments = ["operator", "--otel-exporter-otlp-endpoint", "not an address"];
        let error = provider(&Cli::parse_from(arguments).operator).unwrap_err().to_string();
        assert!(error.contains("OTEL_EXPORTER_OTLP_ENDPOINT \"not an address\""), "{error}");
    }
}
