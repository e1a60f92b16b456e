//! What a provider lets Machines use: bridges of its hosts, and hosts that disk images come from. Pure.

use vitistack_clients::egress::{Reach, reach};
use vitistack_plan::{
    Refusal,
    machine::{AttachedNetwork, DesiredDisk, DesiredInterface},
};
use vitistack_types::{
    conditions::reason,
    v1alpha1::{AllowedBridge, MachineProviderSpec},
};

/// Where images without a registry come from.
const DEFAULT_REGISTRY: &str = "docker.io";

/// The limits of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The bridges that machines may be attached to; every bridge if absent.
    pub bridges: Option<Vec<AllowedBridge>>,
    /// The hosts that disk images may come from; every public host if absent.
    pub source_hosts: Option<Vec<String>>,
}

impl From<&MachineProviderSpec> for Limits {
    fn from(spec: &MachineProviderSpec) -> Self {
        Self { bridges: spec.allowed_bridges.clone(), source_hosts: spec.allowed_source_hosts.clone() }
    }
}

impl Limits {
    /// Returns why an interface must not be attached to its network.
    #[must_use]
    pub fn interface_problem(&self, interface: &DesiredInterface) -> Option<Refusal> {
        let AttachedNetwork { name, bridge, vlan } = &interface.network;
        let allowed = self.bridges.as_ref()?.iter().find(|allowed| allowed.bridge == *bridge);
        let is_allowed = allowed.is_some_and(|allowed| {
            allowed.vlans.as_ref().is_none_or(|vlans| vlans.contains(&vlan.unwrap_or_default()))
        });

        (!is_allowed).then(|| {
            let vlan = vlan.map_or_else(|| "untagged".to_owned(), |vlan| format!("with VLAN {vlan}"));
            Refusal::new(
                reason::INVALID_SPEC,
                format!(
                    "spec.networks[{}].networkName {name:?}: the provider does not allow bridge {bridge:?} {vlan}: use another network, or add it to the MachineProvider's spec.allowedBridges",
                    interface.name
                ),
            )
        })
    }

    /// Returns why a disk must not be filled from its source. A claim has no host.
    #[must_use]
    pub fn source_problem(&self, disk: &DesiredDisk) -> Option<Refusal> {
        let source = disk.source.as_ref()?;
        let (field, value, host) = match (&source.image, &source.url) {
            (Some(image), _) => ("image", image, host_of_image(image)),
            (None, Some(url)) => ("url", url, host_of_url(url)),
            (None, None) => return None,
        };

        let problem = self.host_problem(&host)?;
        let message = format!("disks[{}].source.{field} {value:?}: host {host:?} {problem}", disk.name);
        Some(Refusal::new(reason::INVALID_SPEC, message))
    }

    /// Returns what is wrong with a host, and the fix.
    fn host_problem(&self, host: &str) -> Option<String> {
        const LIST: &str = "the MachineProvider's spec.allowedSourceHosts";
        let listed = self.source_hosts.as_ref();
        let is_listed = listed.is_some_and(|listed| listed.iter().any(|each| is_matched(each, host)));
        match reach(host) {
            Reach::Unclear => Some("is neither a name nor an address: use a host name".to_owned()),
            Reach::LinkLocal => Some("is link-local, unspecified or multicast: use a public host".to_owned()),
            _ if is_listed => None,
            _ if listed.is_some() => {
                Some(format!("is not allowed: use a host of {LIST}, or add this one to it"))
            }
            Reach::Public => None,
            Reach::Private | Reach::Local => {
                Some(format!("is not known to be public: use a public host, or add this one to {LIST}"))
            }
        }
    }
}

/// Whether a host is the listed one, or below it if the entry starts with `*.`.
fn is_matched(listed: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    match listed.strip_prefix('*') {
        Some(domain) => host.len() > domain.len() && host.ends_with(domain),
        None => host == listed,
    }
}

/// Returns the host of a URL as it is written, without the port.
fn host_of_url(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    without_port(authority)
}

/// Returns the registry of a container image. As in every container engine, the first part is one if it looks like a host.
fn host_of_image(image: &str) -> String {
    let is_registry = |first: &str| {
        first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase)
    };
    match image.split_once('/') {
        Some((first, _)) if is_registry(first) => without_port(first),
        _ => DEFAULT_REGISTRY.to_owned(),
    }
}

