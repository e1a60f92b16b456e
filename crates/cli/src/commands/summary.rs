//! What this build serves, and what is still missing.

use std::io::{self, Write};

use vitistack_types::{definitions, samples};

use crate::roles;

/// What the design has and this build has not.
const MISSING: [&str; 2] = [
    "vitistack operator: the REST service and the dashboard",
    "clusters, more providers, vitistack bootstrap: attestation",
];

/// Prints the kinds, the manifests and the gaps.
pub fn print(output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "VitiStack {}\n", env!("CARGO_PKG_VERSION"))?;
    writeln!(output, "{:<22} {:<10} {:<6} {:>6}", "KIND", "SCOPE", "SHORT", "FIELDS")?;
    for definition in definitions() {
        let names = &definition.spec.names;
        let fields = definition
            .spec
            .versions
            .first()
            .and_then(|version| {
                version.schema.as_ref()?.open_api_v3_schema.as_ref()?.properties.as_ref()?.get("spec")
            })
            .map_or(0, count_fields);
        let short = names.short_names.iter().flatten().next().map_or("", String::as_str);
        writeln!(output, "{:<22} {:<10} {short:<6} {fields:>6}", names.kind, definition.spec.scope)?;
    }
    writeln!(
        output,
        "\n{} definitions (vitistack crds), {} roles (vitistack rbac), {} samples (vitistack samples)",
        definitions().len(),
        roles::roles().len(),
        samples().len()
    )?;
    writeln!(
        output,
        "\nInstall them into the current cluster:\n  vitistack crds | kubectl apply --server-side -f -"
    )?;
    writeln!(output, "\nStill missing in this build:")?;
    MISSING.iter().try_for_each(|gap| writeln!(output, "  - {gap}"))
}

fn count_fields(
    schema: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps,
) -> usize {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
    let inside = |schema: &Option<JSONSchemaPropsOrArray>| match schema {
        Some(JSONSchemaPropsOrArray::Schema(items)) => count_fields(items),
        _ => 0,
    };
    let properties = schema.properties.iter().flat_map(|properties| properties.values());
    properties.map(|property| 1 + count_fields(property)).sum::<usize>() + inside(&schema.items)
}
