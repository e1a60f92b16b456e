//! Shows the kinds and manifests of this build.

use std::io::{self, Write};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use vitistack_types::{OperatorName, definitions, samples};

use crate::manifests::roles;

/// Prints the kinds, the operators and the manifests.
pub fn print(output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "VitiStack {}\n", env!("CARGO_PKG_VERSION"))?;

    writeln!(output, "{:<22} {:<10} {:<6} {:>6}", "KIND", "SCOPE", "SHORT", "FIELDS")?;
    for definition in definitions() {
        let names = &definition.spec.names;
        let fields = spec_schema(&definition).map_or(0, count_fields);
        let short = names.short_names.iter().flatten().next().map_or("", String::as_str);
        writeln!(output, "{:<22} {:<10} {short:<6} {fields:>6}", names.kind, definition.spec.scope)?;
    }

    let operators: Vec<&str> = OperatorName::all().map(OperatorName::as_str).collect();
    writeln!(output, "\nOperators: {} (vitistack run)", operators.join(", "))?;
    writeln!(
        output,
        "Manifests: {} CRDs (vitistack crds), {} roles (vitistack rbac), {} samples (vitistack samples)",
        definitions().len(),
        roles::roles().len(),
        samples().len()
    )?;
    writeln!(output, "\nInstall the CRDs in the current cluster:")?;
    writeln!(output, "  vitistack crds | kubectl apply --server-side -f -")
}

/// Returns the schema of the spec of a kind.
fn spec_schema(definition: &CustomResourceDefinition) -> Option<&JSONSchemaProps> {
    let schema = definition.spec.versions.first()?.schema.as_ref()?;
    schema.open_api_v3_schema.as_ref()?.properties.as_ref()?.get("spec")
}

/// Returns the number of fields of a schema, including nested ones.
fn count_fields(schema: &JSONSchemaProps) -> usize {
    let in_items = match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => count_fields(items),
        _ => 0,
    };
    let properties = schema.properties.iter().flat_map(|properties| properties.values());
    properties.map(|property| 1 + count_fields(property)).sum::<usize>() + in_items
}
