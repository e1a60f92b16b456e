//! Commands that messages suggest.

use vitistack_types::ObjectId;

/// The command of `vitistack` that changes an object, such as `vitistack resume machine/web-1 -n default`.
pub(crate) fn command(verb: &str, ObjectId { kind, name }: &ObjectId) -> String {
    let kind = kind.to_lowercase();
    let namespace = match name.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    format!("vitistack {verb} {kind}/{}{namespace}", name.name)
}

#[cfg(test)]
mod tests {
    use vitistack_types::ObjectName;

    use super::*;

    #[test]
    fn a_command_has_a_namespace_only_where_the_object_has_one() {
        let machine = ObjectId::new("Machine", ObjectName::new("shop", "web"));
        assert_eq!(command("power restart", &machine), "vitistack power restart machine/web -n shop");
        let class = ObjectId::new("MachineClass", ObjectName::cluster_scoped("tiny"));
        assert_eq!(command("pause", &class), "vitistack pause machineclass/tiny");
    }
}