fn without_port(authority: &str) -> String {
    let host = match authority.split_once(']') {
        Some((address, _)) if authority.starts_with('[') => return format!("{address}]"),
        _ => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    host.to_owned()
}

#[cfg(test)]
mod tests {
    use vitistack_plan::machine::{References, resolve};
    use vitistack_types::{decode, v1alpha1::Machine};

    use super::*;

    fn problem(limits: &Limits, source: &str) -> Option<String> {
        let machine = format!(
            "{{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {{name: vm, namespace: default}}, spec: {{template: small, disks: [{{name: root, source: {source}}}]}}}}"
        );
        let machine: Machine = decode(serde_saphyr::from_str(&machine).unwrap()).unwrap();
        let desired = resolve(&machine, &References::default()).unwrap();
        limits.source_problem(&desired.disks[0]).map(|refusal| refusal.message)
    }

    fn url(limits: &Limits, host: &str) -> Option<String> {
        problem(limits, &format!("{{url: 'http://{host}/disk.img'}}"))
    }

    #[test]
    fn without_a_list_every_public_host_is_allowed_and_no_other() {
        let limits = Limits::default();
        for host in ["images.example.com", "images.example.com:8443", "198.51.100.7", "[2001:db8::1]:443"] {
            assert_eq!(url(&limits, host), None, "{host}");
        }
        for host in [
            "169.254.169.254",
            "127.0.0.1:10255",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local:443",
            "kubernetes.default",
            "localhost",
            "10.0.0.1",
            "[::ffff:169.254.169.254]:80",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::]",
            "2852039166",
            "0x7f.1",
            "images.example.com\\\\169.254.169.254",
        ] {
            assert!(url(&limits, host).is_some(), "{host}");
        }
    }

    #[test]
    fn a_list_allows_what_it_contains_and_never_a_link_local_address() {
        let hosts = ["images.example.com", "*.mirror.example", "10.0.0.1", "169.254.169.254"];
        let limits = Limits { source_hosts: Some(hosts.map(str::to_owned).to_vec()), ..Limits::default() };
        for host in ["images.example.com", "IMAGES.example.com.", "eu.mirror.example", "10.0.0.1:80"] {
            assert_eq!(url(&limits, host), None, "{host}");
        }
        for host in [
            "example.com",
            "evilimages.example.com",
            "mirror.example",
            "evilmirror.example",
            "169.254.169.254",
        ] {
            assert!(url(&limits, host).is_some(), "{host}");
        }
    }

    #[test]
    fn the_registry_of_an_image_is_judged_too() {
        let limits = Limits { source_hosts: Some(vec!["quay.io".to_owned()]), ..Limits::default() };
        assert_eq!(problem(&limits, "{image: 'quay.io/containerdisks/debian:13'}"), None);
        assert!(problem(&limits, "{image: 'debian:13'}").unwrap().contains("\"docker.io\""));
        assert!(problem(&limits, "{image: 'library/debian'}").unwrap().contains("\"docker.io\""));
        for image in ["localhost:5000/debian", "10.0.0.1/debian", "registry.images.svc:5000/debian"] {
            assert!(problem(&Limits::default(), &format!("{{image: '{image}'}}")).is_some(), "{image}");
        }
    }

    #[test]
    fn bridges_are_allowed_with_their_vlans() {
        let bridge =
            |bridge: &str, vlans: Option<Vec<u16>>| AllowedBridge { bridge: bridge.to_owned(), vlans };
        let limits = Limits {
            bridges: Some(vec![bridge("br0", None), bridge("br1", Some(vec![0, 100]))]),
            ..Limits::default()
        };
        let check = |limits: &Limits, bridge: &str, vlan| {
            let network = AttachedNetwork { name: "net".to_owned(), bridge: bridge.to_owned(), vlan };
            let model = vitistack_types::v1alpha1::NetworkModel::Virtio;
            limits.interface_problem(&DesiredInterface {
                name: "eth0".to_owned(),
                network,
                model,
                mac_address: None,
            })
        };
        for (bridge, vlan) in [("br0", None), ("br0", Some(7)), ("br1", None), ("br1", Some(100))] {
            assert_eq!(check(&limits, bridge, vlan), None, "{bridge} {vlan:?}");
        }
        for (bridge, vlan) in [("br1", Some(7)), ("br-mgmt", None), ("br-mgmt", Some(1))] {
            assert!(check(&limits, bridge, vlan).is_some(), "{bridge} {vlan:?}");
            assert_eq!(check(&Limits::default(), bridge, vlan), None, "{bridge} {vlan:?}");
        }
        let message = check(&limits, "br-mgmt", Some(1)).unwrap().message;
        assert!(
            message.contains("spec.networks[eth0]") && message.contains("spec.allowedBridges"),
            "{message}"
        );
    }
}
