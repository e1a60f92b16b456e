//! What a provider may be used for.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_types::{
    ObjectName, WatchedNamespaces,
    v1alpha1::{Machine, MachineProvider},
};

use crate::{Refusal, reference::permits, refusals};

/// Checks that a provider may act for a Machine in the namespace of the operator's own cluster that it names.
///
/// The operator acts there with its own permissions, which the author of the provider may not have. So it has to be the
/// namespace of the Machine or of the provider, or one whose `metadata` permits references from the provider's namespace;
/// and the operator has to watch it.
pub fn check_namespace(
    machine: &Machine,
    provider: &MachineProvider,
    metadata: Option<&ObjectMeta>,
    watched: &WatchedNamespaces,
) -> Result<(), Refusal> {
    let Some(target) = provider.spec.own_cluster_namespace() else { return Ok(()) };
    let name = ObjectName::of(provider);
    let is_own = machine.metadata.namespace.as_deref() == Some(target) || name.namespace == target;
    let is_permitted = metadata.is_some_and(|metadata| permits(metadata, &name.namespace));

    if !(is_own || is_permitted) {
        return Err(refusals::namespace_not_permitted(&name, target));
    }
    // The operator sees nothing there, and must not take that for absent.
    if watched.contains(target) { Ok(()) } else { Err(refusals::target_not_watched(&name, target)) }
}

#[cfg(test)]
mod tests {
    use vitistack_types::{
        SecretKeyReference, labels,
        v1alpha1::{KubeVirtProvider, ProviderCredentials, ProviderType},
    };

    use super::*;

    fn provider(target: &str, is_remote: bool) -> MachineProvider {
        let secret_ref = SecretKeyReference { name: "hq".to_owned(), key: "kubeconfig".to_owned() };
        MachineProvider::builder()
            .provider_type(ProviderType::Kubevirt)
            .kubevirt(KubeVirtProvider { namespace: Some(target.to_owned()) })
            .maybe_credentials(is_remote.then_some(ProviderCredentials { secret_ref }))
            .build("shared", "infra")
            .unwrap()
    }

    fn check(provider: &MachineProvider, annotation: Option<&str>) -> Result<(), String> {
        let machine = Machine::builder().template("small").build("web", "tenant-a").unwrap();
        let annotations = annotation.map(|value| {
            [(labels::ALLOW_REFERENCES_FROM.to_owned(), value.to_owned())].into_iter().collect()
        });
        let metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        check_namespace(&machine, provider, Some(&metadata), &WatchedNamespaces::ALL)
            .map_err(|refusal| refusal.message)
    }

    #[test]
    fn the_operator_acts_in_the_namespace_of_the_machine_or_the_provider() {
        assert_eq!(check(&provider("tenant-a", false), None), Ok(()));
        assert_eq!(check(&provider("infra", false), None), Ok(()));
    }

    #[test]
    fn another_namespace_has_to_permit_the_namespace_of_the_provider() {
        let provider = provider("virtual-machines", false);
        let refused = check(&provider, None).unwrap_err();
        assert!(
            refused.contains(
                "kubectl annotate namespace virtual-machines vitistack.io/allow-references-from=infra"
            ),
            "{refused}"
        );
        // The namespace of the Machine does not count: it did not write the provider.
        assert_eq!(check(&provider, Some("tenant-a")).unwrap_err(), refused);
        assert_eq!(check(&provider, Some("infra")), Ok(()));
        assert_eq!(check(&provider, Some("*")), Ok(()));
    }

    #[test]
    fn a_namespace_that_does_not_exist_is_refused_in_the_same_words() {
        let machine = Machine::builder().template("small").build("web", "tenant-a").unwrap();
        let provider = provider("virtual-machines", false);
        let refusal = check_namespace(&machine, &provider, None, &WatchedNamespaces::ALL).unwrap_err();
        assert_eq!(refusal.message, check(&provider, None).unwrap_err());
    }

    #[test]
    fn a_namespace_that_is_not_watched_is_refused() {
        let machine = Machine::builder().template("small").build("web", "tenant-a").unwrap();
        let provider = provider("infra", false);
        let check = |watched: &str| check_namespace(&machine, &provider, None, &watched.parse().unwrap());
        let refusal = check("tenant-a").unwrap_err();
        assert_eq!(refusal.reason, vitistack_types::conditions::reason::NAMESPACE_NOT_WATCHED);
        assert!(refusal.message.contains("add the namespace to --namespaces"), "{}", refusal.message);
        assert_eq!(check("tenant-a,infra"), Ok(()));
    }

    #[test]
    fn another_cluster_is_protected_by_the_credentials_for_it() {
        assert_eq!(check(&provider("virtual-machines", true), None), Ok(()));
    }
}
