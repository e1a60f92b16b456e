//! Metrics, log lines and traces of the operator.

use std::collections::BTreeSet;

use serde_json::Value;

use super::bed::{Bed, Replica};

/// Name, type and labels of a series.
const SERIES: [(&str, &str, &[&str]); 6] = [
    ("kubevirt_operator_machines_total", "gauge", &["phase", "template"]),
    ("kubevirt_operator_reconciliation_duration_seconds", "histogram", &["controller"]),
    ("kubevirt_operator_reconciliation_errors_total", "counter", &["controller", "error_type"]),
    ("kubevirt_operator_virtual_machines_total", "gauge", &["status"]),
    ("kubevirt_operator_storage_provisioning_duration_seconds", "histogram", &["storage_class"]),
    ("kubevirt_operator_network_configuration_errors_total", "counter", &["network_name"]),
];

/// The names of the labels in a line of an exposition, without the bound of a bucket.
fn labels(line: &str) -> Vec<&str> {
    let inside =
        line.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(inside, _)| inside);
    let names = inside.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
    names.filter(|name| *name != "le").collect()
}

pub async fn series_have_the_names_of_the_specification(bed: &Bed, operator: &Replica) {
    let text = operator.metrics().await;
    for (name, kind, wanted) in SERIES {
        // OpenMetrics declares the type of a counter under its name without the suffix.
        let declared = if kind == "counter" { name.trim_end_matches("_total") } else { name };
        let line = format!("# TYPE {declared} {kind}");
        assert!(text.lines().any(|each| each == line), "{line} is missing in\n{text}");
        let sample = if kind == "histogram" { format!("{name}_count{{") } else { format!("{name}{{") };
        let samples: Vec<&str> = text.lines().filter(|line| line.starts_with(&sample)).collect();
        assert!(!samples.is_empty(), "{sample} is missing in\n{text}");
        for line in samples {
            assert_eq!(labels(line), wanted, "{line}");
        }
    }
    let says =
        |line: &str| assert!(text.lines().any(|each| each.starts_with(line)), "{line} is missing in\n{text}");
    says("kubevirt_operator_network_configuration_errors_total{network_name=\"lab\"} 1");
    says("kubevirt_operator_storage_provisioning_duration_seconds_count{storage_class=\"fast-ssd\"}");
    says("kubevirt_operator_machines_total{phase=\"Running\",template=\"large\"} 1");
    for error in [
        "TemplateNotFound",
        "NetworkConfigurationNotFound",
        "StorageClassNotFound",
        "InsufficientResources",
        "KubeVirtApiError",
    ] {
        says(&format!(
            "kubevirt_operator_reconciliation_errors_total{{controller=\"Machine\",error_type=\"{error}\"}}"
        ));
    }
    let running = bed.count("VirtualMachine", "").await;
    says(&format!("kubevirt_operator_virtual_machines_total{{status=\"Running\"}} {running}"));
}

pub fn lines_have_the_fields_of_the_specification_and_belong_to_a_trace(operator: &Replica) {
    let log = operator.log();
    let about: Vec<&Value> = log.iter().filter(|line| line["machine"] == "basic-vm").collect();
    assert!(!about.is_empty());
    for line in &about {
        for field in ["timestamp", "level", "controller", "namespace", "message", "traceID", "spanID"] {
            assert!(line[field].is_string(), "{field} is missing in {line}");
        }
        assert_eq!((&line["controller"], &line["namespace"]), (&"Machine".into(), &"examples".into()));
    }
    assert!(about.iter().any(|line| line["phase"] == "Creating"), "{about:#?}");
    assert!(about.iter().any(|line| line["phase"] == "Running"), "{about:#?}");

    // One trace for a reconcile, with a span for each step in it.
    let steps: Vec<&&Value> = about.iter().filter(|line| line["what"].is_string()).collect();
    let traces: BTreeSet<&str> = steps.iter().filter_map(|line| line["traceID"].as_str()).collect();
    let spans: BTreeSet<&str> = steps.iter().filter_map(|line| line["spanID"].as_str()).collect();
    assert!(spans.len() >= 2, "claiming and making are two steps: {steps:#?}");
    assert!(traces.len() < spans.len(), "{steps:#?}");
    let trace = steps[0]["traceID"].as_str();
    let end = about.iter().find(|line| line["traceID"].as_str() == trace && line["what"].is_null());
    let end = end.unwrap_or_else(|| panic!("the reconcile itself says how it ended: {about:#?}"));
    assert!(!spans.contains(end["spanID"].as_str().unwrap()), "{end}");
}
